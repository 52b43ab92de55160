package protocol

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinators asks for keys: one after the other below v4, at once from it.
func coordinators(t *testing.T, b Backend, v int16, kind int8, keys ...string) []kmsg.FindCoordinatorResponseCoordinator {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = kind
	if v >= 4 {
		req.CoordinatorKeys = keys
		resp := asked[*kmsg.FindCoordinatorResponse](t, b, &findCoordinatorAPI, v, req)
		if resp.ErrorCode != 0 {
			t.Errorf("top error %d", resp.ErrorCode)
		}
		return resp.Coordinators
	}
	var all []kmsg.FindCoordinatorResponseCoordinator
	for _, key := range keys {
		req.CoordinatorKey = key
		resp := asked[*kmsg.FindCoordinatorResponse](t, b, &findCoordinatorAPI, v, req)
		all = append(all, kmsg.FindCoordinatorResponseCoordinator{
			Key: key, NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port,
			ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage,
		})
	}
	return all
}

// C-37, C-38: one list of nodes, one choice per group.
func TestFindCoordinatorGroup(t *testing.T) {
	b := &stub{
		nodes: []Node{{ID: 1, Host: "a.example", Port: 9092}, {ID: 4, Host: "::1", Port: 19092}},
		coordinator: func(g string) int32 {
			return map[string]int32{"one": 1, "four": 4, "": 1, "left": 5}[g]
		},
	}
	versions(t, &findCoordinatorAPI, func(t *testing.T, v int16) {
		got := coordinators(t, b, v, 0, "four", "one", "", "left")
		if len(got) != 4 {
			t.Fatalf("%d answers", len(got))
		}
		for i, want := range []struct {
			key  string
			node int32
			host string
			port int32
			code int16
		}{{"four", 4, "::1", 19092, 0}, {"one", 1, "a.example", 9092, 0}, {"", 1, "a.example", 9092, 0}, {"left", -1, "", -1, 15}} {
			c := got[i]
			if c.Key != want.key || c.NodeID != want.node || c.Host != want.host || c.Port != want.port || c.ErrorCode != want.code {
				t.Errorf("key %q: %+v, want %+v", want.key, c, want)
			}
			if want.code == 0 && c.ErrorMessage != nil {
				t.Errorf("key %q: message %q without an error", want.key, *c.ErrorMessage)
			}
		}
	})
	if got := coordinators(t, b, 4, 0); len(got) != 0 {
		t.Errorf("no keys asked, %d answered", len(got))
	}
}

// TestFindCoordinatorTransaction: a transactional id has a coordinator of its own.
func TestFindCoordinatorTransaction(t *testing.T) {
	b := &stub{
		nodes: []Node{{ID: 1, Host: "a.example", Port: 9092}, {ID: 4, Host: "::1", Port: 19092}},
		coordinator: func(k string) int32 {
			return map[string]int32{"id": 1, "txn id": 4, "txn ": 1}[k]
		},
	}
	for v := int16(1); v <= findCoordinatorAPI.max; v++ {
		for i, c := range coordinators(t, b, v, 1, "id", "", "left") {
			if want := []int32{4, 1, -1}[i]; c.NodeID != want || (c.ErrorCode == 15) != (want < 0) {
				t.Errorf("v%d: %+v, want node %d", v, c, want)
			}
		}
	}
	if c := coordinators(t, b, 0, 1, "id")[0]; c.NodeID != 1 {
		t.Errorf("v0 knows groups only: %+v", c)
	}
}

func TestFindCoordinatorRefusals(t *testing.T) {
	const id = "AAAAAAAAAAAAAAAAAAAAAA"
	b := &stub{nodes: []Node{{ID: 1}}} // asked for no group: the stub would panic
	for _, c := range []struct {
		kind int8
		key  string
		text string
	}{
		{2, "g:" + id + ":0", "Share groups are not supported by this broker."},
		{2, "g:with:colons:" + id + ":12", "Share groups are not supported by this broker."},
		{2, "g", `A key of type 2 is group:topicId:partition, not "g".`},
		{2, ":" + id + ":0", `A key of type 2 is group:topicId:partition, not ":` + id + `:0".`},
		{2, "g:" + id + ":-1", `A key of type 2 is group:topicId:partition, not "g:` + id + `:-1".`},
		{2, "g:" + id + ":x", `A key of type 2 is group:topicId:partition, not "g:` + id + `:x".`},
		{2, "g:short:0", `A key of type 2 is group:topicId:partition, not "g:short:0".`},
		{3, "g", "Unknown key type 3."},
		{-1, "g", "Unknown key type -1."},
	} {
		for v := int16(1); v <= findCoordinatorAPI.max; v++ {
			got := coordinators(t, b, v, c.kind, c.key)[0]
			if got.ErrorCode != 42 || got.NodeID != -1 || got.Host != "" || got.Port != -1 || got.Key != c.key {
				t.Errorf("v%d type %d key %q: %+v", v, c.kind, c.key, got)
			}
			if got.ErrorMessage == nil || *got.ErrorMessage == "" {
				t.Errorf("v%d type %d key %q: no text", v, c.kind, c.key)
				continue
			}
			want := c.text
			if c.kind == 2 && v < 6 {
				want = fmt.Sprintf("Key type 2 needs version 6, not %d.", v)
			}
			if *got.ErrorMessage != want {
				t.Errorf("v%d type %d key %q: %q, want %q", v, c.kind, c.key, *got.ErrorMessage, want)
			}
		}
	}
}
