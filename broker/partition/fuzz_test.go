package partition

import (
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// FuzzDecodeHeader: anyone who may publish can send any header. Whatever is
// decoded as ours encodes to the same.
func FuzzDecodeHeader(f *testing.F) {
	const topic = "AAAAAAAAAAAAAAAAAAAAAA"
	f.Add("v=1 topic="+topic+" seq=7 append=a.1 prev=- base=0 last=2", "len=100 n=3 max=5 at=6 pid=1 epoch=0 first=0 flags=atc txn=1 marker=1 coordinator=2", 100)
	f.Add("v=1 topic="+topic+" seq=7 append=a.1 prev=~6.1 base=9223372036854775807 last=9223372036854775807", "len=2147483647 n=2147483647", -1)
	f.Add("v=2 topic="+topic+" seq=7", "", 0)
	f.Fuzz(func(t *testing.T, log, batch string, size int) {
		m := pubsub.Message{Seq: 7, Time: time.Unix(0, 0), Header: pubsub.Header{headerLog: {log}, headerBatch: {batch}}, Size: size}
		d, err := decodeHeader(topic, &m)
		if err != nil || d.plain {
			return
		}
		again := message(7, encodeHeader(topic, &d), size)
		e, err := decodeHeader(topic, &again)
		d.headers, e.headers = 0, 0
		if err != nil || !equalMeta(d, e) {
			t.Fatalf("%+v became %+v, %v", d, e, err)
		}
		st := newState()
		st.seq, st.next = 6, d.base
		if st.verify(&d) == nil {
			st.apply(&d)
		}
	})
}

// FuzzStoredValues: a record or snapshot that is damaged is an error.
func FuzzStoredValues(f *testing.F) {
	f.Add([]byte(`{"v":1,"stream":"s","first":1,"base":0,"start":0,"snapshot":{"seq":1,"id":"a","chunks":["k"]},"x":1}`))
	f.Add([]byte(`{"v":1,"stream":"s","first":1,"base":0,"start":0,"repaired":7,"resume":[{"from":3,"to":3,"next":2,"base":3},{"from":7,"to":6,"next":6,"base":9}]}`))
	f.Add([]byte(`{"v":1,"seq":3,"producers":[[1,0,5,0,1,0,5]],"index":{"tail":[[0,1]]}}`))
	f.Add([]byte(`{"v":1,"seq":3,"producers":[[1,0,5],[2,0,5]],"txns":[[1,3,0,4,7,5,61],[2,1,-1]],"aborted":[[1,2,3,4]],"aborted_parts":[{"first":0,"last":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil {
			if _, err := r.encode(); err != nil {
				t.Fatal(err)
			}
		}
		var img image
		if unpack(b, &img) == nil {
			if st, err := img.state(); err == nil {
				imageOf(st)
			}
		}
	})
}
