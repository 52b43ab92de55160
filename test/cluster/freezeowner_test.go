package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// ownerFreeze is a moment in the work of a coordinator at which it freezes.
type ownerFreeze struct {
	name string
	ci   bool
	// point is the moment; %s is the row's topic, transactional id or group.
	point string
	test  func(o *owned)
}

// owned is one row's world: two gateways, each at an address of its own, of which
// the one that is the row's coordinator freezes.
type owned struct {
	*freezing
	name  string // of what the row is about
	point string
}

var txnFreezes = []ownerFreeze{
	{"EndTxn, the decision", true, kv + "txns.%s", frozenDecision},
	{"EndTxn, a marker", true, sending + "kafka.%s.1", func(o *owned) { frozenEnd(o) }},
	{"EndTxn, what follows the markers", false, "txn.told>" + kv + "txns.%s", func(o *owned) { frozenEnd(o) }},
}

var groupFreezes = []ownerFreeze{
	{"OffsetCommit, the first of a partition", true, kv + "consumer-offsets." + groupName + ".kill.0", frozenFirstCommit},
	{"OffsetCommit", false, kv + "consumer-offsets." + groupName + ".kill.0", frozenCommit},
	{"JoinGroup, the record", true, kv + "consumer-offsets." + groupName, frozenJoin},
	{"DeleteGroups, the record that hides it", false, kv + "consumer-offsets." + groupName, frozenDelete},
	{"DeleteGroups, an offset", false, kv + "consumer-offsets." + groupName + ".kill.0", frozenDelete},
	{"DeleteGroups, the end of the record", false, kv + "consumer-offsets." + groupName + ":2", frozenDelete},
}

// TestFrozenTransactions: coordinators freeze in the middle of the end of a
// transaction. Another one ends it, and its producer begins the next; then they
// wake up, and neither a decision nor a marker of theirs counts.
func TestFrozenTransactions(t *testing.T) {
	t.Parallel()
	frozenOwners(t, txnFreezes)
}

// TestFrozenGroups: coordinators freeze in the middle of what changes a group or
// its offsets. The group goes on at another one; then they wake up, and nothing
// goes back.
func TestFrozenGroups(t *testing.T) {
	t.Parallel()
	frozenOwners(t, groupFreezes)
}

func frozenOwners(t *testing.T, rows []ownerFreeze) {
	z := newFreezing(t, shape{gateways: 2, mode: perGateway})
	z.peers[0].create("kill", 1)
	for i, r := range rows {
		if !r.ci && !allFreezes {
			continue
		}
		for _, by := range variants() {
			t.Run(fmt.Sprintf("%s, late by %v", r.name, by), func(t *testing.T) {
				inner := *z
				inner.T = t
				for i, g := range z.w.gateways {
					inner.peers[i] = connectNew(t, g.Addr)
				}
				name := fmt.Sprintf("owned%d-%v", i, by)
				r.test(&owned{&inner, name, delayed(strings.ReplaceAll(r.point, "%s", name), by)})
				inner.explained()
			})
		}
	}
}

// coordinator is the gateway that is told to clients as the coordinator.
func (z *freezing) coordinator(kind int8, key string) (owner, other int) {
	z.Helper()
	testkit.Poll(z, session, "the coordinator of "+key, func() error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKeys = kind, []string{key}
		r, err := ask[*kmsg.FindCoordinatorResponse](z.peers[0], req)
		if err != nil {
			return err
		}
		c := r.Coordinators[0]
		if err := code(c.ErrorCode); err != nil {
			return err
		}
		for i, g := range z.w.gateways {
			if g.Addr == fmt.Sprintf("%s:%d", c.Host, c.Port) {
				owner, other = i, 1-i
				return nil
			}
		}
		return fmt.Errorf("%s:%d is no gateway", c.Host, c.Port)
	})
	return owner, other
}

