package history

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Recorder collects a history. It is safe for concurrent use. Each operation
// begins with Begin, before anything is sent, and is recorded with that span
// after its answer came, or after the client gave up.
type Recorder struct {
	mu   sync.Mutex // guards: all below
	tick int64
	h    History
}

// Begin starts an operation.
func (r *Recorder) Begin() Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	return Span{Call: r.tick, Began: time.Now()}
}

// end closes a span and appends what belongs to it.
func (r *Recorder) end(s *Span, add func(h *History)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	if s.Call == 0 { // an event rather than an operation
		s.Call, s.Began = r.tick, time.Now()
		r.tick++
	}
	s.Return, s.Ended = r.tick, time.Now()
	add(&r.h)
}

// Send records a send.
func (r *Recorder) Send(s Send) { r.end(&s.Span, func(h *History) { h.Sends = append(h.Sends, s) }) }

// Poll records an answer with records. It keeps p.Records.
func (r *Recorder) Poll(p Poll) { r.end(&p.Span, func(h *History) { h.Polls = append(h.Polls, p) }) }

// Seek records a new position; it needs no Begin.
func (r *Recorder) Seek(s Seek) { r.end(&s.Span, func(h *History) { h.Seeks = append(h.Seeks, s) }) }

// End records an answer about a log's end.
func (r *Recorder) End(e End) { r.end(&e.Span, func(h *History) { h.Ends = append(h.Ends, e) }) }

// Deletion records a deletion of records.
func (r *Recorder) Deletion(d Deletion) {
	r.end(&d.Span, func(h *History) { h.Deletions = append(h.Deletions, d) })
}

// Commit records a commit of one offset.
func (r *Recorder) Commit(c Commit) {
	r.end(&c.Span, func(h *History) { h.Commits = append(h.Commits, c) })
}

// Committed records an answer about a committed offset.
func (r *Recorder) Committed(c Committed) {
	r.end(&c.Span, func(h *History) { h.Committed = append(h.Committed, c) })
}

// Assignment records what a member was given. It keeps a.Logs.
func (r *Recorder) Assignment(a Assignment) {
	r.end(&a.Span, func(h *History) { h.Assignments = append(h.Assignments, a) })
}

// Final records the last read of a log. It keeps f.Records.
func (r *Recorder) Final(f Final) {
	r.end(&f.Span, func(h *History) { h.Finals = append(h.Finals, f) })
}

// History is what was recorded so far; recording may go on.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	h.Sends, h.Polls, h.Seeks = slices.Clone(h.Sends), slices.Clone(h.Polls), slices.Clone(h.Seeks)
	h.Ends, h.Deletions = slices.Clone(h.Ends), slices.Clone(h.Deletions)
	h.Commits, h.Committed = slices.Clone(h.Commits), slices.Clone(h.Committed)
	h.Assignments, h.Finals = slices.Clone(h.Assignments), slices.Clone(h.Finals)
	return &h
}

// Save writes a history to a file, as gzipped JSON, for Load.
func (h *History) Save(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("save history: %w", err)
	}
	z := gzip.NewWriter(f)
	err = json.NewEncoder(z).Encode(h)
	for _, close := range []func() error{z.Close, f.Close} {
		if cerr := close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return fmt.Errorf("save history: %w", err)
	}
	return nil
}

// Load reads a history that Save has written.
func Load(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load history: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("load history %s: %w", path, err)
	}
	h := &History{}
	if err := json.NewDecoder(z).Decode(h); err != nil {
		return nil, fmt.Errorf("load history %s: %w", path, err)
	}
	return h, nil
}
