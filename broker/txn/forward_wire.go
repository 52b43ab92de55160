package txn

import (
	"context"

	"github.com/hanzoai/stream/broker/coord"
)

// initCall and endCall name the request of a client that they are copies of: what
// is repeated because no answer came must not be done twice (DESIGN.md).
type initCall struct {
	InitRequest
	Request string
}

type endCall struct {
	EndRequest
	Request string
}

type method[Q, A any] = coord.Method[*Coordinator, Q, A]

var (
	initMethod = &method[initCall, InitResponse]{
		Name:  "txn.init",
		Local: (*Coordinator).init,
		Errs:  func(a *InitResponse, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(_ initCall, err error) InitResponse { return InitResponse{Err: err, Producer: NoProducer} },
	}
	addPartitionsMethod = &method[AddPartitionsRequest, AddPartitionsResponse]{
		Name:  "txn.add-partitions",
		Local: (*Coordinator).AddPartitions,
		Errs:  func(a *AddPartitionsResponse, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(_ AddPartitionsRequest, err error) AddPartitionsResponse { return AddPartitionsResponse{Err: err} },
	}
	addOffsetsMethod = &method[AddOffsetsRequest, AddOffsetsResponse]{
		Name:  "txn.add-offsets",
		Local: (*Coordinator).AddOffsets,
		Errs:  func(a *AddOffsetsResponse, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(_ AddOffsetsRequest, err error) AddOffsetsResponse { return AddOffsetsResponse{Err: err} },
	}
	endMethod = &method[endCall, EndResponse]{
		Name:  "txn.end",
		Local: (*Coordinator).end,
		Errs:  func(a *EndResponse, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(_ endCall, err error) EndResponse { return EndResponse{Err: err, Producer: NoProducer} },
	}
	describeMethod = &method[string, Description]{
		Name:  "txn.describe",
		Local: func(co *Coordinator, ctx context.Context, id string) Description { return co.Describe(ctx, id) },
		Errs:  func(a *Description, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(id string, err error) Description { return Description{Err: err, TransactionalID: id} },
	}
)

// serve carries out what other gateways ask, until end is called.
func (co *Coordinator) serve() (end func()) {
	calls := co.d.Calls
	if calls == nil {
		return func() {}
	}
	code := coord.Code(co.d.Code)
	cancels := []func(){
		initMethod.Handle(calls, co, code), addPartitionsMethod.Handle(calls, co, code), addOffsetsMethod.Handle(calls, co, code),
		endMethod.Handle(calls, co, code), describeMethod.Handle(calls, co, code),
	}
	return func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}
