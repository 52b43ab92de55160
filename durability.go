package main

// durability is what an acknowledged record survives, in words that status, the
// banner and the docs share.
type durability struct {
	Level    string
	Sentence string
	Sync     string // "always", an interval, or "unknown" (external server, not stated)
	Note     string // what the operator should know beyond the sentence; may be empty
}

// levels are the durability levels: what each survives and what it does not.
var levels = []struct{ name, survives, not string }{
	{"memory", "the death of any gateway that does not embed the store", "a restart of the NATS server"},
	{"r1-interval", "`kill -9` of gateway and NATS", "an operating system crash or power loss within the interval (NATS default 2 min); loss of the disk"},
	{"r1-always", "also a crash or power loss of the machine", "loss of the disk"},
	{"r3-interval", "any one NATS node, or `kill -9` of all of them", "power loss on a majority within the interval; one OS crash combined with a partition (Jepsen 2.12.1)"},
	{"r3-always", "also power loss of every node", "disk loss or silent corruption; membership changes during faults (NATS issues 7549, 7556, 7545 open)"},
}

// durabilityOf says what new topics get. Two replicas need both to be there and
// survive the loss of neither: they count as one.
func durabilityOf(l *loaded, maxReplicas int) durability {
	d := durability{Sync: l.Sync.String()}
	unknown := l.external() && !l.isSet("sync")
	replicas := min(l.Replicas, max(maxReplicas, 1))
	switch {
	case l.Storage == "memory":
		d.Level, d.Sync = "memory", "none"
	case replicas >= 3:
		d.Level = "r3-"
	default:
		d.Level = "r1-"
	}
	if d.Level != "memory" {
		if unknown {
			// The least that can be relied on is what a NATS server does unless told
			// otherwise.
			d.Sync = "unknown"
			d.Note = "when the external NATS server syncs is unknown: state it with --sync"
		}
		if l.Sync.Always && !unknown {
			d.Level += "always"
		} else {
			d.Level += "interval"
		}
	}
	for _, lv := range levels {
		if lv.name == d.Level {
			d.Sentence = "An acknowledged record survives " + lv.survives + ", but not " + lv.not + "."
		}
	}
	return d
}
