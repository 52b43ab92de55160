package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// News of appends come from the stream itself: RePublish sends the headers of
// each stored message to a core subject. That is how a gateway hears of what
// others append, gateways and plain publishers. It is dear: before it stores a
// message the server loads the one before, to name its sequence (stream.go,
// processJetStreamMsg, "grab last sequence": a copy of the whole message, and
// the store keeps its blocks in memory for it). So a store that is alone sends
// none: its user applies its own appends anyway.
//
// Which of the two a stream does is decided when it is made, and mended when it
// is opened the other way: off when its bounds are asked, on before following
// begins. In between a stream may send news that nobody needs, never the reverse.

// news is the RePublish of a log's stream: nil for none.
func (st *Store) news(subject string) *republish {
	if st.cfg.Alone {
		return nil
	}
	return &republish{Source: subject, Destination: st.newsRoot + subject, HeadersOnly: true}
}

// silence makes the stream send no news. It is for speed only: a failure is
// logged and not tried again.
func (l *log) silence(ctx context.Context, si streamInfo) {
	r := si.Config.RePublish
	if r != nil && strings.HasPrefix(r.Destination, l.st.newsRoot) {
		if err := l.st.republish(ctx, l.name, nil); err != nil {
			l.st.logError("a stream still sends news that nobody needs: "+l.name, err)
		}
	}
	l.newsSet.Store(true)
}

// sendNews makes sure that the stream sends news, unless there can be none. A
// stream that does not exist is no error: it is made with them.
func (l *log) sendNews(ctx context.Context) error {
	if l.st.cfg.Alone || l.newsSet.Load() {
		return nil
	}
	si, err := l.st.streamInfo(ctx, l.name)
	if hasCode(err, codeStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("news of %s: %w", l.name, err)
	}
	want := l.st.news(l.subject)
	if r := si.Config.RePublish; r == nil || *r != *want {
		if err := l.st.republish(ctx, l.name, want); err != nil {
			return fmt.Errorf("news of %s: %w", l.name, err)
		}
	}
	l.newsSet.Store(true)
	return nil
}

// republish changes this one setting of a stream. The others go back as they
// came, known to us or not.
func (st *Store) republish(ctx context.Context, name string, to *republish) error {
	var have struct {
		answer
		Config map[string]json.RawMessage `json:"config"`
	}
	if err := st.ask(ctx, st.cfg.APITimeout, "STREAM.INFO."+name, nil, &have); err != nil {
		return err
	}
	delete(have.Config, "republish")
	if to != nil {
		b, err := json.Marshal(to)
		if err != nil {
			return err
		}
		have.Config["republish"] = b
	}
	return st.api(ctx, 3*st.cfg.APITimeout, "STREAM.UPDATE."+name, have.Config, nil)
}
