package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// groupKills are the points in the life of a group, and of producer ids.
var groupKills = []killRow{
	{"between JoinGroup and SyncGroup", "frame.read", betweenJoinAndSync},
	{"after the group write, before the answer", "record.stored", groupWritten},
	{"OffsetCommit written, not answered", "turn.stored", commitWritten},
	{"InitProducerId written, not answered", "ids.stored", idWritten},
}

// session is how long members may be silent: a row must be over in less.
const session = 20 * time.Second

// classic is a member of a group, over whichever gateway it is told to use.
type classic struct {
	id         string
	generation int32
	leader     bool
}

const groupName = "kill-group"

// coordinator waits until a gateway answers for the group with something else
// than "ask another", and returns its answer's code. Both gateways are asked in
// turn, as clients behind a balancer do.
func (k *killed) coordinator(peers []*peer, what string, f func(p *peer) error) {
	k.Helper()
	n := 0
	testkit.Poll(k, session, what, func() error {
		n++
		err := f(peers[n%len(peers)])
		if err == nil {
			return nil
		}
		var ke *kerr.Error
		if errors.As(err, &ke) && !kerr.IsRetriable(err) {
			k.Fatalf("%s: %v", what, err)
		}
		return err
	})
}

// joinRequest is the join of a member.
func joinRequest(id string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = groupName, int32(session.Milliseconds()), int32(session.Milliseconds())
	req.MemberID, req.ProtocolType = id, "consumer"
	rp := kmsg.NewJoinGroupRequestProtocol()
	rp.Name, rp.Metadata = "range", []byte("metadata")
	req.Protocols = append(req.Protocols, rp)
	return req
}

func syncRequest(m *classic, all []*classic) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID = groupName, m.generation, m.id
	kind, protocol := "consumer", "range"
	req.ProtocolType, req.Protocol = &kind, &protocol
	if m.leader {
		for i, o := range all {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = o.id, fmt.Appendf(nil, "share %d", i)
			req.GroupAssignment = append(req.GroupAssignment, a)
		}
	}
	return req
}

// gather has two members join one generation.
func (k *killed) gather() []*classic {
	k.Helper()
	return k.rejoin([]*peer{k.a, k.b}, []*classic{{}, {}})
}

// rejoin has members join, over the gateways of peers, until all are in one
// generation: the second may come after the first one's.
func (k *killed) rejoin(peers []*peer, before []*classic) []*classic {
	k.Helper()
	var members []*classic
	for _, m := range before {
		now := *m
		members = append(members, &now)
	}
	for round := 0; round == 0 || members[0].generation != members[1].generation; round++ {
		joined := make(chan error, len(members))
		for i, m := range members {
			var own []*peer // a connection is served in order, and a join waits
			for j := range peers {
				own = append(own, connect(k.T, peers[(i+j)%len(peers)].addr))
			}
			go func() { joined <- m.join(own) }()
		}
		for range members {
			if err := <-joined; err != nil {
				k.Fatalf("join: %v", err)
			}
		}
	}
	if members[0].leader == members[1].leader {
		k.Fatalf("members: %+v, %+v", *members[0], *members[1])
	}
	return members
}

// join joins, by whichever gateway takes it.
func (m *classic) join(peers []*peer) error {
	at := 0
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		r, err := ask[*kmsg.JoinGroupResponse](peers[at%len(peers)], joinRequest(m.id))
		if err != nil {
			return err
		}
		switch err := code(r.ErrorCode); {
		case err == nil:
			m.id, m.generation, m.leader = r.MemberID, r.Generation, r.LeaderID == r.MemberID
			return nil
		case errors.Is(err, kerr.MemberIDRequired):
			m.id = r.MemberID
		case !kerr.IsRetriable(err):
			return err
		default:
			at++
		}
	}
	return errors.New("not within 30 s")
}

