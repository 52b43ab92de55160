//go:build hostile

package hostile

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// commit commits one offset and returns the code.
func commit(t testing.TB, c *client, version int16, group, topic string, partition int32, offset int64, metadata, member string, generation int32) int16 {
	t.Helper()
	req := at(version, kmsg.NewPtrOffsetCommitRequest())
	req.Group, req.MemberID, req.Generation = group, member, generation
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.Metadata = partition, offset, &metadata
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{rp}}}
	return ask[*kmsg.OffsetCommitResponse](t, c, req).Topics[0].Partitions[0].ErrorCode
}

// committed is a group's offset.
func committed(t testing.TB, c *client, group, topic string, partition int32) (int64, int16) {
	t.Helper()
	req := at(7, kmsg.NewPtrOffsetFetchRequest())
	req.Group = group
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp := ask[*kmsg.OffsetFetchResponse](t, c, req)
	if resp.ErrorCode != 0 {
		return -1, resp.ErrorCode
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, p.ErrorCode
}

// join asks to join, without a member id, in a version that needs none.
func join(group string, sessionMillis int32, protocols int, metadata []byte) *kmsg.JoinGroupRequest {
	req := at(3, kmsg.NewPtrJoinGroupRequest())
	req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = group, sessionMillis, 10_000, "consumer"
	for i := range protocols {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: fmt.Sprint("range", i), Metadata: metadata})
	}
	return req
}

