package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// The parts of JetStream's API messages that we use. Own types rather than
// nats.go's, so that what we send is exactly what stands here whatever the
// library's version adds.

type republish struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
	HeadersOnly bool   `json:"headers_only,omitempty"`
}

type streamConfig struct {
	Name              string            `json:"name"`
	Subjects          []string          `json:"subjects"`
	Retention         string            `json:"retention"`
	MaxConsumers      int               `json:"max_consumers"`
	MaxMsgs           int64             `json:"max_msgs"`
	MaxBytes          int64             `json:"max_bytes"`
	MaxMsgsPerSubject int64             `json:"max_msgs_per_subject"`
	MaxMsgSize        int32             `json:"max_msg_size"`
	MaxAge            time.Duration     `json:"max_age"`
	Discard           string            `json:"discard"`
	Storage           string            `json:"storage"`
	Replicas          int               `json:"num_replicas"`
	Duplicates        time.Duration     `json:"duplicate_window,omitempty"`
	AllowDirect       bool              `json:"allow_direct"`
	AllowRollup       bool              `json:"allow_rollup_hdrs,omitempty"`
	DenyDelete        bool              `json:"deny_delete,omitempty"`
	RePublish         *republish        `json:"republish,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
}

type streamState struct {
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	First    uint64    `json:"first_seq"`
	Last     uint64    `json:"last_seq"`
	LastTime time.Time `json:"last_ts"`
}

// answer is what all answers have in common.
type answer struct {
	Error *apiError `json:"error"`
}

func (a *answer) failure() *apiError { return a.Error }

type answerer interface{ failure() *apiError }

type streamInfo struct {
	answer
	Config  streamConfig `json:"config"`
	Created time.Time    `json:"created"`
	State   streamState  `json:"state"`
	Cluster *struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Current bool          `json:"current"`
			Offline bool          `json:"offline"`
			Active  time.Duration `json:"active"` // since it was last heard of
			Lag     uint64        `json:"lag"`    // entries that it has not confirmed
		} `json:"replicas"`
	} `json:"cluster"`
}

type consumerConfig struct {
	Name              string        `json:"name"`
	DeliverPolicy     string        `json:"deliver_policy"`
	OptStartSeq       uint64        `json:"opt_start_seq,omitempty"`
	AckPolicy         string        `json:"ack_policy"`
	ReplayPolicy      string        `json:"replay_policy"`
	FilterSubject     string        `json:"filter_subject,omitempty"`
	FilterSubjects    []string      `json:"filter_subjects,omitempty"`
	HeadersOnly       bool          `json:"headers_only,omitempty"`
	InactiveThreshold time.Duration `json:"inactive_threshold,omitempty"`
	Replicas          int           `json:"num_replicas"`
	MemoryStorage     bool          `json:"mem_storage,omitempty"`
}

type storedMessage struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// askEvery is how long a question waits before it is asked again: in a cluster
// nobody answers while there is no leader, and one who was asked before an election
// does not answer after it.
const askEvery = time.Second

// ask is api for calls that change nothing when they are made twice.
func (st *Store) ask(ctx context.Context, timeout time.Duration, subject string, req any, resp answerer) error {
	every := timeout
	if st.clustered {
		every = askEvery
	}
	return st.apiAgain(ctx, timeout, every, subject, req, resp)
}

// api makes one JetStream API call on the control connection: req is JSON (nil
// for none), the answer is decoded into resp unless that is nil. Errors: those
// of conn.call, *apiError as it is.
func (st *Store) api(ctx context.Context, timeout time.Duration, subject string, req any, resp answerer) error {
	return st.apiAgain(ctx, timeout, timeout, subject, req, resp)
}

func (st *Store) apiAgain(ctx context.Context, timeout, every time.Duration, subject string, req any, resp answerer) error {
	m := &nats.Msg{Subject: st.apiPrefix + subject}
	if req != nil {
		b, err := json.Marshal(req)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
		m.Data = b
	}
	select {
	case st.apiSlots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	defer func() { <-st.apiSlots }()
	a, err := st.control.callAgain(ctx, m, timeout, every, nil)
	if err != nil {
		return err
	}
	if resp == nil {
		resp = &answer{}
	}
	if err := json.Unmarshal(a.Data, resp); err != nil {
		return fmt.Errorf("%s: answer: %w", subject, err)
	}
	if e := resp.failure(); e != nil {
		if e.Code == 429 || e.Code == 503 {
			st.metrics.apiRefused.Inc()
		}
		return e
	}
	return nil
}

// streamInfo asks the stream's leader.
func (st *Store) streamInfo(ctx context.Context, name string) (streamInfo, error) {
	var si streamInfo
	err := st.ask(ctx, st.cfg.APITimeout, "STREAM.INFO."+name, nil, &si)
	return si, err
}

// leaderGet names the message that a stream's leader is asked for: one of {"seq"},
// {"seq", "next_by_subj"}, {"last_by_subj"}.
type leaderGet struct {
	Seq  uint64 `json:"seq,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
	Next string `json:"next_by_subj,omitempty"`
}

func (st *Store) getFromLeader(ctx context.Context, name string, req leaderGet) (storedMessage, error) {
	var resp struct {
		answer
		Message *storedMessage `json:"message"`
	}
	err := st.ask(ctx, st.cfg.APITimeout, "STREAM.MSG.GET."+name, req, &resp)
	if err == nil && resp.Message == nil {
		err = fmt.Errorf("get from %s: answer holds neither a message nor an error", name)
	}
	if err != nil {
		return storedMessage{}, err
	}
	return *resp.Message, nil
}
