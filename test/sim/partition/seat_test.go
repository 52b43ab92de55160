package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/test/sim"
)

// seat is a place for a gateway; whoever sits there may be killed and replaced.
type seat struct {
	number int

	mu     sync.Mutex // guards: all below
	life   int        // counts the gateways that sat here
	unhand func()     // ends taking over appends
	client *memory.Client
	host   *partition.Host
	p      *partition.Partition
	cancel context.CancelFunc
	ran    chan struct{}
}

func (s *seat) now() (*partition.Partition, *memory.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p, s.client
}

// start puts a new gateway on a seat.
func (s *run) start(x *seat, name string) {
	c := s.server.Client(s.weather.Faults())
	var tab pubsub.Table
	for {
		var err error
		if tab, err = c.Table(context.Background(), pubsub.TableConfig{Name: "kafka-partitions"}); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	h := partition.NewHost(partition.Env{Store: c, Records: tab, Gateway: name, CacheBytes: 32 << 10, Others: others{s, x}})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		for ctx.Err() == nil {
			if err := h.Run(ctx); err == nil {
				return
			}
		}
	}()
	p := h.Open(partition.OpenSpec{Topic: "s", ID: s.id, Log: c.Log(logName, subject), Config: s.config})
	x.mu.Lock()
	x.life++
	x.client, x.host, x.cancel, x.ran, x.p = c, h, cancel, ran, p
	x.mu.Unlock()
	unhand := s.serveHandOvers(x, h, c)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unhand = unhand
}

// kill ends a gateway as kill -9 does: its connection breaks in the middle of
// whatever it does.
func (x *seat) kill(drain bool) {
	x.mu.Lock()
	c, h, cancel, ran, unhand := x.client, x.host, x.cancel, x.ran, x.unhand
	x.mu.Unlock()
	if drain {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		_ = h.Drain(ctx)
		stop()
	} else {
		c.Disconnect()
	}
	cancel()
	c.Thaw()
	<-ran
	h.Stop()
	unhand()
	c.Close()
}

func (s *run) seat(r *rand.Rand) *seat { return s.seats[r.IntN(len(s.seats))] }

// trouble kills, freezes and cuts off gateways.
func (s *run) trouble(r *rand.Rand) {
	for n := 0; !sim.Over(s.ended); n++ {
		x := s.seat(r)
		_, c := x.now()
		switch r.IntN(5) {
		case 0, 1:
			x.kill(r.IntN(3) == 0)
			sim.Pause(s.ended, sim.Millis(r, 2000))
			s.start(x, fmt.Sprintf("k%d", n))
			s.mu.Lock()
			s.kills++
			s.mu.Unlock()
		case 2:
			c.Disconnect()
			sim.Pause(s.ended, sim.Millis(r, 3000))
			c.Reconnect()
		case 3:
			c.Freeze()
			sim.Pause(s.ended, sim.Millis(r, 8000))
			c.Thaw()
		case 4:
			// A leader that woke from a freeze denies what was acknowledged,
			// for less than the second between two questions.
			s.weather.Lie(s.replicas > 1)
			sim.Pause(s.ended, sim.Millis(r, 800))
			s.weather.Lie(false)
			// It does not freeze again before an election could have taken place.
			sim.Pause(s.ended, 3*time.Second)
		}
		sim.Pause(s.ended, sim.Millis(r, 3000))
	}
}
