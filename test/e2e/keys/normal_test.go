package keys

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// normal is an answer in one line, without what differs from run to run or is
// about the machine: throttle time, topic ids, bytes, paths, member ids.
func normal(t testing.TB, resp kmsg.Response) string {
	t.Helper()
	b, err := json.Marshal(resp)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(clean(v)); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(out.Bytes()))
}

// at is what Kafka writes behind a text of its own code: an object's address.
var at = regexp.MustCompile(`@[0-9a-f]{5,}`)

func clean(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = clean(v[i])
		}
	case map[string]any:
		delete(v, "Version")
		delete(v, "ThrottleMillis")
		delete(v, "UnknownTags")
		for k := range v {
			switch k {
			case "TopicID":
				v[k] = known(v[k])
			case "SessionID":
				v[k] = v[k] != json.Number("0")
			case "AbortedTransactions":
				if list, ok := v[k].([]any); ok && len(list) == 0 {
					v[k] = nil // Kafka: empty beside some errors, null beside others
				}
			case "RecordBatches":
				v[k] = records(v[k])
			case "Dir":
				v[k] = v[k] != ""
			case "ProducerID":
				v[k] = v[k] != json.Number("-1")
			case "Size", "TotalBytes", "UsableBytes", "LastTimestamp":
				v[k] = sign(v[k])
			default:
				v[k] = clean(v[k])
			}
		}
	case string:
		return at.ReplaceAllString(v, "@…")
	}
	return v
}

// records says at which offset they begin.
func records(b any) any {
	p, err := base64.StdEncoding.DecodeString(fmt.Sprint(b))
	if err != nil || len(p) < 8 {
		return b
	}
	return fmt.Sprintf("from %d", binary.BigEndian.Uint64(p))
}

// known says whether an id is there.
func known(id any) string {
	for _, b := range id.([]any) {
		if b != json.Number("0") {
			return "set"
		}
	}
	return "zero"
}

// sign keeps of a number of bytes whether there are any, none (0), or nobody
// knows (−1).
func sign(n any) any {
	switch n {
	case json.Number("0"), json.Number("-1"):
		return n
	}
	return "some"
}
