package protocol

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is one decoded request of one connection.
type request struct {
	kmsg.Request        // decoded, its version set
	conn         *conn  // peer host, client software, listener
	clientID     string // null is ""
	frame        *frame // whose bytes Request's []byte fields share; nil if nobody counts
	// ready, set by submit, tells without blocking whether wait would return at
	// once: answers that are ready together are written together.
	ready func() bool
}

// api is one row of the table that feeds ApiVersions, dispatch and
// docs/parity.md. Exactly one of serve and submit is set.
type api struct {
	key      int16
	min, max int16
	// anonymous APIs are served before login.
	anonymous bool
	// lends says that nothing of a decoded request is kept once it was
	// answered, so that its bytes may serve the next one. A request's []byte
	// fields share the frame's bytes, so APIs that hand such a field on to
	// somebody who may keep it (JoinGroup, SyncGroup) must not set it.
	lends bool
	// large APIs' answers may be much larger than their requests: they are made
	// a few at a time, see answers.
	large bool
	// serve answers a request: exactly one of response and error is non-nil. An
	// error means "close without an answer" and is never one of Kafka's. The
	// response's version is set, as ResponseKind does. ctx ends when the
	// connection is cut, and some time after its client has left.
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
	served  []*api // the same, in key order
	// draining is closed when the server begins to drain: requests that wait
	// for something to happen answer early then.
	draining <-chan struct{}
	answers  *answers
	limits   *limits
	sessions *fetchSessions
	missed   missed
}

// brokers are the brokers as one client is to be told them: a node without a host
// is reached by whatever address of ours this client has reached.
func (h *handler) brokers(r *request) Brokers {
	b := h.backend.Brokers()
	for i := range b.Nodes {
		if b.Nodes[i].Host == "" {
			b.Nodes = slices.Clone(b.Nodes)
			for j := range b.Nodes {
				if b.Nodes[j].Host == "" {
					b.Nodes[j].Host = r.conn.local
				}
			}
			break
		}
	}
	return b
}

// apis lists every API that is served, in key order. Each row is declared in
// the file of its API.
var apis = []*api{
	&produceAPI,
	&fetchAPI,
	&listOffsetsAPI,
	&metadataAPI,
	&offsetCommitAPI,
	&offsetFetchAPI,
	&findCoordinatorAPI,
	&joinGroupAPI,
	&heartbeatAPI,
	&leaveGroupAPI,
	&syncGroupAPI,
	&describeGroupsAPI,
	&listGroupsAPI,
	&apiVersionsAPI,
	&createTopicsAPI,
	&deleteTopicsAPI,
	&deleteRecordsAPI,
	&initProducerIDAPI,
	&offsetForLeaderEpochAPI,
	&addPartitionsToTxnAPI,
	&addOffsetsToTxnAPI,
	&endTxnAPI,
	&writeTxnMarkersAPI,
	&txnOffsetCommitAPI,
	&describeConfigsAPI,
	&alterConfigsAPI,
	&describeLogDirsAPI,
	&createPartitionsAPI,
	&deleteGroupsAPI,
	&electLeadersAPI,
	&incrementalAlterConfigsAPI,
	&alterReassignmentsAPI,
	&listReassignmentsAPI,
	&offsetDeleteAPI,
	&describeClusterAPI,
	&describeProducersAPI,
	&describeTransactionsAPI,
	&listTransactionsAPI,
	&listConfigResourcesAPI,
	&describeTopicPartitionsAPI,
}
