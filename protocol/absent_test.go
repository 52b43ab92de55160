package protocol

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/types"
)

// optional calls fn for each list and each nullable field below v, the first
// element of lists included, with the field's path and the values that mean
// nothing: null, and empty where that is another one.
func optional(v reflect.Value, path string, fn func(path string, field reflect.Value, nothing map[string]reflect.Value)) {
	for i := range v.NumField() {
		f, ft := v.Field(i), v.Type().Field(i)
		if !ft.IsExported() || f.Type() == reflect.TypeFor[kmsg.Tags]() {
			continue
		}
		name := path + "." + ft.Name
		zero := reflect.Zero(f.Type())
		switch f.Kind() {
		case reflect.Struct:
			optional(f, name, fn)
		case reflect.Pointer:
			fn(name, f, map[string]reflect.Value{"null": zero, "empty": reflect.New(f.Type().Elem())})
		case reflect.Slice:
			fn(name, f, map[string]reflect.Value{"null": zero, "empty": reflect.MakeSlice(f.Type(), 0, 0)})
			if f.Type().Elem().Kind() == reflect.Struct && f.Len() > 0 {
				optional(f.Index(0), name+"[0]", fn)
			}
		}
	}
}

// TestC06EachFieldAbsent takes one list or nullable field after the other away,
// in each request of each version: it is answered readably, and no topic is made
// that the request does not name.
func TestC06EachFieldAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.autoCreate = true
	var asked kmsg.Request
	w.create = func(_ context.Context, s topic.Spec) (*topic.Topic, error) {
		named := false
		switch r := asked.(type) {
		case *kmsg.MetadataRequest:
			named = slices.ContainsFunc(r.Topics, func(rt kmsg.MetadataRequestTopic) bool {
				return rt.Topic != nil && *rt.Topic == s.Name || rt.Topic == nil && s.Name == "" && r.Version < 10 // which knows no null
			})
		case *kmsg.CreateTopicsRequest:
			named = slices.ContainsFunc(r.Topics, func(rt kmsg.CreateTopicsRequestTopic) bool { return rt.Topic == s.Name })
		}
		if !named {
			t.Errorf("key %d v%d made topic %q", asked.Key(), asked.GetVersion(), s.Name)
		}
		return nil, kerr.PolicyViolation
	}
	s := offline(w)
	fields := 0
	every(func(a *api, v int16) {
		filled := func() kmsg.Request {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			newFiller(uint64(a.key)).fill(req)
			plausible(req)
			return req
		}
		var paths []string
		optional(reflect.ValueOf(filled()).Elem(), "", func(path string, _ reflect.Value, _ map[string]reflect.Value) { paths = append(paths, path) })
		for _, path := range paths {
			for _, what := range []string{"null", "empty"} {
				req := filled()
				optional(reflect.ValueOf(req).Elem(), "", func(p string, f reflect.Value, nothing map[string]reflect.Value) {
					if p == path {
						f.Set(nothing[what])
					}
				})
				asked = req
				resp, err := treat(s, requestBytes(req, 1, ptr("id"), 0))
				if err != nil {
					t.Errorf("key %d v%d, %s %s: closed: %v", a.key, v, path, what, err)
					continue
				}
				if f, ok := resp.(*fetchResponse); ok {
					f.release()
				}
				back := kmsg.ResponseForKey(a.key)
				back.SetVersion(resp.GetVersion())
				if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
					t.Errorf("key %d v%d, %s %s: %v", a.key, v, path, what, err)
				}
				fields++
			}
		}
	})
	if fields < 900 {
		t.Errorf("only %d fields", fields)
	}
}

// TestC06ClusterWithoutTopics: all of none is an empty list, in each version.
func TestC06ClusterWithoutTopics(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.topics = nil
	s := startServer(t, w, nil)
	p := s.dial(t)
	versions(t, &metadataAPI, func(t *testing.T, v int16) {
		for _, asked := range [][]kmsg.MetadataRequestTopic{nil, {}} {
			r := ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{Topics: asked, AllowAutoTopicCreation: true})
			if len(r.Topics) != 0 || len(r.Brokers) != 1 || r.ErrorCode != 0 {
				t.Errorf("%v: %+v", asked, r)
			}
		}
	})
}

