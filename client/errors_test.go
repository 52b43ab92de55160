package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestPartly(t *testing.T) {
	t.Parallel()
	down := kadm.ShardError{Err: io.EOF, Broker: kadm.BrokerDetail{NodeID: 3}}
	if missing, err := partly(&kadm.ShardErrors{Errs: []kadm.ShardError{down}}); err != nil || missing != "no answer from 1 of the brokers, first 3: EOF" {
		t.Errorf("%q, %v", missing, err)
	}
	for _, err := range []error{nil, kerr.NotController, &kadm.ShardErrors{AllFailed: true, Errs: []kadm.ShardError{down}}} {
		if missing, got := partly(err); missing != "" || !errors.Is(got, err) {
			t.Errorf("%v: %q, %v", err, missing, got)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9}, Err: syscall.ECONNREFUSED}
	c := &conn{seeds: []string{"h:1"}, reached: true}
	for _, x := range []struct {
		err  error
		code int
		text string
		hint string
	}{
		{kerr.TopicAuthorizationFailed, Failed, "TOPIC_AUTHORIZATION_FAILED: Not authorized", ""},
		{fmt.Errorf("unable to dial: %w", dial), Unreachable, "no answer from h:1: unable to dial", "tells its clients to connect to 192.0.2.1:9"},
		{&kadm.ShardErrors{AllFailed: true, Errs: []kadm.ShardError{{Err: io.EOF}}}, Unreachable, "no answer from h:1: EOF", "is the server running there?"},
		{context.DeadlineExceeded, Unreachable, "timed out", "is the server running there?"},
		{errors.New("else"), Failed, "else", ""},
	} {
		e := (*Error)(nil)
		if err := c.classify(x.err); !errors.As(err, &e) || e.Code != x.code || !strings.Contains(e.Error(), x.text) || !strings.Contains(e.Hint, x.hint) {
			t.Errorf("%v: %+v", x.err, e)
		}
	}
	// The time may be over between two attempts.
	for _, x := range []struct {
		id   int32
		err  error
		hint string
	}{
		{-1 << 31, dial, "is the server running there?"},
		{1, dial, "tells its clients to connect to 192.0.2.1:9"},
		{1, nil, "is the server running there?"},
	} {
		c.astray.OnBrokerConnect(kgo.BrokerMetadata{NodeID: x.id}, 0, nil, x.err)
		if e := (*Error)(nil); !errors.As(c.classify(context.DeadlineExceeded), &e) || !strings.Contains(e.Hint, x.hint) {
			t.Errorf("node %d, %v: %+v", x.id, x.err, e)
		}
	}
	if got := refusal(kerr.InvalidConfig, "retention.ms: \x1b[1mno\n"); got != `INVALID_CONFIG: retention.ms: \x1b[1mno` {
		t.Errorf("a broker's words: %q", got)
	}
}
