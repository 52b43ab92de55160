package topic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// settingsKey is the key of the record in kafka-meta.
const settingsKey = "configs"

// maxSettings bounds the record, which every gateway keeps in memory and which
// must fit into one message of the store: clients may name groups and
// subscriptions as they like.
const maxSettings = 256 << 10

// settings is the value of kafka-meta/configs: broker configs that were changed
// while brokers ran, and configs of groups and of client metrics. It is never
// written to: a change makes a new one.
type settings struct {
	V       int                          `json:"v"`
	Cluster map[string]string            `json:"cluster,omitempty"` // for all brokers
	Brokers map[string]map[string]string `json:"brokers,omitempty"` // by id, for one
	Groups  map[string]map[string]string `json:"groups,omitempty"`  // by group
	Metrics map[string]map[string]string `json:"metrics,omitempty"` // by subscription

	rev  pubsub.Rev
	rest map[string]json.RawMessage // fields of later versions, carried through
}

func (s *settings) broker(id string) map[string]string { return s.Brokers[id] }

// section is a part of the settings: what was set of one resource.
type section struct {
	all  func(*settings) *map[string]map[string]string // nil: of all brokers
	name string
}

func (s section) of(all *settings) map[string]string {
	if s.all == nil {
		return all.Cluster
	}
	return (*s.all(all))[s.name]
}

// with is a copy of all in which the section has other configs.
func (s section) with(all *settings, configs map[string]string) *settings {
	c := *all
	c.V = recordVersion
	if s.all == nil {
		c.Cluster = configs
		return &c
	}
	m := s.all(&c)
	if *m = maps.Clone(*m); *m == nil {
		*m = map[string]map[string]string{}
	}
	if (*m)[s.name] = configs; len(configs) == 0 {
		delete(*m, s.name)
	}
	return &c
}

func inBrokers(s *settings) *map[string]map[string]string { return &s.Brokers }
func inGroups(s *settings) *map[string]map[string]string  { return &s.Groups }
func inMetrics(s *settings) *map[string]map[string]string { return &s.Metrics }

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
	for _, f := range []string{"v", "cluster", "brokers", "groups", "metrics"} {
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
	old := ts.dynamic.Swap(s)
	if maps.Equal(old.Cluster, s.Cluster) && maps.EqualFunc(old.Brokers, s.Brokers, maps.Equal[map[string]string, map[string]string]) {
		return
	}
	ts.mu.RLock()
	listeners := ts.onChange
	ts.mu.RUnlock()
	for _, t := range ts.Known() {
		for _, fn := range listeners {
			fn(t, t)
		}
	}
}

// alterSettings changes one section: what it is to be, from what it is, says
// next.
func (ts *Topics) alterSettings(ctx context.Context, in section, validateOnly bool, next func(old map[string]string) (map[string]string, error)) error {
	// One at a time in this process: only other gateways can win a round.
	const key = "\x00configs" // nobody's key
	if err := ts.claim(ctx, key); err != nil {
		return err
	}
	defer ts.end(key)
	lives := ts.unbroken()
	for round := range attempts {
		s, err := ts.loadSettings(ctx)
		if err != nil {
			return err
		}
		old := in.of(s)
		configs, err := next(old)
		if err != nil {
			return err
		}
		now := in.with(s, configs)
		data, err := now.encode()
		if err != nil {
			return err
		}
		if grown := !maps.Equal(configs, old) && size(configs)+len(in.name) > size(old); grown && len(data) > maxSettings {
			return refuse(kerr.PolicyViolation, "There are more configs of brokers, groups and client metrics than are kept: %d bytes, the limit is %d.", len(data), maxSettings)
		}
		if validateOnly || ts.needless(configs, old) {
			return nil
		}
		if ts.deps.Settings == nil {
			return fmt.Errorf("alter configs: %w: no table", pubsub.ErrUnavailable)
		}
		rev, err := pubsub.Put(ctx, ts.deps.Settings, pubsub.Write{Key: settingsKey, Data: data, Expect: s.rev})
		if err == nil {
			ts.applySettings(pubsub.Value{Key: settingsKey, Data: data, Rev: rev})
			return nil
		}
		if !errors.Is(err, pubsub.ErrConflict) {
			return fmt.Errorf("alter configs: %w", err)
		}
		if err := cmp.Or(lives(ctx), giveWay(ctx, round)); err != nil {
			return err
		}
	}
	return fmt.Errorf("alter configs: %w", pubsub.ErrConflict)
}

func size(configs map[string]string) (n int) {
	for k, v := range configs {
		n += len(k) + len(v)
	}
	return n
}

// loadSettings asks the store's leader. Older settings than are known are an error,
// as in load: a change to what they say would be no change, and not made.
func (ts *Topics) loadSettings(ctx context.Context) (*settings, error) {
	if ts.deps.Settings == nil {
		return ts.dynamic.Load(), nil
	}
	v, err := ts.deps.Settings.Get(ctx, settingsKey)
	if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return nil, fmt.Errorf("look for broker configs: %w", err)
	}
	if known := ts.dynamic.Load().rev; v.Rev < known {
		return nil, fmt.Errorf("look for broker configs: %w: the leader knows of revision %d only, %d is stored", pubsub.ErrUnavailable, v.Rev, known)
	}
	v.Deleted = err != nil
	s, err := parseSettings(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	}
	ts.applySettings(v)
	return s, nil
}
