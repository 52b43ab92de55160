package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

// FuzzCallMessages: whoever may publish under the prefix can send a gateway
// anything in any order. It answers each message with something that can be read,
// and keeps no more than it is allowed to. Messages are separated by zero bytes.
func FuzzCallMessages(f *testing.F) {
	from := Identity{Node: 2, Incarnation: "A"}
	message := func(h callHeader, data string) []byte {
		h.V, h.From, h.Caller = callVersion, from, "c"
		return encodeCall(h, []byte(data))
	}
	add := func(ms ...[]byte) { f.Add(bytes.Join(ms, []byte{0})) }
	add(message(callHeader{Kind: kindPart, ID: 1}, "ab"), message(callHeader{Kind: kindPart, ID: 1, At: 2}, "cd"),
		message(callHeader{Kind: kindCall, ID: 1, At: 4, Method: "echo"}, "e"), message(callHeader{Kind: kindFetch, ID: 1, At: 3}, ""),
		message(callHeader{Kind: kindCollect, ID: 1}, ""), message(callHeader{Kind: kindForget, ID: 1}, ""))
	add(message(callHeader{Kind: kindAsk, IDs: []uint64{1, 2, 2}}, ""), message(callHeader{Kind: kindCall, ID: 2, Method: "echo"}, ""))
	add(message(callHeader{Kind: kindPart, ID: 1}, "ab"), message(callHeader{Kind: kindPart, ID: 1, At: 1}, "b"),
		message(callHeader{Kind: kindAsk, IDs: []uint64{1}}, ""), message(callHeader{Kind: kindCall, ID: 1, At: 2, Method: "echo"}, ""))
	add(message(callHeader{Kind: kindCall, ID: 3, Method: "nobody's"}, ""), message(callHeader{Kind: kindCall, ID: 4, Method: "echo", At: -1}, ""),
		message(callHeader{Kind: kindFetch, ID: 4, At: 1 << 40}, ""))
	add([]byte("{}\n"), []byte("no line"), []byte("{\"v\":1,\"kind\":7}\n"), encodeAnswer(answerHeader{V: 1, Status: statusDone, Size: -1}, []byte("x")))
	f.Fuzz(func(t *testing.T, in []byte) {
		client := memory.NewServer(memory.Config{}).Client(memory.Faults{})
		defer client.Close()
		c := New(Config{}, Deps{Store: client, Logger: slog.New(slog.DiscardHandler)})
		d := c.desk
		d.room = 1 << 10
		cancel := c.Handle("echo", func(_ context.Context, _ Identity, request []byte) ([]byte, error) { return request, nil })
		defer cancel()
		defer d.close()
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		for m := range bytes.SplitSeq(in, []byte{0}) {
			if h, data, err := decodeCall(m); err == nil {
				sameCall(t, h, data)
				h.To = "" // us, who have not joined
				m = encodeCall(h, data)
			}
			if h, data, err := decodeAnswer(m); err == nil {
				sameAnswer(t, h, data)
			}
			h, _, err := decodeAnswer(d.serve(ctx, m))
			if err != nil || h.Status == "" || h.V != callVersion {
				t.Fatalf("%q is answered by %+v, %v", m, h, err)
			}
			d.mu.Lock()
			parts, kept, large := 0, 0, 0
			for _, in := range d.calls {
				switch {
				case in.state == stateParts:
					parts += len(in.request)
				case in.state == stateRunning:
				case len(in.answer) > callPart:
					large += len(in.answer)
				default:
					kept += len(in.answer) + entryBytes
				}
			}
			if parts != d.parts || kept != d.kept || large != d.large || parts > d.room || kept > keepBytes || large > d.room {
				t.Fatalf("%d bytes of parts are counted as %d, %d kept as %d, %d large ones as %d", parts, d.parts, kept, d.kept, large, d.large)
			}
			d.mu.Unlock()
		}
	})
}

func sameCall(t *testing.T, h callHeader, data []byte) {
	t.Helper()
	again, rest, err := decodeCall(encodeCall(h, data))
	if len(h.IDs) == 0 {
		h.IDs, again.IDs = nil, nil
	}
	if err != nil || !reflect.DeepEqual(h, again) || !bytes.Equal(data, rest) {
		t.Fatalf("%+v became %+v, %v", h, again, err)
	}
}

func sameAnswer(t *testing.T, h answerHeader, data []byte) {
	t.Helper()
	again, rest, err := decodeAnswer(encodeAnswer(h, data))
	if err != nil || !reflect.DeepEqual(h, again) || !bytes.Equal(data, rest) {
		t.Fatalf("%+v became %+v, %v", h, again, err)
	}
}
