package cluster

import "time"

// What is known here of calls that have ended, or have not begun, is kept for
// callers that ask, within bounds, and is let go of in time.

const (
	// keepCall is how long an answer is kept for a caller that may not have got
	// it, and keepBytes what all of them take at most, large ones aside.
	keepCall  = 15 * time.Second
	keepBytes = 8 << 20
	// entryBytes is reckoned for a call beside its data.
	entryBytes = 256
	// callLease is how long a call goes on whose caller does not ask after it.
	callLease = 15 * time.Second
)

// endLocked keeps a call that has ended for a while, and lets older ones go.
func (d *desk) endLocked(in *incoming, state byte) {
	in.state, in.seen = state, time.Now()
	in.at = d.ended.PushBack(in)
	d.keepLocked(in, 1)
	for d.kept > keepBytes || d.large > d.room {
		d.evictLocked(d.ended.Front().Value.(*incoming))
	}
}

func (d *desk) keepLocked(in *incoming, sign int) {
	if len(in.answer) > callPart {
		d.large += sign * len(in.answer)
	} else {
		d.kept += sign * (len(in.answer) + entryBytes)
	}
}

// evictLocked lets go of a call whose caller may still ask for it.
func (d *desk) evictLocked(in *incoming) {
	d.removeLocked(in)
	d.evicted[in.key.caller] = max(d.evicted[in.key.caller], in.key.id)
}

func (d *desk) removeLocked(in *incoming) {
	delete(d.calls, in.key)
	switch in.state {
	case stateParts:
		d.parts -= len(in.request)
	case stateRunning:
		in.stop()
	default:
		d.ended.Remove(in.at)
		d.keepLocked(in, -1)
	}
}

// states tells what became of calls, and sees to it that those unknown never run.
func (d *desk) states(h callHeader) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	b := make([]byte, len(h.IDs))
	for i, id := range h.IDs {
		key := callKey{h.Caller, id}
		in := d.calls[key]
		switch {
		case in == nil && id <= d.evicted[h.Caller]:
			b[i] = stateEvicted
		case in == nil:
			d.denyLocked(&incoming{key: key, from: h.From, to: h.To})
			b[i] = stateUnknown
		case in.state == stateParts:
			d.denyLocked(in)
			b[i] = stateUnknown
		case in.state == stateRunning:
			in.seen = now
			b[i] = stateRunning
		default:
			b[i] = in.state
		}
	}
	return string(b)
}

// forget ends a call's handler, or lets its answer go. What has not begun to
// run must not, should the rest of it still come.
func (d *desk) forget(h callHeader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := callKey{h.Caller, h.ID}
	in := d.calls[key]
	switch {
	case in == nil && h.ID > d.evicted[h.Caller]:
		d.denyLocked(&incoming{key: key, from: h.From, to: h.To})
	case in == nil || in.state == stateUnknown:
	case in.state == stateParts:
		d.denyLocked(in)
	default:
		d.removeLocked(in)
	}
}

// denyLocked sees to it that a call never runs.
func (d *desk) denyLocked(in *incoming) {
	d.parts -= len(in.request)
	in.request = nil
	d.calls[in.key] = in
	d.endLocked(in, stateUnknown)
	d.sweepSoonLocked()
}

func (d *desk) sweepSoonLocked() {
	if d.sweeper == nil {
		d.sweeper = time.AfterFunc(callAsk, d.sweep)
	}
}

// sweep lets go of what nobody asks for any more.
func (d *desk) sweep() {
	self := d.c.Self().Incarnation
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	now := time.Now()
	for _, in := range d.calls {
		limit := keepCall
		if in.state == stateRunning {
			limit = callLease
		}
		if now.Sub(in.seen) >= limit || in.to != self || d.c.buried(in.from) {
			d.evictLocked(in)
		}
	}
	d.sweeper = nil
	if len(d.calls) > 0 {
		d.sweepSoonLocked()
	}
}
