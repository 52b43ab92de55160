package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/logging"
)

// maxLine is how long a line may be: more than any server takes.
const maxLine = 64 << 20

// inputLine is a line of input, or why there are no more.
type inputLine struct {
	number int64 // from 1
	text   []byte
	end    int64 // bytes read so far
	err    error
}

// readLines sends the lines of r, and closes the channel at its end. Reading
// cannot be interrupted: after Ctrl-C the goroutine stays until the process
// ends.
func readLines(r io.Reader) <-chan inputLine {
	c := make(chan inputLine, 256)
	go func() {
		defer close(c)
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 64<<10), maxLine)
		var l inputLine
		for s.Scan() {
			l.number++
			l.end += int64(len(s.Bytes())) + 1
			l.text = append([]byte{}, s.Bytes()...)
			c <- l
		}
		if err := s.Err(); err != nil {
			if errors.Is(err, bufio.ErrTooLong) {
				err = fmt.Errorf("longer than %d bytes", maxLine)
			}
			c <- inputLine{number: l.number + 1, err: err}
		}
	}()
	return c
}

func headerFlags(cmd *cobra.Command, in []string) ([]kgo.RecordHeader, error) {
	var out []kgo.RecordHeader
	for _, h := range in {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return nil, usage(cmd, "--header %q: name=value is wanted", logging.Printable(h))
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

// lineParser makes records of plain lines.
func lineParser(cmd *cobra.Command, f produceFlags, headers []kgo.RecordHeader) (func([]byte) (*kgo.Record, error), error) {
	changed := cmd.Flags().Changed
	nulls := changed("null-value")
	orNull := func(b []byte) []byte {
		if nulls && string(b) == f.null {
			return nil
		}
		return b
	}
	var separator []byte
	if changed("key-separator") {
		s, err := unescape(f.separator)
		if err != nil {
			return nil, usage(cmd, "--key-separator: %w", err)
		}
		if s == "" {
			return nil, usage(cmd, "--key-separator is empty")
		}
		separator = []byte(s)
	}
	var key []byte
	if changed("key") {
		key = []byte(f.key)
	}
	return func(line []byte) (*kgo.Record, error) {
		r := &kgo.Record{Key: key, Headers: headers}
		if separator != nil {
			k, v, ok := bytes.Cut(line, separator)
			if !ok {
				return nil, fmt.Errorf("no key separator %q", separator)
			}
			r.Key, line = orNull(k), v
		}
		r.Value = orNull(line)
		return r, nil
	}, nil
}
