package jetstream

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// TestBoundsInSync: whom a stream's leader is believed to have in sync.
func TestBoundsInSync(t *testing.T) {
	for _, c := range []struct {
		name, peer      string
		inSync, offline int
	}{
		{"current", `{"current":true,"active":300000000}`, 3, 0},
		{"one that confirms last, under load", `{"current":false,"active":1000000,"lag":40}`, 3, 0},
		{"catching up", `{"current":false,"active":1000000,"lag":4000}`, 2, 0},
		{"frozen, and still called current", `{"current":true,"active":6000000000}`, 2, 0},
		{"killed before the election, never heard of", `{"current":true,"active":0}`, 2, 0},
		{"away", `{"current":false,"offline":true,"active":20000000000,"lag":7}`, 2, 1},
		{"away, and still called current", `{"current":true,"offline":true,"active":100}`, 2, 1},
	} {
		var si streamInfo
		text := `{"config":{"num_replicas":3},"cluster":{"leader":"n1","replicas":[{"current":true,"active":100}, ` + c.peer + `]}}`
		if err := json.Unmarshal([]byte(text), &si); err != nil {
			t.Fatal(err)
		}
		if b := bounds(si); b.InSync != c.inSync || b.Offline != c.offline || b.Replicas != 3 || b.Leader != "n1" {
			t.Errorf("%s: %+v, want %d in sync, %d offline", c.name, b, c.inSync, c.offline)
		}
	}
	if b := bounds(streamInfo{Config: streamConfig{Replicas: 1}}); b.InSync != 1 || b.Replicas != 1 {
		t.Errorf("a single server: %+v", b)
	}
}

// TestMaxReplicasByOneURL: of a cluster of three of which one address is given,
// three replicas can be had.
func TestMaxReplicasByOneURL(t *testing.T) {
	servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{})
	testkit.Poll(t, time.Minute, "a cluster of three", func() error {
		st, err := Connect(t.Context(), Config{URL: servers[0].URL})
		if err != nil {
			return err
		}
		defer st.Close()
		if n := st.Info().MaxReplicas; n != 3 {
			return fmt.Errorf("%d replicas", n)
		}
		return nil
	})
}