// Kinds of coordinators.
const (
	ofGroup = 0
	ofTxn   = 1
)

// freezeOwner sends a request to a coordinator, which freezes over it.
func freezeOwner[R kmsg.Response](o *owned, owner int, req kmsg.Request, code func(R) int16) (answer <-chan int16, subject string) {
	o.Helper()
	o.arm(owner, o.point)
	answer = late(o.peers[owner], req, code)
	subject = o.froze(owner, o.point)
	o.heldDead()
	return answer, subject
}

// transaction begins one of the row's producer on three partitions of its topic.
func (o *owned) transaction() (x transactional, owner, other int) {
	o.Helper()
	o.peers[0].create(o.name, 3)
	x = begin(o, o.peers, o.name, txnLimit)
	for p := range int32(3) {
		written(o, o.peers, x, o.name, p, 0, "a")
	}
	owner, other = o.coordinator(ofTxn, o.name)
	return x, owner, other
}

func endCode(r *kmsg.EndTxnResponse) int16 { return r.ErrorCode }

// frozenDecision: the producer has the transaction aborted by the next coordinator;
// the commit that the frozen one was about to store is none.
func frozenDecision(o *owned) {
	x, owner, other := o.transaction()
	answer, subject := freezeOwner(o, owner, x.endRequest(true), endCode)
	alive := []*peer{o.peers[other]}
	next := ended(o, alive, x, false)
	settled(o, alive[0], o.name, 3, patience)
	o.wake(owner, subject)
	if c := <-answer; c == 0 {
		o.Error("a commit that was late is accepted")
	}
	o.again(owner)
	o.peers[owner] = connectNew(o.T, o.w.gateways[owner].Addr)
	for _, p := range o.peers {
		for n := range int32(3) {
			p.wantLog(o.name, n, "a abort", "")
		}
	}
	o.goesOn(next, "a abort", "")
}

// frozenEnd: the next coordinator ends the transaction as it was decided, and its
// producer has begun the next one when the frozen one goes on with it.
func frozenEnd(o *owned) {
	x, owner, other := o.transaction()
	answer, subject := freezeOwner(o, owner, x.endRequest(true), endCode)
	alive := []*peer{o.peers[other]}
	next := ended(o, alive, x, true)
	settled(o, alive[0], o.name, 3, patience)
	for n := range int32(3) {
		written(o, alive, next, o.name, n, 0, "b")
	}
	o.wake(owner, subject)
	<-answer // it may have been told in time
	o.again(owner)
	o.peers[owner] = connectNew(o.T, o.w.gateways[owner].Addr)
	for _, p := range o.peers {
		for n := range int32(3) {
			p.wantLog(o.name, n, "a commit b", "a")
			if stable, end, err := p.bounds(o.name, n); err != nil || stable >= end {
				o.Errorf("partition %d is stable up to %d of %d while a transaction is open: %v", n, stable, end, err)
			}
		}
	}
	next = ended(o, o.peers, next, false)
	settled(o, o.peers[owner], o.name, 3, patience)
	o.goesOn(next, "a commit b abort", "a")
}

// goesOn has the producer make one more transaction, at whichever gateway.
func (o *owned) goesOn(x transactional, all, committed string) {
	o.Helper()
	written(o, o.peers, x, o.name, 0, 0, "c")
	ended(o, o.peers, x, true)
	settled(o, o.peers[0], o.name, 1, patience)
	for _, p := range o.peers {
		p.wantLog(o.name, 0, all+" c commit", strings.TrimSpace(committed+" c"))
	}
}

// group has two members gather, and names the coordinator.
func (o *owned) group() (k *killed, members []*classic, owner, other int) {
	o.Helper()
	k = &killed{T: o.T, w: o.w, a: o.peers[0], b: o.peers[1]}
	members = k.gather()
	k.shares(o.peers, members)
	owner, other = o.coordinator(ofGroup, groupName)
	return k, members, owner, other
}

