package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A record in JSON is one line:
//
//	{"topic":"t","partition":0,"offset":7,"timestamp":"2026-11-30T08:15:00.123Z",
//	 "key":"k","value":"v","headers":[{"key":"h","value":"v"}]}
//
// null is Kafka's null, which is not empty. Bytes that are no UTF-8 text stand
// under key_base64 or value_base64 instead. What consume writes produce reads.

// timeLayout is RFC 3339 with Kafka's precision.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// jsonLine appends r as a line.
func jsonLine(b *bytes.Buffer, r *kgo.Record) {
	b.WriteString(`{"topic":`)
	jsonText(b, r.Topic)
	fmt.Fprintf(b, `,"partition":%d,"offset":%d,"timestamp":`, r.Partition, r.Offset)
	if t := r.Timestamp.UnixMilli(); t < 0 {
		b.WriteString("null")
	} else {
		b.WriteString(strconv.Quote(r.Timestamp.UTC().Format(timeLayout)))
	}
	b.WriteByte(',')
	jsonBytes(b, "key", r.Key)
	b.WriteByte(',')
	jsonBytes(b, "value", r.Value)
	b.WriteString(`,"headers":[`)
	for i, h := range r.Headers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		jsonBytes(b, "key", append([]byte{}, h.Key...))
		b.WriteByte(',')
		jsonBytes(b, "value", h.Value)
		b.WriteByte('}')
	}
	b.WriteString("]}\n")
}

func jsonText(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // a string cannot fail
	b.Truncate(b.Len() - 1) // its line end
}

func jsonBytes(b *bytes.Buffer, name string, v []byte) {
	switch {
	case v == nil:
		fmt.Fprintf(b, `"%s":null`, name)
	case utf8.Valid(v):
		fmt.Fprintf(b, `"%s":`, name)
		jsonText(b, string(v))
	default:
		fmt.Fprintf(b, `"%s_base64":"%s"`, name, base64.StdEncoding.EncodeToString(v))
	}
}

// jsonRecord is a record to produce. Where it was consumed from says nothing
// about where it goes.
type jsonRecord struct {
	Topic, Partition, Offset json.RawMessage
	Timestamp                json.RawMessage
	Key, Value               *string
	KeyBase64                *[]byte `json:"key_base64"`
	ValueBase64              *[]byte `json:"value_base64"`
	Headers                  []struct {
		Key, Value  *string
		KeyBase64   *[]byte `json:"key_base64"`
		ValueBase64 *[]byte `json:"value_base64"`
	}
}

// parseJSON reads a line. It refuses what it would lose: unknown fields, text
// that is no UTF-8, more than one object.
func parseJSON(line []byte) (*kgo.Record, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("not UTF-8: bytes go into key_base64 and value_base64")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var j jsonRecord
	if err := d.Decode(&j); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("not one JSON object")
		}
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	if halfPair(line, &j) {
		return nil, errors.New("half of a surrogate pair stands for no character")
	}
	r := &kgo.Record{}
	var err error
	if r.Key, err = oneOf("key", j.Key, j.KeyBase64); err != nil {
		return nil, err
	}
	if r.Value, err = oneOf("value", j.Value, j.ValueBase64); err != nil {
		return nil, err
	}
	for _, h := range j.Headers {
		k, err := oneOf("key", h.Key, h.KeyBase64)
		if err == nil && k == nil {
			err = errors.New("a header without a key")
		}
		if err != nil {
			return nil, err
		}
		v, err := oneOf("value", h.Value, h.ValueBase64)
		if err != nil {
			return nil, err
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(k), Value: v})
	}
	if r.Timestamp, err = jsonTime(j.Timestamp); err != nil {
		return nil, err
	}
	return r, nil
}

// halfPair says that the decoder has replaced an escape like \ud800.
func halfPair(line []byte, j *jsonRecord) bool {
	if !bytes.Contains(bytes.ToLower(line), []byte(`\ud`)) {
		return false
	}
	texts := []*string{j.Key, j.Value}
	for _, h := range j.Headers {
		texts = append(texts, h.Key, h.Value)
	}
	return slices.ContainsFunc(texts, func(s *string) bool { return s != nil && strings.ContainsRune(*s, utf8.RuneError) })
}

func oneOf(name string, text *string, data *[]byte) ([]byte, error) {
	switch {
	case text != nil && data != nil:
		return nil, fmt.Errorf("both %s and %s_base64", name, name)
	case text != nil:
		return append([]byte{}, *text...), nil
	case data != nil && *data != nil:
		return *data, nil
	}
	return nil, nil
}

// jsonTime reads RFC 3339 or milliseconds since 1970; zero is now.
func jsonTime(raw json.RawMessage) (time.Time, error) {
	s := strings.TrimSpace(string(raw))
	if s == "" || s == "null" {
		return time.Time{}, nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 {
		return time.UnixMilli(ms), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, strings.Trim(s, `"`)); err == nil && t.UnixMilli() >= 0 {
		return t, nil
	}
	return time.Time{}, errors.New("timestamp: RFC 3339 or milliseconds since 1970 are wanted")
}
