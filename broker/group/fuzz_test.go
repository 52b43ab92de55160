package group

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/types"
)

// FuzzForwarded: what gateways ask each other about groups, and answer, may be
// anything. What can be read reads the same after another trip, with each error in
// its place.
func FuzzForwarded(f *testing.F) {
	instance := "i"
	code := func(err error) int16 {
		if e := (*kerr.Error)(nil); errors.As(err, &e) {
			return e.Code
		}
		return -1
	}
	add := func(which byte, q any, encode func() ([]byte, error)) {
		request, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		answer, err := encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(which, request)
		f.Add(which, answer)
	}
	add(0, JoinRequest{Group: "g", Instance: &instance, Protocols: []Protocol{{Name: "range", Metadata: []byte{0, 255}}}}, func() ([]byte, error) {
		return joinMethod.Encode(&JoinResponse{Generation: 3, Members: []JoinMember{{Member: "m", Metadata: []byte{1}}}}, code)
	})
	add(1, SyncRequest{Assignments: []Assignment{{Member: "m", Data: []byte{7}}}}, func() ([]byte, error) {
		return syncMethod.Encode(&SyncResponse{Err: kerr.RebalanceInProgress}, code)
	})
	add(2, Membership{Group: "g", Member: "m", Generation: -1}, func() ([]byte, error) { return heartbeatMethod.Encode(&outcome{kerr.FencedInstanceID}, code) })
	add(3, leaveRequest{Group: "g", Members: []LeaveMember{{Member: "m"}}}, func() ([]byte, error) {
		return leaveMethod.Encode(&LeaveResponse{Members: []LeaveResult{{LeaveMember{Member: "m"}, kerr.UnknownMemberID}}}, code)
	})
	tp := types.TopicPartition{Topic: "t", Partition: 1}
	add(4, CommitRequest{Partitions: []CommitPartition{{TopicPartition: tp, Offset: 1 << 60, Metadata: &instance}}, Txn: &TxnCommit{ProducerID: 1, N: 2}}, func() ([]byte, error) {
		return commitMethod.Encode(&CommitResponse{Partitions: []error{nil, kerr.OffsetMetadataTooLarge}}, code)
	})
	add(5, FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: tp, TopicID: types.NewTopicID()}}}, func() ([]byte, error) {
		return fetchMethod.Encode(&FetchResponse{Offsets: []CommittedOffset{{TopicPartition: tp, Offset: -1, Err: kerr.UnstableOffsetCommit}}}, code)
	})
	add(6, nameRequest{"g"}, func() ([]byte, error) { return describeMethod.Encode(&Description{Group: "g", State: Stable}, code) })
	add(7, nameRequest{"g"}, func() ([]byte, error) { return deleteMethod.Encode(&outcome{kerr.NonEmptyGroup}, code) })
	add(8, endRequest{"g", TxnEnd{ProducerID: 1, N: 2, Commit: true}}, func() ([]byte, error) { return endMethod.Encode(&outcome{}, code) })
	add(9, deleteOffsetsRequest{"g", []types.TopicPartition{tp}}, func() ([]byte, error) {
		return deleteOffsetsMethod.Encode(&DeleteOffsetsResponse{Err: kerr.GroupIDNotFound}, code)
	})
	trips := []func(*testing.T, []byte){
		tripOf(joinMethod, code), tripOf(syncMethod, code), tripOf(heartbeatMethod, code), tripOf(leaveMethod, code), tripOf(commitMethod, code),
		tripOf(fetchMethod, code), tripOf(describeMethod, code), tripOf(deleteMethod, code), tripOf(endMethod, code), tripOf(deleteOffsetsMethod, code),
	}
	f.Fuzz(func(t *testing.T, which byte, in []byte) { trips[int(which)%len(trips)](t, in) })
}

// tripOf sends what can be read of some bytes on a trip, as a request and as an answer.
func tripOf[Q, A any](m *method[Q, A], code func(error) int16) func(*testing.T, []byte) {
	return func(t *testing.T, in []byte) {
		var q, again Q
		if json.Unmarshal(in, &q) == nil {
			b, err := json.Marshal(q)
			if err == nil {
				err = json.Unmarshal(b, &again)
			}
			c, _ := json.Marshal(again)
			if err != nil || !bytes.Equal(b, c) {
				t.Fatalf("%s: request %+v became %+v, %v", m.Name, q, again, err)
			}
		}
		a, err := m.Decode(in)
		if err != nil {
			return
		}
		b, err := m.Encode(&a, code)
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		o, err := m.Decode(b)
		if err != nil {
			t.Fatalf("%s: answer %+v became %+v, %v", m.Name, a, o, err)
		}
		had, has := m.Errs(&a, -1), m.Errs(&o, -1)
		if len(had) != len(has) {
			t.Fatalf("%s: %d errors became %d", m.Name, len(had), len(has))
		}
		for i := range had {
			if !reflect.DeepEqual(*had[i], *has[i]) {
				t.Fatalf("%s: error %d was %v, is %v", m.Name, i, *had[i], *has[i])
			}
		}
	}
}
