package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

var _ admin.Backend = (*server)(nil)

// parts are the store and the gateway as far as they are open.
func (s *server) parts() (store pubsub.Store, gw gateway, draining bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store, s.gw, s.draining
}

// Status implements admin.Backend.
func (s *server) Status() admin.Status {
	store, gw, _ := s.parts()
	st := admin.Status{
		Version:       s.build.Version,
		UptimeSeconds: int64(time.Since(s.started) / time.Second),
		KafkaPort:     portOf(s.kafka[0]),
		NodeID:        int32(s.config.NodeID),
		PubsubURL:     "embedded",
	}
	if s.config.external() {
		st.PubsubURL = logging.RedactURLs(s.config.PubsubURL)
	}
	add := func(name string, ls []net.Listener) {
		for _, l := range ls {
			st.Listeners = append(st.Listeners, admin.Listener{Name: name, Address: l.Addr().String(), Security: "PLAINTEXT"})
		}
	}
	add("kafka", s.kafka)
	add("admin", s.http)
	if len(s.http) > 0 {
		st.AdminPort = portOf(s.http[0])
	}
	if store != nil {
		info := store.Info()
		st.Connected = admin.Link(store.Connected())
		st.NATS = admin.NATS{ServerVersion: info.Version, MaxPayload: info.MaxPayload, MaxMessageBytes: int(s.config.MaxMessage)}
		if info.URL != "" {
			st.PubsubURL = logging.RedactURLs(info.URL)
		}
	}
	if gw != nil {
		f := gw.Facts()
		st.ClusterID, st.NodeID, st.Gateways = f.ClusterID, f.NodeID, f.Gateways
		st.LateTransactions = f.Late
	}
	st.Ready, st.Reasons = s.readiness()
	s.mu.Lock()
	d := s.durable
	st.Warnings = slices.Clone(s.warnings)
	s.mu.Unlock()
	st.Durability = admin.Durability{Level: d.Level, Sentence: d.Sentence, Sync: d.Sync, Note: d.Note}
	return st
}

// awaits is what the start waits for; "" if for nothing in particular.
func (s *server) awaits() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// readiness is what is known without asking the store.
func (s *server) readiness() (ok bool, reasons []string) {
	store, gw, draining := s.parts()
	switch {
	case store == nil:
		return false, []string{cmp.Or(s.awaits(), "the store is being opened")}
	case !store.Connected():
		reasons = append(reasons, "NATS is disconnected")
	}
	if gw == nil {
		return false, append(reasons, cmp.Or(s.awaits(), "state is being loaded"))
	}
	if draining {
		reasons = append(reasons, "draining")
	}
	if _, more := gw.Ready(); len(more) > 0 {
		reasons = append(reasons, more...)
	}
	return len(reasons) == 0, reasons
}

var errStarting = errors.New("the server is starting")

// Topics implements admin.Backend.
func (s *server) Topics(ctx context.Context, name string) ([]admin.Topic, error) {
	_, gw, _ := s.parts()
	if gw == nil {
		return nil, errStarting
	}
	return gw.Topics(ctx, name)
}

// Offsets implements admin.Backend.
func (s *server) Offsets(ctx context.Context, group, topic string) ([]admin.Offset, error) {
	_, gw, _ := s.parts()
	if gw == nil {
		return nil, errStarting
	}
	return gw.Offsets(ctx, group, topic)
}

// Cleaner implements admin.Backend.
func (s *server) Cleaner(ctx context.Context) admin.Compaction {
	_, gw, _ := s.parts()
	if gw == nil {
		return admin.Compaction{Cleaner: admin.Cleaner{State: clean.Unknown, Detail: errStarting.Error()}}
	}
	return gw.Cleaner(ctx)
}

// Compaction implements admin.Backend.
func (s *server) Compaction(ctx context.Context, topic string) (admin.TopicCompaction, error) {
	_, gw, _ := s.parts()
	if gw == nil {
		return admin.TopicCompaction{}, errStarting
	}
	return gw.Compaction(ctx, topic)
}

// Compact implements admin.Backend.
func (s *server) Compact(ctx context.Context, topic string) (admin.TopicCompaction, error) {
	_, gw, _ := s.parts()
	if gw == nil {
		return admin.TopicCompaction{}, errStarting
	}
	return gw.Compact(ctx, topic)
}

// pingTimeout bounds the round trip of a readiness check.
const pingTimeout = 2 * time.Second

// Ready implements admin.Backend.
func (s *server) Ready(ctx context.Context) []admin.Check {
	store, gw, draining := s.parts()
	checks := []admin.Check{{Name: "listeners", OK: gw != nil}, {Name: "nats"}, {Name: "jetstream"}, {Name: "state"}, {Name: "draining", OK: !draining}}
	nats, jetstream, state := &checks[1], &checks[2], &checks[3]
	if store == nil {
		nats.Detail = s.awaits()
	} else {
		nats.OK = store.Connected()
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		if err := store.Ping(ctx); err != nil {
			jetstream.Detail = logging.RedactURLs(err.Error())
		} else {
			jetstream.OK = true
		}
	}
	if gw == nil {
		state.Detail = s.awaits()
	} else {
		var reasons []string
		if state.OK, reasons = gw.Ready(); !state.OK && len(reasons) > 0 {
			state.Detail = reasons[0]
		}
	}
	return checks
}
