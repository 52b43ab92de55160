package jetstream

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// Headers of NATS that we send or read.
const (
	hdrExpectedStream  = "Nats-Expected-Stream"
	hdrExpectedLast    = "Nats-Expected-Last-Sequence"
	hdrExpectedSubject = "Nats-Expected-Last-Subject-Sequence"
	hdrStream          = "Nats-Stream"
	hdrSubject         = "Nats-Subject"
	hdrSequence        = "Nats-Sequence"
	hdrTime            = "Nats-Time-Stamp"
	hdrLastSequence    = "Nats-Last-Sequence"
	hdrNumPending      = "Nats-Num-Pending"
	hdrSize            = "Nats-Msg-Size"
	hdrMarker          = "Nats-Marker-Reason"
	hdrKVOperation     = "KV-Operation"
	natsPrefix         = "Nats-"
)

// lastOf returns the last value of a header: the server appends its own behind
// what a publisher may have stored under the same name.
func lastOf(h nats.Header, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func uintOf(h nats.Header, key string) (uint64, bool) {
	n, err := strconv.ParseUint(lastOf(h, key), 10, 64)
	return n, err == nil
}

// strip removes the headers that are NATS's own, in place.
func strip(h nats.Header) pubsub.Header {
	for k := range h {
		if strings.HasPrefix(k, natsPrefix) {
			delete(h, k)
		}
	}
	if len(h) == 0 {
		return nil
	}
	return pubsub.Header(h)
}

// direct turns a Direct Get answer (or republished news) into a message. It
// takes the headers over; ok is false if it is no stored message.
func direct(m *nats.Msg) (msg pubsub.Message, ok bool) {
	seq, ok := uintOf(m.Header, hdrSequence)
	if !ok {
		return msg, false
	}
	t, err := time.Parse(time.RFC3339Nano, lastOf(m.Header, hdrTime))
	if err != nil {
		return msg, false
	}
	msg = pubsub.Message{Seq: pubsub.Seq(seq), Time: t, Data: m.Data, Size: len(m.Data), Release: releaseOf(m)}
	if n, serr := strconv.Atoi(lastOf(m.Header, hdrSize)); serr == nil && len(m.Data) == 0 {
		msg.Size = n
	}
	msg.Header = strip(m.Header)
	return msg, true
}

// releaseOf is for messages that nats.go has not seen: their memory is ours.
func releaseOf(m *nats.Msg) func() {
	if m.Sub != nil {
		return nil
	}
	return release(m.Data)
}

// stored turns a leader's answer into a message.
func stored(sm storedMessage) (pubsub.Message, bool, error) {
	msg := pubsub.Message{Seq: pubsub.Seq(sm.Seq), Time: sm.Time, Data: sm.Data, Size: len(sm.Data)}
	var marker bool
	if len(sm.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(sm.Header)
		if err != nil {
			return msg, false, err
		}
		marker = isMarker(h)
		msg.Header = strip(h)
	}
	return msg, marker, nil
}

// isMarker reports a KV delete marker: by a KV client, or by the server.
func isMarker(h nats.Header) bool {
	switch lastOf(h, hdrKVOperation) {
	case "DEL", "PURGE":
		return true
	}
	return len(h[hdrMarker]) > 0
}

// withHeaders copies h and adds pairs, because h is the caller's.
func withHeaders(h pubsub.Header, pairs ...string) nats.Header {
	out := make(nats.Header, len(h)+len(pairs)/2)
	for k, v := range h {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []string{pairs[i+1]}
	}
	return out
}
