package clients

import (
	"testing"

	"github.com/hanzoai/stream/test/e2e/tools"
)

// program is a library of another language with the script that drives it.
func program(name, language, script string, run func(t testing.TB, script string, args ...string) tools.Run, l limits) library {
	return library{name: name, language: language, limits: l, open: func(t *testing.T, addr string) client {
		return startProcess(t, run(t, script), name, addr)
	}}
}

const (
	rskafkaGroups            = "no consumer groups"
	platformaticTransactions = "a second producer with an id asks to go on with producer id 0, which is refused"
	rskafkaConfigs           = "no calls about configs"
)

var programs = []library{
	program("java", "Java", "4.3", tools.Java, limits{}),
	program("java-2.1", "Java", "2.1", tools.Java, limits{lacks: map[string]string{
		"static":      "group.instance.id came with 2.3 (KIP-345)",
		"cooperative": "cooperative rebalancing came with 2.4 (KIP-429)",
	}}),
	program("kafka-python", "Python", "kafka_python.py", tools.Python, limits{
		noHeaderNulls: true,
		noTombstone:   true,
	}),
	program("aiokafka", "Python", "aio_kafka.py", tools.Python, limits{
		noTombstone:    true,
		createsUnknown: true,
		lacks:          map[string]string{"cooperative": "its assignors are eager"},
	}),
	program("confluent-kafka", "Python", "confluent_kafka_client.py", tools.Python, limits{}),
	program("kafkajs", "JavaScript", "kafkajs.js", tools.Node, limits{
		noHeaderNulls: true,
		resets:        []string{"earliest", "latest"}, // a consumer always has one
		lacks: map[string]string{
			"static":      "no group.instance.id",
			"cooperative": "its assigners are eager",
		},
	}),
	program("platformatic", "JavaScript", "platformatic.js", tools.Node, limits{
		repeats: true, // its stream reads on while the group rebalances, then starts at what is committed
		lacks: map[string]string{
			"static":       "it has group.instance.id, but its close leaves the group",
			"cooperative":  "its assigners of the classic protocol are eager",
			"transactions": platformaticTransactions,
			"isolation":    "hands out what was aborted",
			"exactly-once": platformaticTransactions,
		},
	}),
	program("rskafka", "Rust", "rskafka", tools.Rust, limits{
		noHeaderNulls:  true,
		headerMap:      true,
		createsUnknown: true,
		resets:         []string{"none"}, // it has no policy
		lacks: map[string]string{
			"idempotent":     "no producer ids",
			"resume":         rskafkaGroups,
			"rebalance":      rskafkaGroups,
			"static":         rskafkaGroups,
			"cooperative":    rskafkaGroups,
			"configs":        rskafkaConfigs,
			"add-partitions": "no CreatePartitions",
			"transactions":   "no producer ids",
			"isolation":      "hands out what was aborted",
			"exactly-once":   "no producer ids",
		},
	}),
}
