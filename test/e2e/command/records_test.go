package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func (p person) lines(t *testing.T) {
	p.create(t, "lines", "1")
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		p.want(t, codec+"\n", "stored 1 record in lines\n", "produce", "lines", "--compression", codec)
	}
	p.want(t, "", "none\ngzip\nsnappy\nlz4\nzstd\n", "consume", "lines", "-e")
	p.want(t, "1\n", "stored 1 record in lines\n", "produce", "lines", "--acks", "1")
	p.want(t, "0\n", "sent 1 record in lines\n", "produce", "lines", "--acks", "0")
	p.want(t, "", "1\n0\n", "consume", "lines", "--from", "5", "-n", "2")

	// Keys, headers, nulls; the last line needs no end.
	p.create(t, "keyed", "1")
	p.want(t, "k1\tv1\n\t\nk3\tNULL\nk4\ta\tb", "stored 4 records in keyed\n", "produce", "keyed", "--key-separator", `\t`, "--null-value", "NULL", "-H", "a=1", "-H", "b=2=3")
	file := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(file, []byte("plain\r\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.want(t, "", "stored 2 records in keyed\n", "produce", "keyed", "-k", "fixed", "--file", file)
	p.want(t, "", ""+
		"keyed/0:0 k1=v1 2,2 [a=1,b=2=3]\n"+
		"keyed/0:1 = 0,0 [a=1,b=2=3]\n"+
		"keyed/0:2 k3=- 2,-1 [a=1,b=2=3]\n"+
		"keyed/0:3 k4=a\tb 2,3 [a=1,b=2=3]\n"+
		"keyed/0:4 fixed=plain 5,5 []\n"+
		"keyed/0:5 fixed= 5,0 []\n",
		"consume", "keyed", "-e", "--null-value", "-", "-f", `%t/%p:%o %k=%v %K,%V [%h]\n`)

	// The server creates topics that are not there, as it was told to.
	p.want(t, "hello\n", "stored 1 record in made.by.produce\n", "produce", "made.by.produce")
	p.want(t, "", "hello\n", "consume", "made.by.produce", "-e")
}

// json: what consume writes produce reads, byte for byte.
func (p person) json(t *testing.T) {
	p.create(t, "from", "1")
	in := `{"key":"k","value":"v \u00e9 \ud83d\ude00 <&> \u2028","headers":[{"key":"h","value":"1"},{"key":"h","value":null},{"key":"","value_base64":"/wA="}],"timestamp":1700000000123}
{"key":null,"value":null}
{"key":"","value":"","timestamp":"2026-11-30T08:15:00.5+01:00"}
{"key_base64":"gA==","value_base64":"AP/+"}
`
	p.want(t, in, "stored 4 records in from\n", "produce", "from", "--json")
	first := p.run(t, "", "consume", "from", "-e", "-o", "json")
	lines := strings.Split(first.stdout, "\n")
	if first.code != 0 || len(lines) != 5 {
		t.Fatalf("%d\n%s%s", first.code, first.stdout, first.stderr)
	}
	stamp := regexp.MustCompile(`"timestamp":"2[^"]+Z"`)
	for i, want := range []string{
		`{"topic":"from","partition":0,"offset":0,"timestamp":"2023-11-14T22:13:20.123Z","key":"k","value":"v é 😀 <&> \u2028","headers":[{"key":"h","value":"1"},{"key":"h","value":null},{"key":"","value_base64":"/wA="}]}`,
		`{"topic":"from","partition":0,"offset":1,NOW,"key":null,"value":null,"headers":[]}`,
		`{"topic":"from","partition":0,"offset":2,"timestamp":"2026-11-30T07:15:00.500Z","key":"","value":"","headers":[]}`,
		`{"topic":"from","partition":0,"offset":3,NOW,"key_base64":"gA==","value_base64":"AP/+","headers":[]}`,
	} {
		got := lines[i]
		if strings.Contains(want, "NOW") {
			got = stamp.ReplaceAllString(got, "NOW")
		}
		if got != want {
			t.Errorf("line %d: %s\nwant %s", i+1, lines[i], want)
		}
	}
	p.create(t, "to", "1")
	p.want(t, first.stdout, "stored 4 records in to\n", "produce", "to", "--json")
	p.want(t, "", strings.ReplaceAll(first.stdout, `"from"`, `"to"`), "consume", "to", "-e", "-o", "json")

	for line, wrong := range map[string]string{
		`{"key":"k","valeu":"v"}`:                      `line 2: unknown field "valeu"`,
		`{"value":{"a":1}}`:                            `line 2: cannot unmarshal object`,
		`{"value":"a","value_base64":"YQ=="}`:          `line 2: both value and value_base64`,
		`{"value":"a"} {"value":"b"}`:                  `line 2: something follows`,
		`{"value":"a"`:                                 `line 2: not one JSON object`,
		`{"value":"\ud800"}`:                           `line 2: half of a surrogate pair`,
		"{\"value\":\"\xff\"}":                         `line 2: not UTF-8`,
		`{"value":"a","timestamp":"yesterday"}`:        `line 2: timestamp`,
		`{"value":"a","headers":[{"value":"no key"}]}`: `line 2: a header without a key`,
	} {
		out := p.fail(t, 1, wrong+`.*; stored 1 of 1 record read until then`, `{"value":"x"}`+"\n"+line+"\n"+`{"value":"never"}`+"\n", "produce", "to", "--json")
		if out != "stored 1 record in to\n" {
			t.Errorf("%s: %s", line, out)
		}
	}
	if r := p.run(t, "", "consume", "to", "-e"); strings.Contains(r.stdout, "never") {
		t.Errorf("records after a line that was refused:\n%s", r.stdout)
	}
}

func (p person) refused(t *testing.T) {
	p.create(t, "small", "1", "-c", "max.message.bytes=1000")
	var r struct{ Read, Stored, Failed, Unknown int }
	out := p.fail(t, 1, `line 2: MESSAGE_TOO_LARGE: `, "a\n"+strings.Repeat("x", 2000)+"\nb\n", "produce", "small", "-o", "json")
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Read != 3 || r.Stored != 2 || r.Failed != 1 || r.Unknown != 0 {
		t.Errorf("%v: %s", err, out)
	}
	p.want(t, "", "a\nb\n", "consume", "small", "-e")
	p.fail(t, 1, `stored 0 of 1 record, 1 failed`, "a\n", "produce", "small", "-p", "7")
	p.fail(t, 1, `INVALID_TOPIC_EXCEPTION`, "a\n", "produce", "not/a/name")
	p.fail(t, 1, `UNKNOWN_TOPIC_OR_PARTITION`, "", "consume", "nope", "-e")
	p.fail(t, 1, `topic small has no partition 7`, "", "consume", "small", "-p", "7")
	p.fail(t, 1, `no such file`, "", "produce", "small", "--file", "nope")
	p.want(t, "", "a\nb\n", "consume", "small", "-e")
}

func (p person) positions(t *testing.T) {
	p.create(t, "places", "2")
	var in strings.Builder
	for i := range 10 {
		fmt.Fprintf(&in, `{"value":"%d","timestamp":%d}`+"\n", i, 1_700_000_000_000+i*1000)
	}
	p.want(t, in.String(), "stored 10 records in places\n", "produce", "places", "-p", "1", "--json")
	for from, want := range map[string]string{
		"":                         "0123456789",
		"earliest":                 "0123456789",
		"latest":                   "",
		"7":                        "789",
		"99":                       "",
		"-3":                       "789",
		"-99":                      "0123456789",
		"@1700000004000":           "456789",
		"2023-11-14T22:13:25.500Z": "6789",
		"2023-11-14":               "0123456789",
		"1m":                       "",
	} {
		args := []string{"consume", "places", "-e", "-f", "%v"}
		if from != "" {
			args = append(args, "--from", from)
		}
		p.want(t, "", want, args...)
	}
	p.want(t, "", "", "consume", "places", "-e", "-p", "0")
	p.want(t, "", "34", "consume", "places", "--from", "3", "-p", "1", "-n", "2", "-f", "%v")
	p.want(t, "", "PARTITION  EARLIEST  LATEST  AT\n0          0         0       0\n1          0         10      4\n", "topic", "offsets", "places", "--at", "@1700000004000")
}

// closedPipe: a reader that goes away is no failure, whatever is printed.
func (p person) closedPipe(t *testing.T) {
	p.create(t, "long", "1")
	line := strings.Repeat("x", 1000) + "\n"
	p.want(t, strings.Repeat(line, 500), "stored 500 records in long\n", "produce", "long")
	for _, args := range [][]string{{"consume", "long"}, {"consume", "long", "-e", "-o", "json"}, {"consume", "long", "-g", "piped"}, {"topic", "list"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		proc := p.start(t, nil, w, args...)
		w.Close()
		if args[0] == "consume" {
			b := make([]byte, 10)
			if n, err := r.Read(b); err != nil || !bytes.ContainsAny(b[:n], "x{") {
				t.Errorf("%q printed %q, %v", args, b[:n], err)
			}
		}
		r.Close()
		if code := proc.end(t); code != 0 || proc.stderr.String() != "" {
			t.Errorf("%q: exit code %d\n%s", args, code, proc.stderr.String())
		}
	}
}
