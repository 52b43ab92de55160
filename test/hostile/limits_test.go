//go:build hostile

package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// TestLimits is reliability-security.md §2: each limit has its key, shows with
// the value in force in `stream config print --resolved`, holds, and is counted.
func TestLimits(t *testing.T) {
	metadata := at(8, kmsg.NewPtrMetadataRequest())
	asks := func(req kmsg.Request) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			c := r.dial(t)
			defer c.Close()
			ask[kmsg.Response](t, c, req)
		}
	}
	sends := func(b []byte) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			c := r.dial(t)
			defer c.Close()
			_, _ = c.Write(b)
			c.closed(t, "beyond the limit")
		}
	}
	connects := func(n int) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			var cs []*client
			for range n {
				c := r.dial(t)
				_ = c.send(metadata)
				cs = append(cs, c)
			}
			cs[n-1].closed(t, "one connection too many")
			for _, c := range cs {
				_ = c.Close()
			}
		}
	}
	pipelines := func(reqs ...kmsg.Request) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			c := r.dial(t)
			defer c.Close()
			for _, req := range reqs {
				if err := c.send(req); err != nil {
					return
				}
			}
			for range reqs {
				if _, err := c.frame(patience); err != nil {
					return
				}
			}
		}
	}
	long := fetch(12, "good", 0, 0, 1<<20, time.Minute)
	slow := fetch(12, "good", 0, 0, 1<<30, time.Second)
	slow.MinBytes = 1 << 30
	session := fetch(12, "good", 0, 0, 1<<20, 0)
	session.SessionEpoch = 0
	many := func(n int, req kmsg.Request) []kmsg.Request {
		var rs []kmsg.Request
		for range n {
			rs = append(rs, req)
		}
		return rs
	}
	offset := at(8, kmsg.NewPtrOffsetCommitRequest())
	offset.Group, offset.Generation = "g", -1
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Metadata = ptr("0123456789")
	offset.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "good", Partitions: []kmsg.OffsetCommitRequestTopicPartition{rp}}}
	large := at(5, kmsg.NewPtrCreateTopicsRequest())
	large.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "large", 5, 1
	large.Topics = append(large.Topics, topic)
	elements := at(8, kmsg.NewPtrMetadataRequest())
	for range 1001 {
		elements.Topics = append(elements.Topics, kmsg.MetadataRequestTopic{Topic: ptr("good")})
	}

	for _, l := range []struct {
		key, value, series string
		trip               func(*testing.T, *rig)
	}{
		{"socket.request.max.bytes", "2MiB", bad("length"), sends(be32(2<<20 + 1))},
		{"max.request.elements", "1000", bad("elements"), sends(framed(encode(elements, 1, "x")))},
		{"max.connections", "5", `stream_connections_rejected_total{reason="max.connections"}`, connects(6)},
		{"max.connections.per.ip", "5", `stream_connections_rejected_total{reason="max.connections.per.ip"}`, connects(6)},
		{"frame.timeout", "200ms", closedFor("frame.timeout"), sends(be32(100))},
		{"write.timeout", "500ms", closedFor("write.timeout"), neverReads},
		{"queued.max.request.bytes", "16MiB", limited("queued.max.request.bytes"), halfSent},
		{"connections.max.idle.ms", "1s", closedFor("connections.max.idle.ms"), sends(nil)},
		{"max.inflight.per.connection", "5", limited("max.inflight.per.connection"), pipelines(append([]kmsg.Request{slow}, many(40, metadata)...)...)},
		{"fetch.max.bytes", "2KiB", limited("fetch.max.bytes"), asks(fetch(12, "good", 0, 0, 1<<20, 0))},
		{"fetch.max.wait", "200ms", limited("fetch.max.wait"), asks(long)},
		{"max.incremental.fetch.session.cache.slots", "1", limited("max.incremental.fetch.session.cache.slots"), pipelines(many(2, session)...)},
		{"fetch.held.bytes", "1KiB", limited("fetch.held.bytes"), asks(fetch(12, "good", 0, 0, 1<<20, 0))},
		{"group.min.session.timeout.ms", "20s", answered("JoinGroup", "INVALID_SESSION_TIMEOUT"), asks(join("g", 10_000, 1, nil))},
		{"group.max.session.timeout.ms", "9s", answered("JoinGroup", "INVALID_SESSION_TIMEOUT"), asks(join("g", 10_000, 1, nil))},
		{"group.max.protocols", "3", answered("JoinGroup", "INVALID_REQUEST"), asks(join("g", 10_000, 4, nil))},
		{"offset.metadata.max.bytes", "5", answered("OffsetCommit", "OFFSET_METADATA_TOO_LARGE"), asks(offset)},
		{"max.partitions", "3", answered("CreateTopics", "INVALID_PARTITIONS"), asks(large)},
		{"message.max.bytes", "1000000", answered("Produce", "MESSAGE_TOO_LARGE"), asks(produce(9, -1, part{"good", 0, one(1_000_001)}))},
		{"admin.header.max.bytes", "8KiB", limited("admin.header.max.bytes"), web("431", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("a", 20<<10)+"\r\n\r\n")},
		{"admin.body.max.bytes", "4KiB", limited("admin.body.max.bytes"), web("413", "POST /v1/stream/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n")},
		{"admin.timeout", "500ms", limited("admin.timeout"), web("", "GET /livez HTTP/1.1\r\nHost: localh")},
	} {
		t.Run(l.key, func(t *testing.T) {
			flag := "--" + strings.ReplaceAll(l.key, ".", "-")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, testkit.Binary(t), "config", "print", "--resolved", flag, l.value)
			cmd.Env = testkit.Environ()
			out, err := cmd.Output()
			if want := fmt.Sprintf("\n%s: %s ", l.key, l.value); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("config print: %v: no %q", err, want)
			}
			r := start(t, flag, l.value)
			before := r.scrape(t)[l.series]
			l.trip(t, r)
			testkit.Poll(t, patience, l.series, func() error {
				m, err := r.tryScrape()
				if err != nil {
					return err
				}
				if m[l.series] <= before {
					return fmt.Errorf("%v, as before", m[l.series])
				}
				return nil
			})
		})
	}
}

// neverReads asks for much more than sockets hold, and takes nothing.
func neverReads(t *testing.T, r *rig) {
	c := r.dial(t)
	for range 16 {
		if err := c.send(fetch(12, "good", 0, 0, 1<<20, 0)); err != nil {
			return
		}
	}
}

// halfSent begins two requests of 10 MiB and ends neither: together they are
// more than 16 MiB.
func halfSent(t *testing.T, r *rig) {
	for range 2 {
		c := r.dial(t)
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write(append(be32(12<<20), make([]byte, 10<<20)...))
	}
}

// web sends bytes to the HTTP port and wants a status, or the end.
func web(status, request string) func(*testing.T, *rig) {
	return func(t *testing.T, r *rig) {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.Admin, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, request)
		b, err := io.ReadAll(c)
		if !strings.Contains(string(b), status) {
			t.Errorf("answer %.100q, %v", b, err)
		}
	}
}
