package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/hanzoai/stream/logging"
)

var update = flag.Bool("update", false, "rewrite generated files")

// loadWith parses args as `stream serve` does.
func loadWith(t *testing.T, args, environ []string) *loaded {
	t.Helper()
	cmd := &cobra.Command{}
	bindServe(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatalf("flags %q: %v", args, err)
	}
	if !slices.ContainsFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		environ = append(slices.Clone(environ), "HOME=/home/someone")
	}
	return load(cmd.Flags(), environ)
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "c.yaml", "port: 1\nmax:\n  connections: 7\n")
	all := []struct {
		args   []string
		env    string
		port   int
		origin string
	}{
		{port: 9092, origin: "default"},
		{args: []string{"--config", file}, port: 1, origin: "file " + file},
		{env: "STREAM_PORT=2", port: 2, origin: "STREAM_PORT"},
		{args: []string{"--kafka-property", "listeners=PLAINTEXT://:3"}, port: 3, origin: "--kafka-property listeners"},
		{args: []string{"-X", "port=4"}, port: 4, origin: "-X port"},
		{args: []string{"--port", "5"}, port: 5, origin: "flag --port"},
	}
	// Each source alone, then together with all below it.
	var args, environ []string
	for _, c := range all {
		var own []string
		if c.env != "" {
			own = []string{c.env}
		}
		args, environ = append(args, c.args...), append(environ, own...)
		for _, l := range []*loaded{loadWith(t, c.args, own), loadWith(t, args, environ)} {
			if got := l.originOf(findField("port")); l.Port != c.port || got != c.origin || len(l.problems) > 0 {
				t.Errorf("port %d from %q, want %d from %q (problems %q)", l.Port, got, c.port, c.origin, l.problems)
			}
		}
	}
	if l := loadWith(t, args, environ); l.MaxConns != 7 {
		t.Errorf("nested key of the file: max.connections %d", l.MaxConns)
	}
	if l := loadWith(t, nil, []string{"STREAM_CONFIG=" + file}); l.Port != 1 {
		t.Errorf("STREAM_CONFIG is not read: port %d", l.Port)
	}
}

// Every key must be readable from every source, under all its spellings.
func TestConfigEveryKeyFromEverySource(t *testing.T) {
	t.Parallel()
	sample := map[reflect.Type]string{
		reflect.TypeFor[string](): "x", reflect.TypeFor[int](): "3", reflect.TypeFor[bool](): "true",
		reflect.TypeFor[byteSize](): "20MiB", reflect.TypeFor[time.Duration](): "11s",
		reflect.TypeFor[syncMode](): "3s", reflect.TypeFor[[]string](): "a:1,b:2", reflect.TypeFor[logging.Secret](): "s",
		reflect.TypeFor[nodeID](): "3",
	}
	special := map[string]string{
		"storage": "memory", "address-mode": "per-gateway", "log-level": "warn", "log-format": "text", "max.inflight.per.connection": "7",
		"max.request.elements": "5000", "admin.header.max.bytes": "8KiB", "offsets.retention.minutes": "7", "admin-port": "0",
		"auto.create.topics.enable": "false",
	}
	for _, f := range fields {
		raw := special[f.key]
		if raw == "" {
			raw = sample[f.kind]
		}
		want := reflect.New(reflect.TypeFor[config]()).Interface().(*config)
		if err := f.set(want, raw); err != nil {
			t.Errorf("%s: %v", f.key, err)
			continue
		}
		value := func(c *config) any { return reflect.ValueOf(c).Elem().Field(f.index).Interface() }
		sources := map[string]*loaded{
			"variable": loadWith(t, nil, []string{f.env + "=" + raw}),
			"file":     loadWith(t, []string{"--config", writeFile(t, "c.yaml", fmt.Sprintf("%s: %q\n", f.key, raw))}, nil),
		}
		if !f.noflag {
			sources["flag"] = loadWith(t, []string{"--" + f.flag() + "=" + raw}, nil)
			sources["-X"] = loadWith(t, []string{"-X", f.key + "=" + raw}, nil)
			sources["-X folded"] = loadWith(t, []string{"-X", f.id + "=" + raw}, nil)
		}
		for _, a := range f.aliases {
			sources["alias flag"] = loadWith(t, []string{"--" + fold(a) + "=" + raw}, nil)
			sources["alias variable"] = loadWith(t, nil, []string{envName(a) + "=" + raw})
		}
		if f.foreignEnv != "" {
			sources["foreign"] = loadWith(t, nil, []string{f.foreignEnv + "=" + raw})
		}
		for from, l := range sources {
			got, wanted := value(&l.config), value(want)
			if s, ok := got.(logging.Secret); ok {
				got, wanted = s.Reveal(), wanted.(logging.Secret).Reveal()
			}
			if !reflect.DeepEqual(got, wanted) || !l.isSet(f.key) {
				t.Errorf("%s by %s: %v, want %v (problems %q)", f.key, from, got, wanted, l.problems)
			}
		}
	}
}

func TestConfigFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"config": true, "set": true, "kafka-property": true, "check-config": true, "resolved": true, "help": true}
	for _, f := range fields {
		for _, n := range f.names() {
			if seen[n] {
				t.Errorf("key %s is there twice", n)
			}
			seen[n] = true
		}
		if f.doc == "" || f.group == "" || !strings.HasSuffix(f.doc, ".") {
			t.Errorf("%s: no group, or a doc that is no sentence: %q", f.key, f.doc)
		}
		if secret := f.kind == reflect.TypeFor[logging.Secret](); secret != (f.show == "") || secret != f.noflag {
			t.Errorf("%s: secrets, and only they, have no show tag and no flag", f.key)
		}
		if f.def != "" {
			if err := f.set(&config{}, f.def); err != nil {
				t.Errorf("%s: default %q: %v", f.key, f.def, err)
			}
		}
	}
	if l := loadWith(t, nil, []string{}); len(l.problems)+len(l.warnings) > 0 {
		t.Errorf("defaults: %q %q", l.problems, l.warnings)
	}
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) []string { return []string{"--config", writeFile(t, "c.yaml", text)} }
	for _, c := range []struct {
		name string
		args []string
		env  []string
		want []string // each part of some problem, in order
	}{
		{"file key", file("prot: 1\n"), nil, []string{`unknown key "prot": did you mean "port"?`}},
		{"file nested key", file("max:\n  conections: 1\n"), nil, []string{`unknown key "max.conections": did you mean "max.connections"?`}},
		{"file twice", file("max.connections: 1\nmax-connections: 2\n"), nil, []string{"max.connections: given twice"}},
		{"file syntax", file("a: [\n"), nil, []string{"config file"}},
		{"file not a map", file("- 1\n"), nil, []string{"config file"}},
		{"file list of maps", file("bind:\n- a: 1\n"), nil, []string{"a list of plain values is wanted"}},
		{"file missing", []string{"--config", filepath.Join(dir, "no")}, nil, []string{"no such file"}},
		{"file is a folder", []string{"--config", dir}, nil, []string{"is a folder"}},
		{"set key", []string{"-X", "prefx=a"}, nil, []string{`-X: unknown key "prefx": did you mean "prefix"?`}},
		{"set without value", []string{"-X", "prefix"}, nil, []string{"key=value is wanted"}},
		{"set secret", []string{"-X", "nats-password=planted"}, nil, []string{"never taken from the command line"}},
		{"number", nil, []string{"STREAM_PORT=abc"}, []string{`port: "abc" is not a whole number (from STREAM_PORT)`}},
		{"range", []string{"--port", "65536", "--replicas", "0"}, nil, []string{"replicas: 0 is below", "port: 65536 is above the most allowed, 65535"}},
		{"bool", nil, []string{"STREAM_AUTO_CREATE_TOPICS_ENABLE=si"}, []string{"neither true nor false"}},
		{"word", []string{"--storage", "tape"}, nil, []string{`"tape" is not one of file, memory: did you mean file?`}},
		{"sync", []string{"--sync", "often"}, nil, []string{"neither always nor an interval"}},
		{"duration", []string{"--shutdown-grace", "5"}, nil, []string{`"5" needs a unit`}},
		{"size", []string{"--message-max-bytes", "1XB"}, nil, []string{"not a number of bytes"}},
		{"prefix", []string{"--prefix", "a.b"}, nil, []string{"prefix:"}},
		{"default partitions", []string{"--num-partitions", "9", "--max-partitions", "8"}, nil, []string{"default partitions 9: use 1 to 8"}},
		{"node id", []string{"--kafka-property", "broker.id=0"}, nil, []string{"node-id: ids begin at 1"}},
		{"node id of a pod", []string{"--node-id", "stream"}, nil, []string{`node-id: "stream" is neither a number nor the name of a pod`}},
		{"node id of a pod beyond", []string{"--node-id", "stream-2147483647"}, nil, []string{"node-id: 2147483648 is above"}},
		{"address mode", nil, []string{"STREAM_ADDRESS_MODE=per-gatway"}, []string{`"per-gatway" is not one of shared, per-gateway: did you mean per-gateway?`}},
		{"address of one's own", []string{"--address-mode", "per-gateway", "--host", "0.0.0.0"}, nil, []string{"address-mode: per-gateway needs an address"}},
		{"host", []string{"--host", "h:1"}, nil, []string{"host:"}},
		{"advertised", []string{"--advertised-address", "0.0.0.0:1"}, nil, []string{"cannot be connected to"}},
		{"advertised port", []string{"--advertised-address", "h"}, nil, []string{"not host:port"}},
		{"same port", []string{"--port", "9093"}, nil, []string{"admin-port: 9093 is the Kafka port too"}},
		{"replicas embedded", []string{"--replicas", "3"}, nil, []string{"the embedded NATS server is a single one"}},
		{"nats-listen external", []string{"--nats-listen", ":1", "--pubsub-url", "nats://h"}, nil, []string{"nats-listen:"}},
		{"login embedded", []string{"--nats-user", "u"}, nil, []string{"nats-user: a login is only for", "no password given"}},
		{"url", []string{"--pubsub-url", "http://h"}, nil, []string{`scheme "http"`}},
		{"url secret", []string{"--pubsub-url", "nats://u:plant/ed@h:x"}, nil, []string{"not a URL such as"}},
		{"alias differs", []string{"--pubsub-url", "nats://a", "--nats-url", "nats://b"}, nil, []string{"pubsub-url: given twice"}},
		{"creds file", []string{"--pubsub-url", "nats://a", "--pubsub-creds", filepath.Join(dir, "c")}, nil, []string{"pubsub-creds:"}},
		{"tls half", []string{"--pubsub-url", "nats://a", "--nats-tls-cert", filepath.Join(dir, "c")}, nil, []string{"one is missing", "nats-tls-cert:"}},
		{"request below message", []string{"--socket-request-max-bytes", "1MiB"}, nil, []string{"below message.max.bytes + 64 KiB"}},
		{"sessions", []string{"--group-min-session-timeout-ms", "60000", "--group-max-session-timeout-ms", "1s"}, nil, []string{"is above group.max.session"}},
		{"delay", []string{"--shutdown-delay", "1m"}, nil, []string{"longer than shutdown-grace"}},
		{"kafka unknown", []string{"--kafka-property", "num.partition=3"}, nil, []string{`the nearest is "num.partitions"`}},
		{"topic default of nothing", []string{"--topic-defaults", "num.partitions=3"}, nil, []string{"num.partitions is no default of topics"}},
		{"topic default without a value", []string{"--topic-defaults", "log.retention.ms"}, nil, []string{"Invalid value  for configuration log.retention.ms: Not a number of type LONG"}},
		{"kafka topic default", []string{"--kafka-property", "log.retention.ms=zzz"}, nil, []string{"Invalid value zzz for configuration log.retention.ms: Not a number of type LONG"}},
		{"kafka topic default of another unit", []string{"--kafka-property", "log.retention.hours=x"}, nil, []string{"Not a number of type INT"}},
		{"kafka sasl", []string{"--kafka-property", "sasl.enabled.mechanisms=PLAIN"}, nil, []string{"lacks SASL logins"}},
		{"kafka acl", []string{"--kafka-property", "super.users=User:a"}, nil, []string{"lacks ACLs"}},
		{"kafka tls", []string{"--kafka-property", "listeners=SSL://:9092"}, nil, []string{"lacks TLS listeners"}},
		{"kafka map", []string{"--kafka-property", "listeners=A://:1", "--kafka-property", "listener.security.protocol.map=A:SASL_PLAINTEXT"}, nil, []string{"lacks SASL logins"}},
		{"kafka no map", []string{"--kafka-property", "listeners=A://:1"}, nil, []string{"no entry in listener.security.protocol.map"}},
		{"several", []string{"--port", "x", "--prefix", "ü", "--storage", "q"}, nil, []string{"storage:", "port:", "prefix:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := loadWith(t, c.args, append(c.env, "HOME="+dir))
			if len(l.problems) != len(c.want) {
				t.Fatalf("problems %q, want %d", l.problems, len(c.want))
			}
			for i, want := range c.want {
				if !strings.Contains(l.problems[i], want) {
					t.Errorf("problem %q lacks %q", l.problems[i], want)
				}
			}
			if all := fmt.Sprint(l.problems, l.warnings); strings.Contains(all, "plant") {
				t.Errorf("a secret is shown: %s", all)
			}
		})
	}
}

