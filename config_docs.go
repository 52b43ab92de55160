package main

import (
	"fmt"
	"strings"

	"github.com/hanzoai/stream/broker/topic"
)

// configDocs is docs/config.md, generated from the tags of config.
func configDocs() string {
	var b strings.Builder
	b.WriteString(`# Configuration

Generated from ` + "`config.go`" + ` by ` + "`go generate .`" + `; a test fails when it is out of date.

Every key is a flag of ` + "`stream serve`" + ` (` + "`--admin-port 0`" + `), a variable (` + "`STREAM_ADMIN_PORT=0`" + `) and a key of the YAML file
named by ` + "`--config`" + ` or ` + "`STREAM_CONFIG`" + ` (` + "`admin-port: 0`" + `). Dots, dashes and underscores in keys are the same.
Of several, the highest counts: flag, ` + "`-X key=value`" + `, ` + "`--kafka-property name=value`" + `, variable, file, default.

- An unknown flag or key is an error that names the nearest one. An unknown ` + "`STREAM_*`" + ` variable is a warning.
- Variables that Kubernetes injects for a Service called ` + "`stream`" + ` (` + "`STREAM_SERVICE_HOST`, `STREAM_PORT=tcp://…`" + `) are never read.
- ` + "`stream serve --check-config`" + ` prints every problem at once and exits 0 or 2; ` + "`stream config print --resolved`" + ` shows
  every value with its origin and the limits in force.
- Secrets come from files and variables, never from the command line, and are printed as ` + "`***`" + `.
- ` + "`STREAM_BOOTSTRAP_SERVERS`" + ` is not for the server: it names one for the client commands ([commands.md](commands.md)).
- Sizes are bytes, or numbers with KiB, MiB, GiB, kB, MB, GB. Durations are numbers with ns, us, ms, s, m, h; for keys that
  end in ` + "`.ms`" + ` or ` + "`.minutes`" + ` a bare number is that unit, as in Kafka.
`)
	group := ""
	for _, f := range fields {
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n## %s\n\n| Key | Flag | Variable | Type | Default | Meaning |\n|---|---|---|---|---|---|\n", group)
		}
		code := func(s string) string {
			if s == "" {
				return "–"
			}
			return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
		}
		flag := "--" + f.flag()
		if f.noflag {
			flag = ""
		}
		doc := f.doc
		if f.lo != "" || f.hi != "" {
			switch {
			case f.hi == "":
				doc += " At least " + f.lo + "."
			default:
				doc += " From " + f.lo + " to " + f.hi + "."
			}
		}
		for _, a := range f.aliases {
			doc += " Alias " + code(a) + "."
		}
		if f.foreignEnv != "" {
			doc += " Else the variable " + code(f.foreignEnv) + "."
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", code(f.key), code(flag), code(f.env),
			strings.ReplaceAll(f.kindName(), "|", `\|`), code(f.def), doc)
	}
	b.WriteString("\n## Kafka properties\n\n`--kafka-property name=value` takes these; any other is refused.\n\n| Kafka name | Key |\n|---|---|\n")
	b.WriteString("| `listeners` | `bind` and `port` (PLAINTEXT only) |\n| `advertised.listeners` | `advertised-address` (one) |\n| `listener.security.protocol.map` | names for PLAINTEXT |\n")
	for _, f := range fields {
		for _, k := range f.kafka {
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", k, f.key)
		}
	}
	for _, k := range topic.Defaultable() {
		fmt.Fprintf(&b, "| `%s` | `topic.defaults` |\n", k)
	}
	b.WriteString("\n## Memory\n\n`GOMEMLIMIT` is used as given; without it the limit is 90 % of the control group's, else 75 % of the machine's memory.\n`GOGC` is used as given; without it the collector runs at 100 when idle and, while little is alive, at 400 under load; lower, down to 25, while it compacts a partition.\n")
	b.WriteString("\n## Durability\n\nWhat an acknowledged record survives, as banner and `status` say it:\n\n| Level | An acknowledged record survives … | … but not |\n|---|---|---|\n")
	for _, lv := range levels {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", lv.name, lv.survives, strings.ReplaceAll(lv.not, "{interval}", "the sync interval"))
	}
	b.WriteString("\nWith an external NATS server `sync` is unknown until stated; the level named is then that of an interval.\n" + intervalDocs)
	b.WriteString("\n## Exit codes\n\n| Code | Meaning |\n|---|---|\n| 0 | done, or stopped by a signal |\n| 1 | failed: port taken, data folder in use or not writable, a failure while running |\n| 2 | wrong flags or configuration |\n| 3 | the NATS server is unreachable, too old, without JetStream, or holds what this version cannot serve; or gateways of another address mode live |\n")
	return b.String()
}

// intervalDocs says what an interval costs.
const intervalDocs = `
An interval (` + "`--sync 10s`" + `; a NATS server's own default is two minutes) means that an acknowledgement does not wait
for the disk. What was written is in the operating system's hands until the next flush:

| What happens | one replica | three replicas |
|---|---|---|
| gateway or NATS process killed, upgraded, out of memory | nothing is lost | nothing is lost |
| one machine crashes or loses power | what was acknowledged since the last flush is lost | nothing is lost, the others have it; unless another node stands still or is cut off at that time |
| a majority of machines crashes or loses power at once (one rack, one host, one power supply) | the same | what was acknowledged since the last flush is lost |
| a disk is lost | everything is lost | nothing is lost while two others are whole |

What is lost so is the end of the log. A partition of which a living gateway or a snapshot knows more than the store still
has stops with an alarm instead of using an offset twice (` + "`stream repair`" + `). If all gateways were restarted as well and
the lost end is newer than the last snapshot (a few seconds), nobody knows of it: the next records get the offsets of the
lost ones. With ` + "`--sync always`" + `, the default of the embedded server, neither happens. Kafka's brokers do not flush before
they acknowledge: a Kafka cluster is comparable to three replicas with an interval, one Kafka broker to one replica with an
interval.
`
