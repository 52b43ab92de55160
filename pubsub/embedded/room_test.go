package embedded

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A server that is started again in place keeps its port and its data, is
// reached by new connections in the process, and ends with Stop.
func TestRestartInPlace(t *testing.T) {
	s, err := Start(t.Context(), Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	address := s.ClientURL()
	put := func(n uint64) {
		t.Helper()
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			if _, err := js.AddStream(&nats.StreamConfig{Name: "s", Subjects: []string{"s"}}); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := js.Publish("s", nil); err != nil || a.Sequence != n {
			t.Fatalf("stored at %+v, %v; want %d", a, err, n)
		}
	}
	put(1)
	if bad := s.unhealthy(); bad != "" {
		t.Fatalf("not healthy: %s", bad)
	}
	if err := s.restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(2)
	if s.ClientURL() != address || s.srv.ClientURL() != address {
		t.Errorf("at %s before, at %s after", address, s.srv.ClientURL())
	}
	s.srv.Shutdown()
	if s.unhealthy() == "" {
		t.Error("a server that was shut down is healthy")
	}
}

func TestReserve(t *testing.T) {
	for total, want := range map[uint64]uint64{0: minReserve, 256 << 20: 8 << 20, 1 << 40: maxReserve} {
		if got := reserve(total); got != want {
			t.Errorf("of %d: %d, want %d", total, got, want)
		}
	}
	if free, total, err := diskSpace(t.TempDir()); err != nil || free == 0 || total < free {
		t.Errorf("disk space: %d of %d, %v", free, total, err)
	}
}
