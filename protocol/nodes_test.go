package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestNodesWithoutHost: a node without a host is told by the address that the
// client has reached, the same by every API that names brokers.
func TestNodesWithoutHost(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.nodes = []Node{{ID: 1, Port: 9092}}
	s := startServer(t, w, nil)
	p := s.dial(t)
	want := hostOf(p.RemoteAddr())
	if got := ask[*kmsg.MetadataResponse](p, 9, kmsg.NewPtrMetadataRequest()).Brokers[0].Host; got != want {
		t.Errorf("Metadata: %q, want %q", got, want)
	}
	if got := ask[*kmsg.DescribeClusterResponse](p, 1, &kmsg.DescribeClusterRequest{EndpointType: 1}).Brokers[0].Host; got != want {
		t.Errorf("DescribeCluster: %q, want %q", got, want)
	}
	if got := ask[*kmsg.FindCoordinatorResponse](p, 3, &kmsg.FindCoordinatorRequest{CoordinatorKey: "g"}).Host; got != want {
		t.Errorf("FindCoordinator v3: %q, want %q", got, want)
	}
	r := ask[*kmsg.FindCoordinatorResponse](p, 4, &kmsg.FindCoordinatorRequest{CoordinatorKeys: []string{"g", "g", "h"}})
	if len(r.Coordinators) != 2 || r.Coordinators[0].Host != want || r.Coordinators[1].Key != "h" {
		t.Errorf("FindCoordinator v4: %+v", r.Coordinators)
	}
	if w.nodes[0].Host != "" {
		t.Error("the backend's own list was changed")
	}
}

// TestAnswersBudget: large answers are made while there is room only, a few at a
// time.
func TestAnswersBudget(t *testing.T) {
	t.Parallel()
	a := newAnswers(100)
	stop := make(chan struct{})
	for range largeAtOnce {
		if err := a.enter(stop); err != nil {
			t.Fatal(err)
		}
	}
	entered := make(chan error, 1)
	go func() { entered <- a.enter(stop) }()
	a.add(100)
	a.leave() // a place, but no room
	eventually(t, "it waits for room", func() bool { return a.waiting.Load() == 1 })
	a.add(-1)
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	go func() { entered <- a.enter(stop) }()
	close(stop)
	if err := <-entered; err == nil {
		t.Error("entered though it was cut")
	}
}