// nothing is what fields say beside an error, by their names, or by those of their
// struct and themselves. What has no value
// here must not be a list that is null.
var nothing = map[string]int64{
	"BaseOffset": -1, "LogAppendTime": -1, "LogStartOffset": -1,
	"HighWatermark": -1, "LastStableOffset": -1, "PreferredReadReplica": -1,
	"Offset": -1, "Timestamp": -1, "LeaderEpoch": -1,
	"ProducerID": -1, "ProducerEpoch": -1, "Generation": -1,
	"NodeID": -1, "Port": -1, "NumPartitions": -1, "ReplicationFactor": -1,
	"AuthorizedOperations": int64(notAsked), "ThrottleMillis": 0, "SessionID": 0, "ConfigErrorCode": 0,
	// Apache Kafka says zero here (test/e2e/txn).
	"DescribeTransactionsResponseTransactionState.ProducerID": 0, "DescribeTransactionsResponseTransactionState.ProducerEpoch": 0,
	"DescribeTransactionsResponseTransactionState.TimeoutMillis": 0, "DescribeTransactionsResponseTransactionState.StartTimestamp": 0,
	"TotalBytes": -1, "UsableBytes": -1, "LowWatermark": -1, "EndOffset": -1,
}

// echoed are fields that repeat the request.
var echoed = []string{"ErrorCode", "Version", "Partition", "ResourceType", "ControllerID", "EndpointType", "CoordinatorType"}

// emptyBeside checks each struct of a response that has an error, and returns
// how many those are.
func emptyBeside(t *testing.T, what string, v reflect.Value) (errors int) {
	failed := false
	if code := v.FieldByName("ErrorCode"); code.IsValid() && code.Int() != 0 {
		failed = true
		errors++
	}
	for i := range v.NumField() {
		f, ft := v.Field(i), v.Type().Field(i)
		if !ft.IsExported() || f.Type() == reflect.TypeFor[kmsg.Tags]() {
			continue
		}
		name := what + "." + ft.Name
		switch f.Kind() {
		case reflect.Struct:
			errors += emptyBeside(t, name, f)
		case reflect.Slice:
			if f.Type().Elem().Kind() == reflect.Struct {
				for j := range f.Len() {
					errors += emptyBeside(t, name, f.Index(j))
				}
			}
			// Aborted transactions, replicas and the like are optional.
			if failed && f.Type().Elem().Kind() == reflect.Uint8 && (f.IsNil() || f.Len() > 0) {
				t.Errorf("%s beside an error: %v", name, f)
			}
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			if !failed || slices.Contains(echoed, ft.Name) {
				continue
			}
			want, known := nothing[v.Type().Name()+"."+ft.Name]
			if !known {
				want, known = nothing[ft.Name]
			}
			if !known {
				t.Errorf("%s: no rule for it", name)
			} else if f.Int() != want {
				t.Errorf("%s beside an error: %d, want %d", name, f.Int(), want)
			}
		}
	}
	return errors
}

