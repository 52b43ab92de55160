package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// Op is what happens to one config (Kafka's AlterConfigOp.OpType).
type Op int8

// Operations.
const (
	Set      Op = 0
	Unset    Op = 1 // DELETE: the inherited value is in force again
	Append   Op = 2 // to a list, what is not in it
	Subtract Op = 3 // from a list
)

// Change is one change of one config.
type Change struct {
	Name  string
	Op    Op
	Value *string // ignored by Unset
}

// Alteration is all that one request wants of one resource. It is carried out
// whole or not at all.
type Alteration struct {
	Changes []Change
	// Replace sets exactly what Changes (all of them Set) say: what they leave
	// out is unset (AlterConfigs).
	Replace bool
	// ValidateOnly checks everything and changes nothing.
	ValidateOnly bool
}

// attempts bounds the rounds that a change may lose to others.
const attempts = 10

// giveWay waits after a lost round, longer each time, so that one gateway with many
// changes of a resource does not win all rounds against another.
func giveWay(ctx context.Context, round int) error {
	t := time.NewTimer(time.Duration(1+rand.IntN(2<<min(round, 6))) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check refuses (INVALID_REQUEST) what no resource could mean.
func (a Alteration) check() error {
	var null []string
	seen := make(map[string]bool, len(a.Changes))
	for _, c := range a.Changes {
		switch {
		case c.Op < Set || c.Op > Subtract:
			return refuse(kerr.InvalidRequest, "Unknown operation %d for configuration %s", c.Op, c.Name)
		case seen[c.Name]:
			return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		case c.Value == nil && c.Op != Unset:
			null = append(null, c.Name)
		}
		seen[c.Name] = true
	}
	if null != nil {
		return refuse(kerr.InvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
	}
	return nil
}

// apply gives the configs after the changes. present is the value that a list
// begins with where none is set; ok is false for what is no list.
func (a Alteration) apply(old map[string]string, present func(name string) (value string, ok bool), noList func(c Change) error) (map[string]string, error) {
	next := make(map[string]string, len(old)+len(a.Changes))
	if !a.Replace {
		maps.Copy(next, old)
	}
	for _, c := range a.Changes {
		switch c.Op {
		case Set:
			next[c.Name] = *c.Value
		case Unset:
			delete(next, c.Name)
		default:
			now, isList := present(c.Name)
			if !isList {
				return nil, noList(c)
			}
			if v, ok := next[c.Name]; ok {
				now = v
			}
			parts := distinct(list(now))
			if c.Op == Append && len(parts) > 0 && len(list(*c.Value)) == 0 {
				parts = append(parts, "") // which no list may have, as in Kafka
			}
			for _, p := range list(*c.Value) {
				i := slices.Index(parts, p)
				switch {
				case c.Op == Append && i < 0:
					parts = append(parts, p)
				case c.Op == Subtract && i >= 0:
					parts = slices.Delete(parts, i, i+1)
				}
			}
			now = strings.Join(parts, ",")
			if c.Op == Append && len(now) > maxValue {
				return nil, refuse(kerr.InvalidConfig, "The value of configuration %s would have %d bytes, %d are allowed.", c.Name, len(now), maxValue)
			}
			next[c.Name] = now
		}
	}
	return next, nil
}

// noList refuses to append to, or subtract from, what is no list.
func noList(c Change) error {
	op := "APPEND"
	if c.Op == Subtract {
		op = "SUBTRACT"
	}
	return refuse(kerr.InvalidConfig, "Can't %s to key %s because its type is not LIST.", op, c.Name)
}

// maxValue is the longest value, as on the wire: appending to a list must not make
// one that could not be set, nor told.
const maxValue = math.MaxInt16

// missing is what Kafka's controller says of a topic that is not there.
func missing(name string) error {
	return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
}

// Alter changes the configs of this very incarnation of a topic. When it has
// succeeded, this gateway obeys them, and the others within a second.
//
// Refusals: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
func (ts *Topics) Alter(ctx context.Context, t *Topic, a Alteration) error {
	if err := a.check(); err != nil {
		return err
	}
	static := []layer{{FromStatic, ts.static(nil)}}
	key := pubsub.Token(t.Name)
	// One at a time in this process: only other gateways can win a round. It is not
	// the key itself, which a growth may hold for long.
	turn := "\x00" + key
	if err := ts.claim(ctx, turn); err != nil {
		return err
	}
	defer ts.end(turn)
	lives := ts.unbroken()
	for round := range attempts {
		r, _, err := ts.load(ctx, key)
		if err != nil {
			return err
		}
		if r == nil || r.ID != t.ID || r.State != active {
			return missing(t.Name)
		}
		configs, err := a.apply(r.Configs, func(name string) (string, bool) {
			k := byKey[name]
			if k == nil || k.typ != typeList {
				return "", false
			}
			return inherited(k, static), true
		}, noList)
		if err != nil {
			return err
		}
		if err := checkConfigs(configs); err != nil {
			return err
		}
		// What an earlier store or version took stays as it is.
		if err := checkLimits(configs, func(name string) bool { return configs[name] != r.Configs[name] }, largest(ts.deps.Store), r.Replicas); err != nil {
			return err
		}
		if a.ValidateOnly || ts.needless(configs, r.Configs) {
			return nil
		}
		next := r.with(active)
		next.Configs = configs
		killpoint.At("configs.checked")
		if _, err = ts.put(ctx, key, next, r.rev); err == nil {
			killpoint.At("configs.stored")
			return nil
		}
		if !errors.Is(err, pubsub.ErrConflict) {
			return fmt.Errorf("alter topic %s: %w", t.Name, err)
		}
		if err := cmp.Or(lives(ctx), giveWay(ctx, round)); err != nil {
			return err
		}
	}
	return fmt.Errorf("alter topic %s: %w", t.Name, pubsub.ErrConflict)
}

// needless reports that configs need not be written. On several replicas they always
// are: a leader that woke from a freeze may show what was before a change by another
// gateway, and that nothing is to be done is proven by the write.
func (ts *Topics) needless(configs, stored map[string]string) bool {
	return ts.config.Replicas <= 1 && maps.Equal(configs, stored)
}

// AlterBroker changes the configs of one broker, or with the empty id of all.
// Only what is obeyed, or means nothing here and does no harm, can be changed.
//
// Refusals, as Kafka's (ConfigAdminManager.validateBrokerConfigChange):
// INVALID_REQUEST for read-only keys and bad values, INVALID_CONFIG for append to
// what is no list; and INVALID_CONFIG for unknown keys, which Kafka keeps for
// plugins.
func (ts *Topics) AlterBroker(ctx context.Context, id string, a Alteration) error {
	if err := a.check(); err != nil {
		return err
	}
	static := ts.static(nil)
	in := section{nil, ""}
	if id != "" {
		in = section{inBrokers, id}
	}
	return ts.alterSettings(ctx, in, a.ValidateOnly, func(old map[string]string) (map[string]string, error) {
		configs, err := a.apply(old, func(name string) (string, bool) {
			k := brokerByKey[name]
			if k == nil || k.typ != typeList {
				return "", false
			}
			if v, ok := static[name]; ok {
				return v, true
			}
			return k.def, true
		}, func(c Change) error {
			op := "append"
			if c.Op == Subtract {
				op = "subtract"
			}
			return refuse(kerr.InvalidConfig, "Config value %s is not allowed for config key: %s", op, c.Name)
		})
		if err != nil {
			return nil, err
		}
		return configs, ts.checkBroker(configs, old)
	})
}

// checkBroker checks what is new among a broker's configs.
func (ts *Topics) checkBroker(configs, old map[string]string) error {
	var fixed []string
	names := slices.Sorted(maps.Keys(configs))
	for _, name := range names {
		if v, ok := old[name]; ok && v == configs[name] {
			continue
		}
		if brokerByKey[name] != nil && dynamic[name] == nil {
			fixed = append(fixed, name)
		}
	}
	if fixed != nil {
		return refuse(kerr.InvalidRequest, "Cannot update these configs dynamically: [%s]", strings.Join(fixed, ", "))
	}
	for _, name := range names {
		v, was := configs[name], old[name]
		if _, ok := old[name]; ok && v == was {
			continue
		}
		check := dynamic[name]
		if check == nil {
			return refuse(kerr.InvalidConfig, "Unknown broker config name: %s", name)
		}
		if err := check(v); err != nil {
			return refuse(kerr.InvalidRequest, "%s", reason(name, v, err))
		}
		if n, most := number64(map[string]string{maxMessageBytes: v}, maxMessageBytes), largest(ts.deps.Store); name == "message.max.bytes" && n > int64(most) {
			return refuse(kerr.InvalidRequest, "Invalid value %s for configuration %s: the store takes at most %d (raise max_payload of the NATS server)", v, name, most)
		}
	}
	return nil
}
