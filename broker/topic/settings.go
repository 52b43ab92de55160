package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// SharedBroker is the broker whose configs stand above the cluster's: the one
// that clients see for all gateways.
const SharedBroker = "1"

// settingsKey is the key of the record in kafka-meta.
const settingsKey = "configs"

// settings is the value of kafka-meta/configs: broker configs that were changed
// while brokers ran. It is never written to: a change makes a new one.
type settings struct {
	V       int                          `json:"v"`
	Cluster map[string]string            `json:"cluster,omitempty"` // for all brokers
	Brokers map[string]map[string]string `json:"brokers,omitempty"` // by id, for one

	rev  pubsub.Rev
	rest map[string]json.RawMessage // fields of later versions, carried through
}

func (s *settings) broker(id string) map[string]string { return s.Brokers[id] }

// of is what was set for one broker, or with "" for all.
func (s *settings) of(id string) map[string]string {
	if id == "" {
		return s.Cluster
	}
	return s.Brokers[id]
}

// with is a copy in which one broker, or with "" all, have other configs.
func (s *settings) with(id string, configs map[string]string) *settings {
	c := *s
	c.V = recordVersion
	if id == "" {
		c.Cluster = configs
		return &c
	}
	c.Brokers = maps.Clone(s.Brokers)
	if c.Brokers == nil {
		c.Brokers = map[string]map[string]string{}
	}
	if c.Brokers[id] = configs; len(configs) == 0 {
		delete(c.Brokers, id)
	}
	return &c
}

func parseSettings(v pubsub.Value) (*settings, error) {
	s := &settings{rev: v.Rev}
	if v.Deleted || v.Rev == 0 {
		return s, nil
	}
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(v.Data, &version); err != nil {
		return nil, fmt.Errorf("broker configs: %w", err)
	}
	if version.V != recordVersion {
		return nil, fmt.Errorf("broker configs, v%d: %w", version.V, errFormat)
	}
	if err := json.Unmarshal(v.Data, s); err != nil {
		return nil, fmt.Errorf("broker configs: %w", err)
	}
	if err := json.Unmarshal(v.Data, &s.rest); err != nil {
		return nil, fmt.Errorf("broker configs: %w", err)
	}
	for _, f := range []string{"v", "cluster", "brokers"} {
		delete(s.rest, f)
	}
	return s, nil
}

func (s *settings) encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil || len(s.rest) == 0 {
		return b, err
	}
	all := maps.Clone(s.rest)
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// follow keeps the broker configs up to date until ctx ends.
func (ts *Topics) follow(ctx context.Context, synced func()) error {
	if ts.deps.Settings == nil {
		synced()
		<-ctx.Done()
		return nil
	}
	return ts.deps.Settings.Watch(ctx, pubsub.WatchOptions{Patterns: []string{settingsKey}, Synced: synced}, func(v pubsub.Value) error {
		ts.applySettings(v)
		return nil
	})
}

// applySettings takes broker configs in and tells those who follow topics: the
// configs of every topic may have changed.
func (ts *Topics) applySettings(v pubsub.Value) {
	ts.applying.Lock()
	defer ts.applying.Unlock()
	if v.Rev <= ts.dynamic.Load().rev {
		return
	}
	s, err := parseSettings(v)
	if err != nil {
		ts.deps.Logger.Error("broker configs are unreadable; the last known stay in force", logging.Error, err)
		return
	}
	ts.dynamic.Store(s)
	ts.mu.RLock()
	listeners := ts.onChange
	ts.mu.RUnlock()
	for _, t := range ts.Known() {
		for _, fn := range listeners {
			fn(t, t)
		}
	}
}

// loadSettings asks the store's leader.
func (ts *Topics) loadSettings(ctx context.Context) (*settings, error) {
	if ts.deps.Settings == nil {
		return ts.dynamic.Load(), nil
	}
	v, err := ts.deps.Settings.Get(ctx, settingsKey)
	if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return nil, fmt.Errorf("look for broker configs: %w", err)
	}
	v.Deleted = err != nil
	s, err := parseSettings(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	}
	ts.applySettings(v)
	return s, nil
}