// TestC19NothingBesideErrors: whatever fails, each field beside the code has the
// value that means nothing, in each API and version.
func TestC19NothingBesideErrors(t *testing.T) {
	t.Parallel()
	failing := func(err error) *world {
		w := newWorld()
		for i := range int32(3) {
			w.log("t1", i).fail = err
		}
		w.log("t0", 0).fail = err
		w.create = func(context.Context, topic.Spec) (*topic.Topic, error) { return nil, err }
		w.delete = func(context.Context, *topic.Topic) error { return err }
		w.producerID = func() (int64, error) { return 7, err }
		g := &w.groups
		g.join = func(group.JoinRequest) group.JoinResponse {
			return group.JoinResponse{Err: err, Generation: 3, Leader: "l"}
		}
		g.sync = func(group.SyncRequest) group.SyncResponse {
			return group.SyncResponse{Err: err, Assignment: []byte("x")}
		}
		g.heartbeat = func(group.Membership) error { return err }
		g.leave = func(string, []group.LeaveMember) group.LeaveResponse { return group.LeaveResponse{Err: err} }
		g.commit = func(group.CommitRequest) group.CommitResponse { return group.CommitResponse{Err: err} }
		g.fetch = func(group.FetchRequest) group.FetchResponse { return group.FetchResponse{Err: err} }
		g.describe = func(string) group.Description { return group.Description{Err: err, State: group.Stable} }
		g.list = func(_, _ []string) ([]group.Listing, error) { return nil, err }
		g.delete = func(string) error { return err }
		w.txns = stubTransactions{
			init: func(txn.InitRequest) txn.InitResponse {
				return txn.InitResponse{Err: err, Producer: txn.Producer{ID: 5}}
			},
			addPartitions: func(txn.AddPartitionsRequest) txn.AddPartitionsResponse {
				return txn.AddPartitionsResponse{Err: err, N: 3}
			},
			addOffsets: func(txn.AddOffsetsRequest) txn.AddOffsetsResponse { return txn.AddOffsetsResponse{Err: err, N: 3} },
			end:        func(txn.EndRequest) txn.EndResponse { return txn.EndResponse{Err: err, Producer: txn.Producer{ID: 5}} },
			describe: func(string) txn.Description {
				return txn.Description{Err: err, State: txn.Ongoing, Start: 5, Producer: txn.Producer{ID: 5, Epoch: 5}}
			},
			list: func(txn.ListRequest) ([]txn.Listing, error) { return make([]txn.Listing, 1), err },
		}
		w.coordinator = func(string) int32 { return 99 } // nobody
		return w
	}
	for name, w := range map[string]*world{
		"store":   failing(errStore),
		"refused": failing(kerr.NotCoordinator),
		"lookup":  func() *world { w := failing(errStore); w.topicErr = errStore; return w }(),
		"unknown": func() *world { w := failing(errStore); w.topics = nil; return w }(),
	} {
		s := offline(w)
		every(func(a *api, v int16) {
			if a.key == 18 || a.key == 60 || a.key == 3 && name == "lookup" && v < 13 {
				return // nothing of theirs can fail, or the connection ends
			}
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			newFiller(uint64(v)).fill(req)
			plausible(req)
			aim(reflect.ValueOf(req).Elem(), w)
			resp, err := treat(s, requestBytes(req, 1, ptr("id"), 0))
			if err != nil {
				t.Errorf("%s, key %d v%d: closed: %v", name, a.key, v, err)
				return
			}
			back := kmsg.ResponseForKey(a.key)
			back.SetVersion(resp.GetVersion())
			if f, ok := resp.(*fetchResponse); ok {
				pieces, _ := f.encode(make([]byte, 8), 0)
				err = back.ReadFrom(slices.Concat(pieces...)[8:])
				f.release()
			} else {
				err = back.ReadFrom(resp.AppendTo(nil))
			}
			if err != nil {
				t.Errorf("%s, key %d v%d: %v", name, a.key, v, err)
				return
			}
			what := fmt.Sprintf("%s, %s v%d", name, kmsg.NameForKey(a.key), v)
			none := a.key == 3 && name != "lookup" && name != "unknown" // Metadata asks no partition
			// An offset of a topic that is not there is -1 without an error.
			none = none || a.key == 9 && name == "unknown"
			// Log dirs list the topics that there are, whatever their partitions do;
			// nothing is ever reassigned.
			none = none || a.key == 35 && name != "lookup" || a.key == 46
			// Before types there was one kind of resource, and none of it is here.
			none = none || a.key == 74 && v == 0
			if n := emptyBeside(t, what, reflect.ValueOf(back).Elem()); n == 0 && !none {
				t.Errorf("%s: no error", what)
			}
		})
	}
}

// aim makes a filled request one for what a world has.
func aim(v reflect.Value, w *world) {
	id := types.TopicID{1, 15: 1} // t0's
	for i := range v.NumField() {
		f, ft := v.Field(i), v.Type().Field(i)
		switch {
		case !ft.IsExported():
		case ft.Name == "TransactionalID":
			f.SetZero()
		case f.Type() == reflect.TypeFor[[16]byte]() || f.Type() == reflect.TypeFor[types.TopicID]():
			if v.Type() != reflect.TypeFor[kmsg.MetadataRequestTopic]() {
				f.Set(reflect.ValueOf([16]byte(id)))
			}
		case strings.HasPrefix(ft.Name, "Topic") && f.Kind() == reflect.String:
			f.SetString("t0")
		case ft.Name == "Topic" && f.Kind() == reflect.Pointer:
			f.Set(reflect.ValueOf(ptr("t0")))
		case f.Type() == reflect.TypeFor[[]int32]():
			f.Set(reflect.ValueOf([]int32{0}))
		case ft.Name == "Partition" && f.Kind() == reflect.Int32:
			f.SetInt(0)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			if f.Len() > 1 {
				f.Set(f.Slice(0, 1))
			}
			for j := range f.Len() {
				aim(f.Index(j), w)
			}
		}
	}
}