func TestConfigVariables(t *testing.T) {
	t.Parallel()
	l := loadWith(t, nil, []string{
		"STREAM_SERVICE_HOST=10.0.0.1", "STREAM_SERVICE_PORT=9092", "STREAM_SERVICE_PORT_KAFKA=9092", "STREAM_PORT=tcp://10.0.0.1:9092",
		"STREAM_PORT_9092_TCP=tcp://10.0.0.1:9092", "STREAM_PORT_9092_TCP_ADDR=10.0.0.1", "STREAM_PORT_9092_TCP_PORT=9092",
		"STREAM_ADMIN_PORT=tcp://10.0.0.2:9093", "STREAM_ADMIN_SERVICE_HOST=10.0.0.2", "STREAM_HOST=", "OTHER_PORT=1",
	})
	if l.Port != 9092 || l.AdminPort != 9093 || l.Host != "localhost" || len(l.warnings) > 0 || len(l.problems) > 0 {
		t.Errorf("injected variables were read: port %d, admin %d, host %s, %q %q", l.Port, l.AdminPort, l.Host, l.warnings, l.problems)
	}
	l = loadWith(t, nil, []string{"STREAM_PROT=1", "STREAM_port=2"})
	if len(l.problems) > 0 || len(l.warnings) != 2 || !strings.Contains(l.warnings[0], "STREAM_PROT is ignored: did you mean STREAM_PORT?") {
		t.Errorf("unknown variables: %q %q", l.problems, l.warnings)
	}
	l = loadWith(t, nil, []string{"NATS_URL=nats://low", "STREAM_NATS_URL=nats://high"})
	if l.PubsubURL != "nats://high" {
		t.Errorf("NATS_URL wins over STREAM_NATS_URL: %s", l.PubsubURL)
	}
	l = loadWith(t, []string{"--config", writeFile(t, "c.yaml", "pubsub-url: nats://file\n")}, []string{"NATS_URL=nats://env"})
	if l.PubsubURL != "nats://env" {
		t.Errorf("NATS_URL: %s", l.PubsubURL)
	}
}

