package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is one decoded request of one connection.
type request struct {
	kmsg.Request        // decoded, its version set
	conn         *conn  // peer address, software name, principal
	clientID     string // null is ""
}

// api is one row of the table that feeds ApiVersions, dispatch and
// docs/parity.md. Exactly one of serve and submit is set.
type api struct {
	key      int16
	min, max int16
	// anonymous APIs are served before login.
	anonymous bool
	// serve answers a request: exactly one of response and error is non-nil. An
	// error means "close without an answer" and is never one of Kafka's.
	serve func(h *handler, ctx context.Context, r *request) (kmsg.Response, error)
	// submit starts a request and returns a function that waits for its answer:
	// a nil response without error means that the client wants none. The next
	// submit of the connection runs before that wait; anything else after it.
	submit func(h *handler, ctx context.Context, r *request) (wait func() (kmsg.Response, error), err error)
}

// handler holds what the API functions share.
type handler struct {
	backend Backend
	config  Config
	apis    map[int16]*api
}

// apis lists every API that is served, in key order. Each row is declared in
// the file of its API.
var apis = []*api{}
