package main

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/logging"
)

// kafkaMissing are the Kafka properties whose meaning is not there yet, with
// what is missing. They are refused: a setting that is silently ignored is one
// that users believe in.
var kafkaMissing = map[string]string{
	"sasl.enabled.mechanisms":                  "SASL logins",
	"sasl.mechanism.inter.broker.protocol":     "SASL logins",
	"super.users":                              "ACLs",
	"authorizer.class.name":                    "ACLs",
	"allow.everyone.if.no.acl.found":           "ACLs",
	"ssl.keystore.location":                    "TLS listeners",
	"ssl.client.auth":                          "TLS listeners",
	"inter.broker.listener.name":               "a protocol between brokers: gateways talk through NATS",
	"controller.quorum.voters":                 "KRaft: NATS elects leaders",
	"process.roles":                            "KRaft: every gateway does everything",
	"transaction.state.log.replication.factor": "transactions",
}

func knownKafkaProperties() []string {
	ks := []string{"listeners", "advertised.listeners", "listener.security.protocol.map"}
	for _, f := range fields {
		ks = append(ks, f.kafka...)
	}
	ks = append(ks, topic.Defaultable()...)
	return ks
}

func (l *loaded) readKafkaProperties(flags *pflag.FlagSet) given {
	g := given{}
	props, _ := flags.GetStringArray("kafka-property")
	protocols := map[string]string{"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
	values := map[string]string{}
	var order []string
	for _, kv := range props {
		name, raw, ok := strings.Cut(kv, "=")
		name = strings.TrimSpace(name)
		if !ok {
			l.problem("--kafka-property %s: name=value is wanted", logging.Printable(name))
			continue
		}
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
		values[name] = strings.TrimSpace(raw)
	}
	for _, pair := range words(values["listener.security.protocol.map"], ",") {
		name, protocol, ok := strings.Cut(strings.TrimSpace(pair), ":")
		if !ok {
			l.problem("--kafka-property listener.security.protocol.map: %q is not NAME:PROTOCOL", logging.Printable(pair))
			continue
		}
		protocols[strings.ToUpper(name)] = strings.ToUpper(protocol)
	}
	var defaults []string // of topics
	defer func() {
		if len(defaults) > 0 {
			l.put(g, findField("topic.defaults"), strings.Join(defaults, ";"), "--kafka-property")
		}
	}()
	for _, name := range order {
		raw, origin := values[name], "--kafka-property "+name
		if missing, ok := kafkaMissing[name]; ok {
			l.problem("%s: refused, this version lacks %s", origin, missing)
			continue
		}
		if topic.IsDefault(name) {
			defaults = append(defaults, name+"="+raw)
			continue
		}
		switch name {
		case "listener.security.protocol.map":
		case "listeners":
			addrs, err := kafkaListeners(raw, protocols)
			if err != nil {
				l.problem("%s: %v", origin, err)
				continue
			}
			_, port, _ := net.SplitHostPort(addrs[0])
			l.put(g, findField("port"), port, origin)
			l.put(g, findField("bind"), strings.Join(addrs, ","), origin)
		case "advertised.listeners":
			addrs, err := kafkaListeners(raw, protocols)
			if err == nil && len(addrs) > 1 {
				err = fmt.Errorf("only one advertised address is served")
			}
			if err != nil {
				l.problem("%s: %v", origin, err)
				continue
			}
			l.put(g, findField("advertised-address"), addrs[0], origin)
		default:
			i := slices.IndexFunc(fields, func(f *field) bool { return slices.Contains(f.kafka, name) })
			if i < 0 {
				l.problem("%s: not a property that is taken here; the nearest is %q", logging.Printable(origin), nearest(name, knownKafkaProperties()))
				continue
			}
			l.put(g, fields[i], raw, origin)
		}
	}
	return g
}

// kafkaListeners reads NAME://host:port,… whose protocols must all be PLAINTEXT.
func kafkaListeners(raw string, protocols map[string]string) ([]string, error) {
	var addrs []string
	for _, one := range words(raw, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(one), "://")
		if !ok {
			return nil, fmt.Errorf("%q is not NAME://host:port", logging.Printable(one))
		}
		switch p := protocols[strings.ToUpper(name)]; p {
		case "PLAINTEXT":
		case "":
			return nil, fmt.Errorf("listener %q has no entry in listener.security.protocol.map", logging.Printable(name))
		case "SSL", "SASL_SSL":
			return nil, fmt.Errorf("listener %q is %s: refused, this version lacks TLS listeners", logging.Printable(name), p)
		default:
			return nil, fmt.Errorf("listener %q is %s: refused, this version lacks SASL logins", logging.Printable(name), logging.Printable(p))
		}
		if _, _, err := splitHostPort(addr); err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("no listener named")
	}
	return addrs, nil
}