func TestConfigKafkaProperties(t *testing.T) {
	t.Parallel()
	l := loadWith(t, []string{
		"--kafka-property", "listeners=INTERNAL://127.0.0.1:7001,PLAINTEXT://[::1]:7002", "--kafka-property", "listener.security.protocol.map=internal:plaintext",
		"--kafka-property", "advertised.listeners=PLAINTEXT://kafka.example:7003", "--kafka-property", "default.replication.factor=1",
		"--kafka-property", "connections.max.idle.ms=90000", "--kafka-property", "offsets.retention.minutes=30", "--kafka-property", "broker.id=7",
	}, nil)
	if len(l.problems) > 0 {
		t.Fatalf("problems: %q", l.problems)
	}
	if !slices.Equal(l.Bind, []string{"127.0.0.1:7001", "[::1]:7002"}) || l.Port != 7001 || l.Advertised != "kafka.example:7003" ||
		l.IdleTimeout != 90*time.Second || l.OffsetKeep != 30*time.Minute || l.NodeID != 7 {
		t.Errorf("%+v", l.config)
	}
	if a := l.advertise(7001); a != (advertised{"kafka.example", 7003}) {
		t.Errorf("advertised %+v", a)
	}
}

func TestAdvertise(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{"[::1]": "::1", "h.example": "h.example", "": "localhost", "0.0.0.0": "", "::": "", "[::]": ""} {
		l := loadWith(t, []string{"--host=" + host}, nil)
		if a := l.advertise(1234); a != (advertised{want, 1234}) || len(l.problems) > 0 {
			t.Errorf("host %q: %+v, want host %q (%q)", host, a, want, l.problems)
		}
	}
}

