package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments (key 46, v0) lists partitions whose replicas are
// on the move. Nobody can begin that (see AlterPartitionReassignments), so that
// there are none; a topic that does not exist is no error, as in Kafka.
// kafka-topics --describe asks each time.
var listReassignmentsAPI = api{key: 46, min: 0, max: 0, lends: true, serve: (*handler).listReassignments}

func (h *handler) listReassignments(_ context.Context, r *request) (kmsg.Response, error) {
	return r.Request.(*kmsg.ListPartitionReassignmentsRequest).ResponseKind(), nil
}