func commitCode(r *kmsg.OffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }

// frozenFirstCommit: nothing is committed, says the next coordinator, and it stays so.
func frozenFirstCommit(o *owned) {
	k, members, owner, other := o.group()
	answer, subject := freezeOwner(o, owner, commitRequest(members[0], 7), commitCode)
	o.lateCommit(k, members, owner, other, answer, subject, -1)
}

// frozenCommit: another offset is committed meanwhile, and stays so.
func frozenCommit(o *owned) {
	k, members, owner, other := o.group()
	k.commit(o.peers, members[0], 5)
	answer, subject := freezeOwner(o, owner, commitRequest(members[0], 7), commitCode)
	k.commit([]*peer{o.peers[other]}, members[0], 9)
	o.lateCommit(k, members, owner, other, answer, subject, 9)
}

func (o *owned) lateCommit(k *killed, members []*classic, owner, other int, answer <-chan int16, subject string, want int64) {
	o.Helper()
	alive := []*peer{o.peers[other]}
	if got := k.committed(alive); got != want {
		o.Errorf("%d is committed, want %d", got, want)
	}
	k.shares(alive, members)
	o.wake(owner, subject)
	if c := <-answer; c == 0 {
		o.Error("a commit that was late is accepted")
	}
	o.again(owner)
	if got := k.committed(o.peers); got != want {
		o.Errorf("%d is committed when the other one is awake, want %d", got, want)
	}
	k.shares(o.peers, members)
	k.leave(o.peers, members)
}

// frozenJoin: the rebalance that the frozen one was about to begin never does.
func frozenJoin(o *owned) {
	k, members, owner, other := o.group()
	leader := members[0]
	if members[1].leader {
		leader = members[1]
	}
	answer, subject := freezeOwner(o, owner, joinRequest(leader.id), func(r *kmsg.JoinGroupResponse) int16 { return r.ErrorCode })
	alive := []*peer{o.peers[other]}
	k.shares(alive, members)
	k.commit(alive, members[0], 11)
	o.wake(owner, subject)
	if c := <-answer; c == 0 {
		o.Error("a join that was late is accepted")
	}
	o.again(owner)
	k.shares(o.peers, members)
	if got := k.committed(o.peers); got != 11 {
		o.Errorf("%d is committed, want 11", got)
	}
	k.leave(o.peers, members)
}

// frozenDelete: the group has been made again, by a commit, which stays.
func frozenDelete(o *owned) {
	k, simple := &killed{T: o.T, w: o.w, a: o.peers[0], b: o.peers[1]}, &classic{generation: -1}
	k.commit(o.peers, simple, 5)
	owner, other := o.coordinator(ofGroup, groupName)
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{groupName}
	answer, subject := freezeOwner(o, owner, req, func(r *kmsg.DeleteGroupsResponse) int16 { return r.Groups[0].ErrorCode })
	k.commit([]*peer{o.peers[other]}, simple, 3)
	o.wake(owner, subject)
	<-answer // it was deleted, or was not
	o.again(owner)
	if got := k.committed(o.peers); got != 3 {
		o.Errorf("%d is committed, want 3", got)
	}
}

// leave has members leave their group.
func (k *killed) leave(peers []*peer, members []*classic) {
	k.Helper()
	for _, m := range members {
		k.coordinator(peers, "a member leaves", func(p *peer) error {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group = groupName
			lm := kmsg.NewLeaveGroupRequestMember()
			lm.MemberID = m.id
			req.Members = append(req.Members, lm)
			r, err := ask[*kmsg.LeaveGroupResponse](p, req)
			if err == nil {
				err = code(r.ErrorCode)
			}
			if err == nil && len(r.Members) > 0 {
				err = code(r.Members[0].ErrorCode)
			}
			if errors.Is(err, kerr.UnknownMemberID) {
				return nil // a first attempt of this
			}
			return err
		})
	}
}