func TestDocs(t *testing.T) {
	for path, want := range map[string]string{"docs/config.md": configDocs(), "docs/commands.md": clientDocs()} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of date: run go generate .", path)
		}
	}
}

// What config print writes must read back as the same configuration.
func TestConfigPrintReadsBack(t *testing.T) {
	t.Parallel()
	args := []string{"--bind", "127.0.0.1,[::1]:99", "--message-max-bytes", "2000000", "--sync", "90s", "--log-format", "text", "--connections-max-idle-ms", "5000"}
	for _, resolved := range []bool{false, true} {
		l := loadWith(t, args, nil)
		var out strings.Builder
		if err := printConfig(&out, l, resolved); err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := yaml.Unmarshal([]byte(out.String()), &m); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, out.String())
		}
		if want := 5; !resolved && len(m) != want {
			t.Errorf("%d keys, want the %d that were set:\n%s", len(m), want, out.String())
		}
		if resolved && len(m) != len(fields) {
			t.Errorf("%d keys of %d", len(m), len(fields))
		}
		again := loadWith(t, []string{"--config", writeFile(t, "c.yaml", out.String())}, nil)
		if len(again.problems) > 0 {
			t.Fatalf("read back: %q", again.problems)
		}
		m1, m2 := readMemory(), readMemory()
		l.resolve(m1)
		again.resolve(m2)
		again.environ, l.environ = nil, nil
		if !reflect.DeepEqual(l.config, again.config) {
			t.Errorf("read back differs:\n%+v\n%+v", l.config, again.config)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"port", "prefix", "pubsub-url", "host", "max.connections"}
	for in, want := range map[string]string{"prot": "port", "pubsub_url": "pubsub-url", "hots": "host", "maxconnections": "max.connections"} {
		if got := nearest(in, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		d    int
	}{{"", "abc", 3}, {"abc", "", 3}, {"ca", "ac", 1}, {"kitten", "sitting", 3}, {"same", "same", 0}} {
		if got := distance(c.a, c.b); got != c.d {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.d)
		}
	}
}

func TestParseByteSize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]byteSize{"0": 0, "1048588": 1048588, "16MiB": 16 << 20, "2 kb": 2000, "1GiB": 1 << 30, "5B": 5} {
		if got, err := parseByteSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "-1", "x", "1.5MiB", "9999999999GiB", "MiB"} {
		if got, err := parseByteSize(in); err == nil {
			t.Errorf("%q: %d, want an error", in, got)
		}
	}
	for _, b := range []byteSize{0, 1, 1000, 1024, 3 << 20, 5 << 30, 1048588} {
		if got, err := parseByteSize(b.String()); err != nil || got != b {
			t.Errorf("%d prints %s and reads %d (%v)", int64(b), b, int64(got), err)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("port: 1\n")
	f.Add("max:\n  connections: 7\nbind: [a, b]\n")
	f.Add("a: &a [*a]\n")
	f.Add("? [1, 2]\n: 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := writeFile(t, "c.yaml", text)
		l := &loaded{origin: map[string]string{}}
		for id := range l.readFile(path) {
			if findField(id) == nil {
				t.Errorf("key %q is not one of ours", id)
			}
		}
	})
}

// A StatefulSet's pods get their ids from their names.
func TestConfigNodeIDOfPod(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]nodeID{"stream-0": 1, "stream-12": 13, "a-2-b-3": 4, "7": 7, "-1": -1} {
		if l := loadWith(t, []string{"--node-id", given}, nil); l.NodeID != want || len(l.problems) > 0 {
			t.Errorf("--node-id %s: %d, problems %q", given, l.NodeID, l.problems)
		}
	}
	for _, bad := range []string{"stream", "stream-", "stream-x", "-", "stream-1x", "stream--1x"} {
		if l := loadWith(t, []string{"--node-id=" + bad}, nil); len(l.problems) == 0 {
			t.Errorf("--node-id %s: %d", bad, l.NodeID)
		}
	}
}
