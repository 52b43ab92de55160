package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// Gateways that freeze at a named moment, mostly right before a request leaves for
// the store, behind every check of whether it still may. The others take over, do
// what was begun, and more; then the frozen ones wake up, and the first thing they
// do is what they were about to do. TestKillPoints has those that do not wake up.

// allFreezes has every moment tried, not only those that stand for their kind.
var allFreezes = os.Getenv("STREAM_FREEZE") == "full"

// freezing is a world in which gateways freeze.
type freezing struct {
	*testing.T
	w     *world
	nc    *nats.Conn
	files []string // by gateway: what is armed
	said  []int    // by gateway: how often it had said that it freezes when that was armed
	peers []*peer  // by gateway
}

func newFreezing(t *testing.T, s shape) *freezing {
	t.Helper()
	s.replicas, s.binary = 1, testkit.KillableBinary(t)
	dir := t.TempDir()
	z := &freezing{T: t}
	for i := range s.gateways {
		z.files, z.said = append(z.files, filepath.Join(dir, fmt.Sprint(i))), append(z.said, 0)
	}
	s.own = func(i int) []string { return []string{"STREAM_KILL_FILE=" + z.files[i]} }
	z.w = newWorld(t, s)
	for _, g := range z.w.gateways {
		z.peers = append(z.peers, connect(t, g.Addr))
	}
	nc, err := nats.Connect(z.w.nats[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	z.nc = nc
	return z
}

// variants are how late a request leaves when its gateway wakes up: at once, while
// it does not know yet what has become of it, or in its next life.
func variants() []time.Duration {
	if allFreezes {
		return []time.Duration{0, 2 * time.Second}
	}
	return []time.Duration{0}
}

// inWorlds has rows tried, at most so many in one world, as often as there are
// variants: those that stand for their kind, or all.
func inWorlds[R any](t *testing.T, all []R, ci func(R) bool, most int, try func(*testing.T, []R, time.Duration)) {
	var rows []R
	for _, r := range all {
		if ci(r) || allFreezes {
			rows = append(rows, r)
		}
	}
	for _, by := range variants() {
		n := 0
		for some := range slices.Chunk(rows, most) {
			t.Run(fmt.Sprintf("%d, late by %v", n, by), func(t *testing.T) {
				t.Parallel()
				try(t, some, by)
			})
			n++
		}
	}
}

// delayed is a point behind which the gateway waits when it wakes up.
func delayed(point string, by time.Duration) string {
	if by == 0 {
		return point
	}
	if _, last, _ := strings.Cut(point, "="); !strings.Contains(last, ":") {
		point += ":1"
	}
	return point + ":" + by.String()
}

// arm has gateway i freeze when it comes to a point. Nothing of it is armed then.
func (z *freezing) arm(i int, point string) {
	z.Helper()
	z.said[i] = strings.Count(z.w.gateways[i].Log(), "frozen at ")
	tmp := z.files[i] + ".new"
	if err := os.WriteFile(tmp, []byte("freeze "+point), 0o600); err != nil {
		z.Fatal(err)
	}
	if err := os.Rename(tmp, z.files[i]); err != nil {
		z.Fatal(err)
	}
}

// disarm takes back what arm did; it reports whether it was in time.
func (z *freezing) disarm(i int) bool { return os.Remove(z.files[i]) == nil }

// froze waits until gateway i stands still, and returns where: the subject of the
// request that is about to leave.
func (z *freezing) froze(i int, point string) (subject string) {
	z.Helper()
	g := z.w.gateways[i]
	testkit.Poll(z, 40*time.Second, fmt.Sprintf("%s comes to %s", g.name, point), func() error {
		_, err := os.Stat(z.files[i])
		if err == nil {
			err = errors.New("not yet")
		} else if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	})
	stands(z.T, g, 10*time.Second)
	g.set(frozen)
	var log string // what it has written comes a moment later
	testkit.Poll(z, 10*time.Second, g.name+" has said where it stands", func() error {
		log = g.Log()
		if strings.Count(log, "frozen at ") <= z.said[i] || !strings.HasSuffix(log, "\n") {
			return errors.New("not yet")
		}
		return nil
	})
	_, last, ok := strings.Cut(log[strings.LastIndex(log, "frozen at "):], "request.sending=")
	if !ok {
		return ""
	}
	subject, _, _ = strings.Cut(last, "\n")
	return subject
}

// wake has gateway i go on, and waits until the request that it was about to send
// has left.
func (z *freezing) wake(i int, subject string) {
	z.Helper()
	g := z.w.gateways[i]
	if subject == "" {
		resume(g)
		return
	}
	late, err := z.nc.SubscribeSync(subject)
	if err != nil {
		z.Fatal(err)
	}
	defer func() { _ = late.Unsubscribe() }()
	if err := z.nc.Flush(); err != nil {
		z.Fatal(err)
	}
	resume(g)
	if _, err := late.NextMsg(20 * time.Second); err != nil {
		z.Errorf("%s has not sent %s when it woke up: %v", g.name, subject, err)
	}
}

// heldDead waits until all gateways that are frozen are held for dead.
func (z *freezing) heldDead() {
	z.Helper()
	testkit.Poll(z, 20*time.Second, "the frozen gateways are held for dead", func() error {
		all, err := z.bucket("kafka-gateways")
		if err != nil {
			return err
		}
		alive := 0
		for _, v := range all {
			if strings.Contains(v, `"state":"alive"`) {
				alive++
			}
		}
		if n := len(z.w.running()); alive != n {
			return fmt.Errorf("%d are held to be alive, %d run", alive, n)
		}
		return nil
	})
}

// bucket is what a bucket holds.
func (z *freezing) bucket(name string) (map[string]string, error) {
	js, err := z.nc.JetStream()
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(name)
	if err != nil {
		return nil, err
	}
	keys, err := kv.Keys()
	if err != nil && !errors.Is(err, nats.ErrNoKeysFound) {
		return nil, err
	}
	all := map[string]string{}
	for _, key := range keys {
		v, err := kv.Get(key)
		if errors.Is(err, nats.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[key] = string(v.Value())
	}
	return all, nil
}

// remake deletes a topic, if it is there, and makes it again, through one gateway.
// Its first records are values.
func (z *freezing) remake(p *peer, topic string, partitions int32, values ...string) {
	z.Helper()
	testkit.Poll(z, 30*time.Second, "delete "+topic, func() error {
		r, err := ask[*kmsg.DeleteTopicsResponse](p, deleteRequest(topic))
		if err == nil {
			err = code(r.Topics[0].ErrorCode)
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		return err
	})
	p.create(topic, partitions)
	for _, v := range values {
		p.produce(topic, 0, batch{producer: -1, values: []string{v}})
	}
}

// holds checks what partition 0 of a topic holds, through every gateway.
func (z *freezing) holds(topic string, want ...string) {
	z.Helper()
	for i, g := range z.w.gateways {
		if got := z.peers[i].values(topic, 0); !slices.Equal(got, want) {
			z.Errorf("%s: %s holds %v, want %v", g.name, topic, got, want)
		}
	}
}

// again connects anew to gateway i once it is ready.
func (z *freezing) again(i int) {
	z.Helper()
	z.w.gateways[i].ready(z.T)
	z.peers[i] = connect(z.T, z.w.gateways[i].Addr)
}

// wantStreams waits until a topic has so many streams, and no other is there of it.
func (z *freezing) wantStreams(topic string, n int) {
	z.Helper()
	k := &killed{T: z.T, w: z.w}
	testkit.Poll(z, 30*time.Second, fmt.Sprintf("%s has %d streams", topic, n), func() error {
		there, err := k.streams(topic)
		if err == nil && len(there) != n {
			err = fmt.Errorf("%v", there)
		}
		return err
	})
}

// explained has stream repair look for what is wrong.
func (z *freezing) explained() {
	z.Helper()
	// What is removed loses its stream first, then its record.
	testkit.Poll(z, time.Minute, "stream repair has found nothing", func() error {
		ctx, cancel := context.WithTimeout(z.Context(), time.Minute)
		defer cancel()
		var stderr strings.Builder
		cmd := exec.CommandContext(ctx, testkit.KillableBinary(z), "repair", "--pubsub-url", z.w.nats[0].URL, "-o", "json")
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, stderr.String())
		}
		var found struct {
			Partitions  []json.RawMessage `json:"partitions"`
			Unexplained []string          `json:"unexplained_streams"`
			Strays      []string          `json:"unexplained_partition_keys"`
		}
		if err := json.Unmarshal(out, &found); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		if len(found.Partitions)+len(found.Unexplained)+len(found.Strays) > 0 {
			return fmt.Errorf("it has found:\n%s", out)
		}
		return nil
	})
}

// late is an answer that comes when its gateway has woken up: its code, or
// UNKNOWN_SERVER_ERROR where the connection ends without one.
func late[R kmsg.Response](p *peer, req kmsg.Request, code func(R) int16) <-chan int16 {
	c := make(chan int16, 1)
	go func() {
		ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
		defer cancel()
		resp, err := p.b.Request(ctx, req)
		if err != nil {
			c <- kerr.UnknownServerError.Code
			return
		}
		c <- code(resp.(R))
	}()
	return c
}