// shares has all members fetch their assignment, the leader first, and checks
// that each has its own and is still a member.
func (k *killed) shares(peers []*peer, members []*classic) {
	k.Helper()
	order := members
	if members[1].leader {
		order = []*classic{members[1], members[0]}
	}
	owned := map[string]string{}
	for _, m := range order {
		k.coordinator(peers, "sync", func(p *peer) error {
			r, err := ask[*kmsg.SyncGroupResponse](p, syncRequest(m, members))
			if err == nil {
				err = code(r.ErrorCode)
			}
			if err == nil {
				owned[string(r.MemberAssignment)] = m.id
			}
			return err
		})
	}
	if owned["share 0"] != members[0].id || owned["share 1"] != members[1].id {
		k.Errorf("shares: %v", owned)
	}
	for _, m := range members {
		k.coordinator(peers, "heartbeat", func(p *peer) error { return k.beat(p, m) })
	}
}

// betweenJoinAndSync: members and generation are kept, each partition has one
// owner, all within the session timeout.
func betweenJoinAndSync(k *killed) {
	members := k.gather()
	m := members[0]
	if !m.leader {
		m = members[1]
	}
	must[*kmsg.ApiVersionsResponse](k.a, kmsg.NewPtrApiVersionsRequest())
	k.arm()
	lost(k.a, syncRequest(m, members)) // its first frame
	k.died()
	k.shares([]*peer{k.b}, members)
}

// groupWritten: as before, with the leader's shares stored already.
func groupWritten(k *killed) {
	members := k.gather()
	m := members[0]
	if !m.leader {
		m = members[1]
	}
	k.arm()
	for _, p := range []*peer{k.a, k.b} {
		// The gateway that does not own the group says so and lives.
		if r, err := ask[*kmsg.SyncGroupResponse](p, syncRequest(m, members)); err != nil || code(r.ErrorCode) == nil {
			break
		}
	}
	k.shares([]*peer{k.anyDied()}, members)
}

func commitRequest(m *classic, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID = groupName, m.generation, m.id
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "kill"
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// commit commits partition 0 of topic kill for a member, until it is accepted.
func (k *killed) commit(peers []*peer, m *classic, offset int64) {
	k.Helper()
	k.coordinator(peers, "commit", func(p *peer) error {
		r, err := ask[*kmsg.OffsetCommitResponse](p, commitRequest(m, offset))
		if err == nil {
			err = code(r.Topics[0].Partitions[0].ErrorCode)
		}
		return err
	})
}

// committed is what is committed of partition 0 of topic kill.
func (k *killed) committed(peers []*peer) (offset int64) {
	k.Helper()
	k.coordinator(peers, "the committed offset", func(p *peer) error {
		req := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = "kill", []int32{0}
		g.Group, g.Topics = groupName, append(g.Topics, gt)
		req.Groups = append(req.Groups, g)
		r, err := ask[*kmsg.OffsetFetchResponse](p, req)
		if err != nil {
			return err
		}
		if err := code(r.Groups[0].ErrorCode); err != nil {
			return err
		}
		sp := r.Groups[0].Topics[0].Partitions[0]
		offset = sp.Offset
		return code(sp.ErrorCode)
	})
	return offset
}

// beat is one heartbeat.
func (k *killed) beat(p *peer, m *classic) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = groupName, m.generation, m.id
	r, err := ask[*kmsg.HeartbeatResponse](p, req)
	if err != nil {
		return err
	}
	return code(r.ErrorCode)
}

// commitWritten: what was committed is seen through every gateway, and stays.
func commitWritten(k *killed) {
	k.b.create("kill", 1)
	members := k.gather()
	both := []*peer{k.a, k.b}
	k.shares(both, members)
	k.commit(both, members[0], 5)
	k.arm()
	for _, p := range both {
		if r, err := ask[*kmsg.OffsetCommitResponse](p, commitRequest(members[0], 7)); err != nil || code(r.Topics[0].Partitions[0].ErrorCode) == nil {
			break
		}
	}
	if got := k.committed([]*peer{k.anyDied()}); got != 7 {
		k.Errorf("%d is committed, want 7", got)
	}
}

// idWritten: the retry gets another id than all before.
func idWritten(k *killed) {
	before := k.b.producer()
	k.arm()
	lost(k.a, kmsg.NewPtrInitProducerIDRequest())
	k.died()
	a := k.again()
	ids := map[int64]bool{before: true}
	for _, p := range []*peer{k.b, a, k.b, a} {
		id := p.producer()
		if ids[id] {
			k.Errorf("producer id %d was given twice", id)
		}
		ids[id] = true
	}
}
