package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// callVersion is the version of the messages of calls that this build sends.
// Fields are added, and unknown ones ignored; their meaning never changes.
const callVersion = 1

// What a message of a call is.
const (
	kindPart    = "part"    // of a request: bytes from At on
	kindCall    = "call"    // the last part: run it, and answer when it has ended
	kindCollect = "collect" // answer once more when it has ended
	kindFetch   = "fetch"   // the answer's bytes from At on
	kindAsk     = "ask"     // what became of IDs; those unknown shall never run
	kindForget  = "forget"  // nobody is interested any more
)

// callHeader precedes what a caller sends: one line of JSON, then data.
type callHeader struct {
	V    int      `json:"v"`
	Kind string   `json:"kind"`
	To   string   `json:"to"` // incarnation it is meant for
	From Identity `json:"from"`
	// Caller is the calling process, in which ID is unique and counts up.
	Caller string   `json:"caller"`
	ID     uint64   `json:"id,omitempty"`
	IDs    []uint64 `json:"ids,omitempty"` // ask
	Method string   `json:"method,omitempty"`
	At     int      `json:"at,omitempty"` // byte position of the data
}

// What a callee says to a message.
const (
	statusOK      = "ok"
	statusDone    = "done"    // the call has ended: Error, or Size bytes of which the data are some
	statusCut     = "cut"     // the call's handler was ended before its time, with an error
	statusOther   = "other"   // that life has ended
	statusUnknown = "unknown" // no such call, or no such method
	statusBusy    = "busy"    // no room
)

// What became of a call, one letter each in the answer to an ask. The last
// two are the asker's own conclusions.
const (
	stateUnknown = 'u' // it did not run and never will
	stateRunning = 'r'
	stateEnded   = 'e' // its answer can be collected
	stateEvicted = 'v' // it may have run; its answer is not kept any more
	stateAbsent  = 'a' // nobody listens, or another life does
	stateSilent  = 's'
)

// answerHeader precedes what a callee sends: one line of JSON, then data.
type answerHeader struct {
	V      int     `json:"v"`
	Status string  `json:"status"`
	Error  *string `json:"error,omitempty"`  // done: what the handler returned
	Size   int     `json:"size,omitempty"`   // done: bytes of the whole answer
	States string  `json:"states,omitempty"` // ask: one letter per id
}

// refused makes the error of a message that was not taken.
func (a answerHeader) refused() error {
	switch a.Status {
	case statusOther:
		return fmt.Errorf("%w: that life has ended", ErrNotDelivered)
	case statusBusy:
		return fmt.Errorf("%w: no room there", ErrNotDelivered)
	}
	return fmt.Errorf("%w: refused there: %s", ErrNotDelivered, a.Status)
}

func encodeCall(h callHeader, data []byte) []byte     { return encodeLine(h, data) }
func encodeAnswer(h answerHeader, data []byte) []byte { return encodeLine(h, data) }

func encodeLine(h any, data []byte) []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return append(append(b, '\n'), data...)
}

func decodeCall(m []byte) (h callHeader, data []byte, err error) {
	data, err = decodeLine(m, &h)
	return h, data, err
}

func decodeAnswer(m []byte) (h answerHeader, data []byte, err error) {
	data, err = decodeLine(m, &h)
	return h, data, err
}

func decodeLine(m []byte, h any) ([]byte, error) {
	line, data, ok := bytes.Cut(m, []byte{'\n'})
	if !ok {
		return nil, fmt.Errorf("message of a call without a header: %d bytes", len(m))
	}
	if err := json.Unmarshal(line, h); err != nil {
		return nil, fmt.Errorf("message of a call: %w", err)
	}
	return data, nil
}
