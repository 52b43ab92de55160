package jetstream

import (
	"context"
	"fmt"
	"time"
)

// Probe is what a server says of itself and of our account, for an operator.
type Probe struct {
	Version  string
	Cluster  string // name; "" if not clustered
	Servers  int    // known servers of the cluster, at least 1
	APILevel int    // of JetStream; 0 before 2.11
	// Of the account: what is used and what is allowed; -1 is no limit.
	Streams, MaxStreams int64
	Storage, MaxStorage int64 // bytes of file storage
	Memory, MaxMemory   int64 // bytes of memory storage
	RTT                 time.Duration
	// Ahead is how far our clock is ahead of the server's, give or take half a
	// RTT. Only a stream tells the time: it is known if there is one.
	Ahead      time.Duration
	AheadKnown bool
	// BelowFloor: the version lacks security fixes.
	BelowFloor bool
	Floor      string // versions from which on it does not
}

// Probe asks the server. It changes nothing.
func (st *Store) Probe(ctx context.Context) (Probe, error) {
	nc := st.control.nc
	v, err := parseVersion(nc.ConnectedServerVersion())
	p := Probe{
		Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName(), Servers: max(1, len(nc.DiscoveredServers())),
		BelowFloor: err == nil && v.belowFloor(), Floor: fmt.Sprintf("%s, %s or a newer line", floor212, floor214),
	}
	var info accountInfo
	began := time.Now()
	if err := st.ask(ctx, st.cfg.APITimeout, "INFO", nil, &info); err != nil {
		return p, fmt.Errorf("ask for account info: %w", readError(err))
	}
	p.RTT = time.Since(began)
	p.Memory, p.Storage, p.Streams, p.APILevel = info.Memory, info.Storage, info.Streams, info.API.Level
	p.MaxMemory, p.MaxStorage, p.MaxStreams = info.Limits.MaxMemory, info.Limits.MaxStorage, info.Limits.MaxStreams
	return p, st.probeClock(ctx, &p)
}

// probeClock compares clocks by what a stream's info says of the time it was
// made at; the quickest of three answers counts.
func (st *Store) probeClock(ctx context.Context, p *Probe) error {
	var names struct {
		answer
		Streams []string `json:"streams"`
	}
	if err := st.ask(ctx, st.cfg.APITimeout, "STREAM.NAMES", struct {
		Offset int `json:"offset"`
	}{0}, &names); err != nil {
		return fmt.Errorf("list streams: %w", readError(err))
	}
	if len(names.Streams) == 0 {
		return nil
	}
	best := time.Duration(-1)
	for range 3 {
		var si struct {
			answer
			Now time.Time `json:"ts"`
		}
		began := time.Now()
		err := st.ask(ctx, st.cfg.APITimeout, "STREAM.INFO."+names.Streams[0], nil, &si)
		took := time.Since(began)
		if err != nil || si.Now.IsZero() {
			continue
		}
		if best < 0 || took < best {
			best = took
			p.Ahead, p.AheadKnown = began.Add(took/2).Round(0).Sub(si.Now), true
		}
	}
	return nil
}

// HasTable reports whether a table exists, without making it.
func (st *Store) HasTable(ctx context.Context, name string) (bool, error) {
	_, err := st.streamInfo(ctx, "KV_"+name)
	switch {
	case err == nil:
		return true, nil
	case hasCode(err, codeStreamNotFound):
		return false, nil
	}
	return false, fmt.Errorf("look for table %s: %w", name, readError(err))
}
