package client

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// formatHelp says what a template may hold, for help texts.
const formatHelp = `  %t topic   %p partition   %o offset   %T timestamp, ms since 1970   %d timestamp, RFC 3339
  %k key     %v value       %h headers, name=value,…   %K and %V lengths of key and value, -1 for null
  %% percent   \n \t \r \0 \\ \xHH`

// format writes a record into a template. null is what a key, value or header
// that is null is written as.
type format []func(b *bytes.Buffer, r *kgo.Record)

func parseFormat(s, null string) (format, error) {
	orNull := func(b *bytes.Buffer, v []byte) {
		if v == nil {
			b.WriteString(null)
		} else {
			b.Write(v)
		}
	}
	number := func(n func(r *kgo.Record) int64) func(*bytes.Buffer, *kgo.Record) {
		return func(b *bytes.Buffer, r *kgo.Record) { b.Write(strconv.AppendInt(b.AvailableBuffer(), n(r), 10)) }
	}
	length := func(v []byte) int64 {
		if v == nil {
			return -1
		}
		return int64(len(v))
	}
	verbs := map[byte]func(*bytes.Buffer, *kgo.Record){
		't': func(b *bytes.Buffer, r *kgo.Record) { b.WriteString(r.Topic) },
		'p': number(func(r *kgo.Record) int64 { return int64(r.Partition) }),
		'o': number(func(r *kgo.Record) int64 { return r.Offset }),
		'T': number(func(r *kgo.Record) int64 { return r.Timestamp.UnixMilli() }),
		'd': func(b *bytes.Buffer, r *kgo.Record) { b.WriteString(r.Timestamp.UTC().Format(timeLayout)) },
		'k': func(b *bytes.Buffer, r *kgo.Record) { orNull(b, r.Key) },
		'v': func(b *bytes.Buffer, r *kgo.Record) { orNull(b, r.Value) },
		's': func(b *bytes.Buffer, r *kgo.Record) { orNull(b, r.Value) }, // as kcat says it
		'K': number(func(r *kgo.Record) int64 { return length(r.Key) }),
		'V': number(func(r *kgo.Record) int64 { return length(r.Value) }),
		'S': number(func(r *kgo.Record) int64 { return length(r.Value) }),
		'h': func(b *bytes.Buffer, r *kgo.Record) {
			for i, h := range r.Headers {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(h.Key + "=")
				orNull(b, h.Value)
			}
		},
		'%': func(b *bytes.Buffer, _ *kgo.Record) { b.WriteByte('%') },
	}
	var f format
	for s != "" {
		text, rest, found := strings.Cut(s, "%")
		lit, err := unescape(text)
		if err != nil {
			return nil, err
		}
		if lit != "" {
			f = append(f, func(b *bytes.Buffer, _ *kgo.Record) { b.WriteString(lit) })
		}
		if !found {
			break
		}
		if rest == "" {
			return nil, errors.New("a % at the end: %% is a percent sign")
		}
		verb, ok := verbs[rest[0]]
		if !ok {
			return nil, fmt.Errorf("unknown %q", "%"+rest[:1])
		}
		f, s = append(f, verb), rest[1:]
	}
	return f, nil
}

// unescape reads \n, \t, \r, \0, \\ and \xHH.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", errors.New(`a \ at the end: \\ is a backslash`)
		}
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			n, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8)
			if err != nil || i+3 > len(s) {
				return "", errors.New(`\x takes two hexadecimal digits`)
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			return "", fmt.Errorf(`unknown \%s`, s[i:i+1])
		}
	}
	return b.String(), nil
}
