package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/test/testkit"
)

// TestCompactedOnThreeServers: what compaction leaves has the copies that the
// partition has, on as many servers, and is made as its stream is. The server that
// leads it is killed while a run writes it and again while it is read, under load:
// readers from the start see no error that is not retriable and every last value,
// before, meanwhile and afterwards; what is compacted counts among the copies that
// operators are told of, and is in sync again once the server is back. It follows when
// somebody gives the stream another number of copies, with NATS's own tools.
func TestCompactedOnThreeServers(t *testing.T) {
	t.Parallel()
	servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{})
	var urls []string
	for _, n := range servers {
		urls = append(urls, n.URL)
	}
	inSync(t, servers)
	s := testkit.Start(t, testkit.Options{PubsubURL: strings.Join(urls, ","), ReadyLimit: time.Minute,
		// A part of a core only, so that runs last.
		Args: []string{"--replicas", "3", "--log-cleaner-backoff-ms", "1s", "--compaction-cpu-percent", "10"}})
	js := jetStream(t, strings.Join(urls, ","))
	const topic, main = "copied", "kafka-copied-0"
	createWith(t, s.Addr, topic, 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"})

	writing, stopWriting := context.WithCancel(t.Context())
	acked := &last{of: map[string]int{}}
	wrote := make(chan error, 1)
	go func() {
		_, err := overwrite(writing, s.Addr, topic, acked)
		wrote <- err
	}()
	reading, stopReading := context.WithCancel(t.Context())
	read, loops := replayers(reading, s.Addr, topic, acked)
	began := time.Now()
	compactedTo := func() (upto int64) {
		t.Helper()
		// Its stream may have no leader at first.
		testkit.Poll(t, 30*time.Second, "how far it is compacted", func() error {
			c, err := topicCompaction(t.Context(), s, topic)
			upto = c.CompactedTo
			return err
		})
		return upto
	}
	further := func(than int64) {
		t.Helper()
		testkit.Poll(t, 90*time.Second, "a run comes to its end", func() error {
			c, err := topicCompaction(t.Context(), s, topic)
			if err == nil && c.CompactedTo <= than {
				err = fmt.Errorf("compacted to %d, as before", c.CompactedTo)
			}
			return err
		})
	}
	further(0)
	for _, which := range []string{"that a run writes", "that is read"} {
		var killed *testkit.NATSServer
		testkit.Poll(t, 90*time.Second, "the sibling "+which, func() error {
			found, err := siblingsOf(js, main)
			if err != nil {
				return err
			}
			if running := which == "that a run writes"; len(found) == 0 || running != (len(found) > 1) {
				return fmt.Errorf("%d siblings", len(found))
			}
			sibling := found[len(found)-1]
			if err := likeMain(js, main, sibling, 3); err != nil {
				return err
			}
			leader := slices.Index([]string{"n0", "n1", "n2"}, sibling.Cluster.Leader)
			if leader < 0 {
				return fmt.Errorf("%q leads it", sibling.Cluster.Leader)
			}
			killed = servers[leader]
			return nil
		})
		upto, before := compactedTo(), time.Now()
		killed.Kill()
		testkit.Poll(t, 30*time.Second, "a copy is missed", func() error {
			n, err := copiesTold(t.Context(), s, topic)
			if err == nil && n > 2 {
				err = fmt.Errorf("%d copies in sync", n)
			}
			return err
		})
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		inSync(t, servers)
		testkit.Poll(t, time.Minute, "all copies are in sync", func() error {
			n, err := copiesTold(t.Context(), s, topic)
			if err == nil && n != 3 {
				err = fmt.Errorf("%d copies in sync", n)
			}
			return err
		})
		further(upto)
		t.Logf("the leader of the sibling %s: back, and compacted further, after %v", which, time.Since(before).Round(time.Millisecond))
		select {
		case err := <-read:
			t.Fatal(err)
		default:
		}
	}
	testkit.Poll(t, 30*time.Second, "one copy of the stream", func() error {
		info, err := js.StreamInfo(main)
		if err != nil || info.Config.Replicas == 1 {
			return err
		}
		info.Config.Replicas = 1
		_, err = js.UpdateStream(&info.Config)
		return err
	})
	further(compactedTo())

	stopWriting()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	stopReading()
	for range loops {
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
	further(compactNow(t, s, topic) - 1)
	testkit.Poll(t, 30*time.Second, "one sibling is left, with as many copies as the stream has now", func() error {
		found, err := siblingsOf(js, main)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("%d siblings", len(found))
		}
		if err != nil {
			return err
		}
		return likeMain(js, main, found[0], 1)
	})
	c := &client{addr: s.Addr}
	defer c.close()
	got, err := replay(t.Context(), c, topic, 0, acked)
	if err != nil {
		t.Fatal(err)
	}
	if want := acked.all(); fmt.Sprint(got.values) != fmt.Sprint(want) {
		t.Errorf("last values\n%v\nwant\n%v", got.values, want)
	}
	t.Logf("read %d and %d times in %v", loops[0], loops[1], time.Since(began).Round(time.Millisecond))
	alive(t, s)
}

// siblingsOf are the streams of what is compacted of a main stream, the oldest first.
func siblingsOf(js nats.JetStreamContext, main string) (found []*nats.StreamInfo, err error) {
	names, err := streamNames(js)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, main+"=k") {
			continue
		}
		info, err := js.StreamInfo(name)
		if err != nil {
			return nil, err
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(a, b *nats.StreamInfo) int { return a.Created.Compare(b.Created) })
	return found, nil
}

// likeMain checks that a sibling is made as its main stream is, but for its name and
// its subject, and lies on so many servers.
func likeMain(js nats.JetStreamContext, main string, sibling *nats.StreamInfo, replicas int) error {
	info, err := js.StreamInfo(main)
	if err != nil {
		return err
	}
	shape := func(c nats.StreamConfig) string {
		c.Name, c.Subjects, c.RePublish, c.Metadata = "", nil, nil, nil
		return fmt.Sprintf("%+v", c)
	}
	if a, b := shape(info.Config), shape(sibling.Config); a != b || sibling.Config.Replicas != replicas {
		return fmt.Errorf("%s is made as\n%s\nand not as its main stream\n%s", sibling.Config.Name, b, a)
	}
	if len(sibling.Config.Subjects) != 1 || !strings.HasPrefix(sibling.Config.Subjects[0], "kafka-clean.") {
		return fmt.Errorf("%s has subjects %q", sibling.Config.Name, sibling.Config.Subjects)
	}
	on := map[string]bool{}
	if c := sibling.Cluster; c != nil {
		on[c.Leader] = true
		for _, r := range c.Replicas {
			on[r.Name] = true
		}
	}
	delete(on, "")
	if sibling.Cluster != nil && sibling.Cluster.Leader != "" && len(on) != replicas {
		return fmt.Errorf("%s lies on %v", sibling.Config.Name, on)
	}
	return nil
}

// copiesTold is how many copies of a topic's partition the gateway says are in sync.
func copiesTold(ctx context.Context, s *testkit.Stream, topic string) (int, error) {
	var topics []struct{ Partitions []partition }
	if err := testkit.Document(ctx, http.MethodGet, s.Admin+"/v1/stream/topics?topic="+topic, &topics); err != nil {
		return 0, err
	}
	if len(topics) != 1 || len(topics[0].Partitions) != 1 || topics[0].Partitions[0].Replicas != 3 {
		return 0, fmt.Errorf("%+v", topics)
	}
	return topics[0].Partitions[0].InSync, nil
}
