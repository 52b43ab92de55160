package cluster

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnKills are the points in the life of a transaction. record.stored is here the
// decision, because nothing else is stored then.
var txnKills = []killRow{
	{"EndTxn commit decided, no marker yet", "record.stored", func(k *killed) { endKilled(k, true) }},
	{"EndTxn abort decided, no marker yet", "record.stored", func(k *killed) { endKilled(k, false) }},
	{"EndTxn, between markers", "txn.marker", func(k *killed) { endKilled(k, true) }},
	{"EndTxn, markers written, not completed", "txn.told", func(k *killed) { endKilled(k, true) }},
	{"InitProducerId of a transactional id written, not answered", "record.stored", initKilled},
	{"TxnOffsetCommit written, not answered", "turn.stored", offsetKilled},
}

const txnLimit = time.Minute // of transactions that a row does not want to time out

// killEither arms the point and asks the gateways in turn until one has died over
// the request; it returns the living one.
func (k *killed) killEither(peers []*peer, req func() kmsg.Request) *peer {
	k.Helper()
	k.arm()
	for _, p := range peers {
		if _, err := p.b.Request(k.Context(), req()); err != nil {
			break
		}
	}
	return connectNew(k.T, k.anyDied().addr)
}

// endKilled: whoever lives finishes the same decision, asked or not: one marker per
// partition, the last stable offset moves, the group's offset is there or is not,
// a repeated EndTxn is told so, and the next transaction works.
func endKilled(k *killed, commit bool) {
	const partitions = 3
	k.b.create("kill", partitions)
	peers := []*peer{connectNew(k.T, k.a.addr), connectNew(k.T, k.b.addr)}
	x := begin(k, peers, "kill-txn", txnLimit)
	for p := range int32(partitions) {
		written(k, peers, x, "kill", p, 0, "a")
	}
	if err := until(k, peers, "an offset", func(p *peer) error { return p.offset1(x, 5) }); err != nil {
		k.Fatalf("TxnOffsetCommit: %v", err)
	}
	alive := k.killEither(peers, func() kmsg.Request { return x.endRequest(commit) })
	// Nobody asks for it.
	settled(k, alive, "kill", partitions, 30*time.Second)
	all, seen, offset := "a commit", "a", int64(5)
	if !commit {
		all, seen, offset = "a abort", "", -1
	}
	for p := range int32(partitions) {
		alive.wantLog("kill", p, all, seen)
	}
	wantOffset(k, []*peer{alive}, offset)
	if err := until(k, []*peer{alive}, "the other end", func(p *peer) error {
		_, err := p.end(x, !commit)
		return err
	}); !errors.Is(err, kerr.InvalidTxnState) {
		k.Errorf("the other end is answered with %v", err)
	}
	next := ended(k, []*peer{alive}, x, commit)
	if next.pid != x.pid || next.epoch != x.epoch+1 {
		k.Errorf("the next producer is %+v after %+v", next, x)
	}
	for p := range int32(partitions) { // again: nothing is written twice
		alive.wantLog("kill", p, all, seen)
	}
	written(k, []*peer{alive}, next, "kill", 0, 0, "b")
	ended(k, []*peer{alive}, next, true)
	settled(k, alive, "kill", 1, 30*time.Second)
	if commit {
		alive.wantLog("kill", 0, "a commit b commit", "a b")
	} else {
		alive.wantLog("kill", 0, "a abort b commit", "b")
	}
}

// initKilled: the retry gets a higher epoch, and older ones are fenced.
func initKilled(k *killed) {
	k.b.create("kill", 1)
	peers := []*peer{connectNew(k.T, k.a.addr), connectNew(k.T, k.b.addr)}
	first := begin(k, peers, "kill-txn", txnLimit)
	alive := k.killEither(peers, func() kmsg.Request {
		req := kmsg.NewPtrInitProducerIDRequest()
		id := "kill-txn"
		req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(txnLimit.Milliseconds())
		return req
	})
	second := begin(k, []*peer{alive}, "kill-txn", txnLimit)
	if second.pid != first.pid || second.epoch <= first.epoch+1 {
		k.Errorf("producer %+v after %+v and one that nobody was told of", second, first)
	}
	for _, epoch := range []int16{first.epoch, first.epoch + 1} {
		old := transactional{first.id, first.pid, epoch}
		if err := until(k, []*peer{alive}, "an older producer writes", func(p *peer) error { return p.write(old, "kill", 0, 0, "old") }); !errors.Is(err, kerr.InvalidProducerEpoch) {
			k.Errorf("a batch of epoch %d is answered with %v", epoch, err)
		}
		if err := until(k, []*peer{alive}, "an older producer ends", func(p *peer) error {
			_, err := p.end(old, true)
			return err
		}); !errors.Is(err, kerr.ProducerFenced) {
			k.Errorf("EndTxn of epoch %d is answered with %v", epoch, err)
		}
	}
	written(k, []*peer{alive}, second, "kill", 0, 0, "new")
	ended(k, []*peer{alive}, second, true)
	settled(k, alive, "kill", 1, 30*time.Second)
	alive.wantLog("kill", 0, "new commit", "new")
}

// offsetKilled: it is pending at the next owner, the retry changes nothing, and it
// counts from the end of the transaction on.
func offsetKilled(k *killed) {
	k.b.create("kill", 1)
	peers := []*peer{connectNew(k.T, k.a.addr), connectNew(k.T, k.b.addr)}
	x := begin(k, peers, "kill-txn", txnLimit)
	// The group is in the transaction, and its record and key are there.
	if err := until(k, peers, "an offset", func(p *peer) error { return p.offset1(x, 5) }); err != nil {
		k.Fatalf("TxnOffsetCommit: %v", err)
	}
	alive := k.killEither(peers, func() kmsg.Request { return x.offsetRequest(7) })
	one := []*peer{alive}
	var err error
	k.coordinator(one, "the offset is pending", func(p *peer) error {
		if _, err = p.committedOffset(); errors.Is(err, kerr.UnstableOffsetCommit) {
			return nil
		}
		if err == nil {
			k.Fatal("the offset of an open transaction is there, or none is")
		}
		return err
	})
	if err := until(k, one, "the offset again", func(p *peer) error { return p.offset1(x, 7) }); err != nil {
		k.Fatalf("TxnOffsetCommit: %v", err)
	}
	ended(k, one, x, true)
	wantOffset(k, one, 7)
}
