package writers

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full is set for make bench-gateways: longer loads, and their figures count.
var full = os.Getenv("STREAM_WRITERS") == "full"

func length() time.Duration {
	if full {
		return 5 * time.Second
	}
	return time.Second
}

// TestFault04TwoGatewaysOnePartition: ten producers, all on one gateway and then spread
// over two.
func TestFault04TwoGatewaysOnePartition(t *testing.T) {
	f := newFleet(t, 2)
	rounds, sizes, depth := 1, []int{200}, 50
	if full {
		rounds, sizes, depth = 3, []int{100, 1000}, 500
	}
	for _, size := range sizes {
		var one, two float64
		for r := range rounds {
			for n := 1; n <= 2; n++ {
				topic := fmt.Sprintf("t-%d-%d-%d", size, r, n)
				f.create(t, topic, 1)
				l := load{topic: topic, gateways: f.gateways[:n], partitions: 1, producers: 10, depth: depth, size: size, length: length()}
				o := l.run(t, f)
				t.Logf("%d gateways, %d B: %v", n, size, o)
				l.check(t, o, f.gateways[r%2])
				if n == 1 {
					one += o.rate()
				} else {
					two += o.rate()
				}
			}
		}
		t.Logf("%d B: two gateways have %.2f of the throughput of one", size, two/one)
		if full && two < 0.8*one {
			t.Errorf("%d B: less than 0.8", size)
		}
	}
}

// TestFiveGatewaysOnePartition: no producer waits long because others win.
func TestFiveGatewaysOnePartition(t *testing.T) {
	f := newFleet(t, 5)
	for _, depth := range []int{1, 20} {
		topic := fmt.Sprintf("five-%d", depth)
		f.create(t, topic, 1)
		l := load{topic: topic, gateways: f.gateways, partitions: 1, producers: 10, depth: depth, size: 100, length: length()}
		o := l.run(t, f)
		t.Logf("five gateways, %d records on their way per producer: %v", depth, o)
		l.check(t, o, f.gateways[4])
		// A bound that also a busy machine keeps; alone it is a second.
		limit := 10 * time.Second
		if full {
			limit = time.Second
		}
		if o.wait(1) > limit {
			t.Errorf("a producer waited %v", o.wait(1))
		}
	}
}

// TestFourGatewaysManyPartitions: 16 partitions through one, two and four gateways.
func TestFourGatewaysManyPartitions(t *testing.T) {
	counts, depth := []int{4}, 5
	if full {
		counts, depth = []int{1, 2, 4}, 100
	}
	f := newFleet(t, 4)
	for _, n := range counts {
		topic := fmt.Sprintf("many-%d", n)
		f.create(t, topic, 16)
		l := load{topic: topic, gateways: f.gateways[:n], partitions: 16, producers: 32, depth: depth, size: 1000, length: length()}
		o := l.run(t, f)
		t.Logf("%d gateways, 16 partitions: %v; %.2f of %d cores", n, o, (o.gateways+o.nats+o.clients).Seconds()/o.took.Seconds(), runtime.NumCPU())
		l.check(t, o, f.gateways[0])
	}
}
