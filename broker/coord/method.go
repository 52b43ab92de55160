package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
)

// Method is a request of type Q, answered by A, that gateways carry out for each
// other on their coordinators C. Both travel as JSON, the errors of an answer as
// codes.
type Method[C, Q, A any] struct {
	Name  string
	Parks bool // it waits for other requests
	// Between says that gateways ask it of each other on their own: it travels also
	// where clients find the owner themselves.
	Between bool
	Local   func(c C, ctx context.Context, q Q) A
	// Errs are where an answer's errors are: its own, and those of its parts. n is
	// how many an answer has that came without those of its parts, else −1.
	Errs func(a *A, n int) []*error
	// Fail is the answer of a request that was not carried out.
	Fail func(q Q, err error) A
}

// Forward runs a request about a key where the key's record is owned, as Route does
// or, where clients find the owner themselves and the request does not travel, as
// Await does. So it must bear repetition. calls may be nil: there is no way to other
// gateways.
func Forward[S State, C, Q, A any](ctx context.Context, r *Runtime[S], calls Caller, travels bool, c C, m *Method[C, Q, A], key string, q Q) A {
	var a A
	local := func(ctx context.Context) error {
		a = m.Local(c, ctx, q)
		return m.elsewhere(&a)
	}
	if calls == nil || !travels && !m.Between {
		if err := r.Await(ctx, key, local); err != nil {
			return m.Fail(q, Refusal(err))
		}
		return a
	}
	err := r.Route(ctx, key, m.Parks, local, func(ctx context.Context, to cluster.Identity) (err error) {
		if a, err = m.Call(ctx, calls, to, q); err != nil {
			return err
		}
		return m.elsewhere(&a)
	})
	if err != nil {
		return m.Fail(q, Refusal(err))
	}
	return a
}

// elsewhere is ErrNotOwner if the record, or one of its keys, was found to have
// another owner.
func (m *Method[C, Q, A]) elsewhere(a *A) error {
	for _, err := range m.Errs(a, -1) {
		if errors.Is(*err, kerr.NotCoordinator) {
			return ErrNotOwner
		}
	}
	return nil
}

// Handle carries the method out on c when other gateways ask, until cancel is
// called. code maps the errors of answers; failures are logged there.
func (m *Method[C, Q, A]) Handle(calls Caller, c C, code func(error) int16) (cancel func()) {
	return calls.Handle(m.Name, func(ctx context.Context, _ cluster.Identity, request []byte) ([]byte, error) {
		var q Q
		if err := json.Unmarshal(request, &q); err != nil {
			return nil, fmt.Errorf("request %s: %w", m.Name, err)
		}
		a := m.Local(c, ctx, q)
		if err := ctx.Err(); err != nil {
			return nil, err // the caller has gone, or we go: this is no answer
		}
		return m.Encode(&a, code)
	})
}

// Call lets another gateway carry out a request. Its error is of the way there
// and back.
func (m *Method[C, Q, A]) Call(ctx context.Context, calls Caller, to cluster.Identity, q Q) (A, error) {
	var none A
	request, err := json.Marshal(q)
	if err != nil {
		return none, fmt.Errorf("request %s: %w", m.Name, err)
	}
	b, err := calls.Call(ctx, to, m.Name, request)
	if err != nil {
		return none, err
	}
	return m.Decode(b)
}

// wireAnswer is an answer on its way.
type wireAnswer struct {
	// Codes of all the answer's errors, in the order of Errs, 0 for none.
	Codes []int16         `json:"codes"`
	Body  json.RawMessage `json:"body"`
}

// Encode writes an answer with the codes of its errors.
func (m *Method[C, Q, A]) Encode(a *A, code func(error) int16) ([]byte, error) {
	var w wireAnswer
	for _, err := range m.Errs(a, -1) {
		var c int16
		if *err != nil {
			c = code(*err)
		}
		w.Codes = append(w.Codes, c)
	}
	var err error
	if w.Body, err = json.Marshal(a); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", m.Name, err)
	}
	return json.Marshal(w)
}

// Decode reads what Encode wrote. An error: it cannot be read.
func (m *Method[C, Q, A]) Decode(b []byte) (a A, err error) {
	var w wireAnswer
	if err := json.Unmarshal(b, &w); err != nil {
		return a, fmt.Errorf("answer to %s: %w", m.Name, err)
	}
	if err := json.Unmarshal(w.Body, &a); err != nil {
		return a, fmt.Errorf("answer to %s: %w", m.Name, err)
	}
	errs := m.Errs(&a, len(w.Codes))
	if len(w.Codes) != len(errs) {
		return a, fmt.Errorf("answer to %s: %d errors of %d", m.Name, len(w.Codes), len(errs))
	}
	for i, c := range w.Codes {
		*errs[i] = kerr.ErrorForCode(c)
	}
	return a, nil
}

// Code makes a function for Handle of one that may be nil: then all but refusals
// is UNKNOWN_SERVER_ERROR.
func Code(code func(error) int16) func(error) int16 {
	if code != nil {
		return code
	}
	return func(err error) int16 {
		if k := (*kerr.Error)(nil); errors.As(err, &k) {
			return k.Code
		}
		return kerr.UnknownServerError.Code
	}
}

// Mend replaces what is not UTF-8 in names that clients chose, as Kafka does when
// it reads them: they are stored, and travel, as JSON, and have to be the same
// everywhere.
func Mend(names ...*string) {
	for _, s := range names {
		if s != nil && !utf8.ValidString(*s) {
			*s = string([]rune(*s))
		}
	}
}