func TestRow23GroupNames(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	for _, n := range []string{"c", "b.c", "a.b.c"} {
		c.create(t, n, 1)
	}
	r.goroutines += 3 * 3 // of the topics
	r.under(t, func() {
		pairs := [][2]string{{"a.b", "c"}, {"a", "b.c"}, {"", "a.b.c"}, {"a", "c"}, {"a.b", "b.c"}}
		for i, p := range pairs {
			if code := commit(t, c, 8, p[0], p[1], 0, int64(100+i), "", "", -1); code != 0 {
				t.Errorf("commit of group %q: %d", p[0], code)
			}
		}
		for i, p := range pairs {
			if offset, code := committed(t, c, p[0], p[1], 0); offset != int64(100+i) || code != 0 {
				t.Errorf("group %q, topic %q: offset %d, error %d", p[0], p[1], offset, code)
			}
		}
		for i, g := range []string{">", "*", " ", "<script>alert(1)</script>", "ü", "a\r\nPUB x 1\r\ny", "$JS.API", "\x00", "=20", strings.Repeat("g", 249), strings.Repeat("g", 1<<15-1), "日本"} {
			if code := commit(t, c, 8, g, "c", 0, int64(i), "", "", -1); code != 0 {
				t.Errorf("commit of group %q: %d", g, code)
				continue
			}
			if offset, code := committed(t, c, g, "c", 0); offset != int64(i) || code != 0 {
				t.Errorf("group %q: offset %d, error %d", g, offset, code)
			}
		}
		for _, v := range []int16{6, 9} {
			r.counted(t, "JoinGroup", answered("JoinGroup", "INVALID_GROUP_ID"), 1, 0, func() {
				if code := ask[*kmsg.JoinGroupResponse](t, c, at(v, join("", 10_000, 1, nil))).ErrorCode; code != 24 {
					t.Errorf("JoinGroup of no name: %d", code)
				}
			})
		}
		// HTTP shows names as data, never as markup.
		res, err := http.Get(r.Admin + "/v1/stream/groups")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || strings.Contains(string(b), "<script>") || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("groups over HTTP: %v, %s", err, res.Header)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	_ = c.Close()
}

func TestRow30Commits(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	r.under(t, func() {
		for _, n := range []int{4097, 1<<15 - 1} {
			for _, v := range []int16{2, 8, 9} {
				r.counted(t, "metadata", answered("OffsetCommit", "OFFSET_METADATA_TOO_LARGE"), 1, 0, func() {
					if code := commit(t, c, v, "g", "good", 0, 7, string(content(n)), "", -1); code != 12 {
						t.Errorf("metadata of %d in v%d: %d", n, v, code)
					}
				})
			}
		}
		if offset, code := committed(t, c, "g", "good", 0); offset != -1 || code != 0 {
			t.Errorf("after refusals: offset %d, error %d", offset, code)
		}
		if code := commit(t, c, 8, "g", "good", 0, 7, string(content(4096)), "", -1); code != 0 {
			t.Errorf("metadata of 4096: %d", code)
		}
		if code := commit(t, c, 8, "g", "good", 0, -5, "", "", -1); code != 0 {
			t.Errorf("offset -5: %d", code)
		}
		j := ask[*kmsg.JoinGroupResponse](t, c, join("member", 10_000, 1, nil))
		if j.ErrorCode != 0 {
			t.Fatalf("join: %d", j.ErrorCode)
		}
		s := at(3, kmsg.NewPtrSyncGroupRequest())
		s.Group, s.MemberID, s.Generation = "member", j.MemberID, j.Generation
		if code := ask[*kmsg.SyncGroupResponse](t, c, s).ErrorCode; code != 0 {
			t.Fatalf("sync: %d", code)
		}
		for _, g := range []int32{j.Generation - 1, j.Generation + 1, 1<<31 - 1, -5} {
			if code := commit(t, c, 8, "member", "good", 0, 1, "", j.MemberID, g); code != 22 && (g >= 0 || code != 25) {
				t.Errorf("generation %d of %d: %d", g, j.Generation, code)
			}
		}
		if code := commit(t, c, 8, "member", "good", 0, 1, "", j.MemberID, j.Generation); code != 0 {
			t.Errorf("right generation: %d", code)
		}
		leave := at(0, kmsg.NewPtrLeaveGroupRequest())
		leave.Group, leave.MemberID = "member", j.MemberID
		ask[*kmsg.LeaveGroupResponse](t, c, leave)
	})
	_ = c.Close()
}

func TestRow31Joins(t *testing.T) {
	r := start(t, "--group-max-size", "20")
	c := r.dial(t)
	refused := func(what, name string, code int16, req *kmsg.JoinGroupRequest) {
		t.Helper()
		r.counted(t, what, answered("JoinGroup", name), 1, 0, func() {
			if got := ask[*kmsg.JoinGroupResponse](t, c, req).ErrorCode; got != code {
				t.Errorf("%s: %d, want %d", what, got, code)
			}
		})
	}
	r.under(t, func() {
		for _, ms := range []int32{1, 0, -1, 5999, 1_800_001, 1<<31 - 1, -1 << 31} {
			refused(fmt.Sprint("session ", ms), "INVALID_SESSION_TIMEOUT", 26, join("g", ms, 1, nil))
		}
		for _, n := range []int{101, 1000, 10_000} {
			refused(fmt.Sprint(n, " protocols"), "INVALID_REQUEST", 42, join("g", 10_000, n, nil))
		}
		refused("8 MiB of metadata", "INVALID_REQUEST", 42, join("g", 10_000, 1, content(8<<20)))
		refused("8 MiB in pieces", "INVALID_REQUEST", 42, join("g", 10_000, 100, content(80<<10)))
		refused("no protocol", "INCONSISTENT_GROUP_PROTOCOL", 23, join("g", 10_000, 0, nil))

		// More members than allowed, each on its own connection. While the first
		// one's generation is replaced, as many others may wait as are allowed.
		before := r.scrape(t)[answered("JoinGroup", "GROUP_MAX_SIZE_REACHED")]
		var cs []*client
		for range 60 {
			m := r.dial(t)
			if err := m.send(join("crowd", 10_000, 1, nil)); err != nil {
				t.Fatal(err)
			}
			cs = append(cs, m)
		}
		r.grown(t, "members above the limit", answered("JoinGroup", "GROUP_MAX_SIZE_REACHED"), before+39)
		for _, m := range cs {
			_ = m.Close()
		}
	})
	_ = c.Close()
}
