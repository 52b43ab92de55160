package main

import "strings"

// durability is what an acknowledged record survives, in words that status, the
// banner and the docs share.
type durability struct {
	Level    string
	Sentence string
	Sync     string // "always", an interval, or "unknown" (external server, not stated)
	Note     string // what the operator should know beyond the sentence; may be empty
}

// levels are the durability levels: what each survives and what it does not.
// {interval} stands for the time between two flushes to the disk.
var levels = []struct{ name, survives, not string }{
	{"memory", "the death of any gateway that does not embed the store", "a restart of the NATS server"},
	{"r1-interval", "`kill -9` of gateways and of the NATS server", "a crash of the operating system or a loss of power less than {interval} after it was stored; loss of the disk"},
	{"r1-always", "`kill -9` of gateways and of the NATS server, a crash of the operating system and a loss of power", "loss of the disk"},
	{"r3-interval", "the loss of any one NATS node, and `kill -9` of all of them", "a crash of the operating system or a loss of power, less than {interval} after it was stored, on a majority of the nodes, or on one while another stands still or is cut off (Jepsen, NATS 2.12.1)"},
	{"r3-always", "the loss of any one NATS node, `kill -9`, crashes and loss of power of all of them", "disk loss on a majority or silent corruption; membership changes during faults (NATS issues 7549, 7556, 7545 open)"},
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
			interval := d.Sync
			if unknown {
				interval = "the server's sync interval (2m0s unless set)"
			}
			d.Sentence = "An acknowledged record survives " + lv.survives + ", but not " + strings.ReplaceAll(lv.not, "{interval}", interval) + "."
		}
	}
	return d
}
