package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/test/testkit"
)

// TestC33TransactionEnds: a producer dies with a transaction open, and so does the
// coordinator of it: another gateway ends it after its timeout, in a higher epoch,
// and what waited for that is released; a start of the same producer ends it at
// once. What happens to decisions is in the rows of EndTxn of TestKillPoints.
func TestC33TransactionEnds(t *testing.T) {
	t.Parallel()
	const partitions, timeout = 3, 5 * time.Second
	w := newWorld(t, shape{gateways: 2, replicas: 1, mode: shared})
	peers := []*peer{connectNew(t, w.gateways[0].Addr), connectNew(t, w.gateways[1].Addr)}
	peers[0].create("kill", partitions)
	open := func(peers []*peer, id string, offset int64) transactional {
		t.Helper()
		x := begin(t, peers, id, timeout)
		for p := range int32(partitions) {
			written(t, peers, x, "kill", p, 0, id)
		}
		if err := until(t, peers, "an offset", func(p *peer) error { return p.offset1(x, offset) }); err != nil {
			t.Fatalf("TxnOffsetCommit: %v", err)
		}
		return x
	}
	// Both gateways in turn: one of them is the coordinator.
	for i, g := range w.gateways {
		id := []string{"dead", "gone"}[i]
		x := open(peers, id, 7)
		g.kill(t)
		other := []*peer{peers[1-i]}
		began := time.Now()
		settled(t, other[0], "kill", partitions, patience)
		t.Logf("stable %v after the kill, with a timeout of %v", time.Since(began).Round(time.Millisecond), timeout)
		wantOffset(t, other, -1)
		err := until(t, other, "a late batch", func(p *peer) error { return p.write(x, "kill", 0, 1, "late") })
		if !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("a batch after the timeout is answered with %v", err)
		}
		g.start(t)
		g.ready(t)
		peers[i] = connectNew(t, g.Addr)
	}
	// A start of the same producer does not wait for the timeout: it is told to come
	// again until the transaction before has ended.
	x := open(peers, "again", 9)
	y := begin(t, peers, "again", timeout)
	if y.pid != x.pid || y.epoch <= x.epoch {
		t.Errorf("producer %+v after %+v", y, x)
	}
	settled(t, peers[0], "kill", partitions, patience)
	wantOffset(t, peers, -1)
	written(t, peers, y, "kill", 0, 0, "new")
	ended(t, peers, y, true)
	settled(t, peers[1], "kill", 1, patience)
	for _, p := range peers {
		p.wantLog("kill", 0, "dead abort gone abort again abort new commit", "new")
		p.wantLog("kill", 1, "dead abort gone abort again abort", "")
	}
}

// TestFault16Late: what was sent for a transaction and comes when the next one is
// open ends nothing and writes nothing, at either gateway; of a producer that dies
// nothing is seen.
func TestFault16Late(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{gateways: 2, replicas: 1, mode: shared})
	comeLate(t, "", w.gateways[0].Addr, w.gateways[1].Addr)
}

// comeLate is TestFault16Late at two addresses of one cluster, which may be the same,
// with names that end in suffix.
func comeLate(t *testing.T, suffix string, addrs ...string) {
	name, classicName := "late"+suffix, "classic"+suffix
	peers := []*peer{connectNew(t, addrs[0]), connectNew(t, addrs[1])}
	peers[0].create(name, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x := begin(t, peers, name+"-txn", txnLimit)
	all, committed := "", ""
	for round, commit := range []bool{true, false, true} {
		// One EndTxn and one batch of the first transaction are on their way, each
		// to another gateway, and stay so.
		link := testkit.NewRelay(t, addrs[round%2])
		elsewhere := testkit.NewRelay(t, addrs[(round+1)%2])
		late, lost := connectNew(t, link.Addr), connectNew(t, elsewhere.Addr)
		for _, p := range []*peer{late, lost} {
			settled(t, p, name, 1, patience) // connected
		}
		written(t, peers, x, name, 0, 0, "first")
		link.Stall()
		elsewhere.Stall()
		old := x
		end := eventually(ctx, func() error {
			_, err := late.end(old, commit)
			return err
		})
		more := eventually(ctx, func() error { return lost.write(old, name, 0, 1, "too late") })
		// The producer repeats the end, and begins the next transaction.
		x = ended(t, peers, x, commit)
		written(t, peers, x, name, 0, 0, "second")
		written(t, peers, x, name, 1, 0, "second")
		link.Flow()
		elsewhere.Flow()
		if err := <-end; !errors.Is(err, kerr.ProducerFenced) {
			t.Errorf("round %d: an EndTxn that is late is answered with %v", round, err)
		}
		if err := <-more; !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("round %d: a batch that is late is answered with %v", round, err)
		}
		for n := range int32(2) {
			if stable, end, err := peers[round%2].bounds(name, n); err != nil || stable >= end {
				t.Errorf("round %d: partition %d is stable up to %d of %d: %v", round, n, stable, end, err)
			}
		}
		x = ended(t, peers, x, !commit)
		settled(t, peers[0], name, 2, patience)
		if commit {
			all, committed = all+" first commit second abort", committed+" first"
		} else {
			all, committed = all+" first abort second commit", committed+" second"
		}
	}
	for _, p := range peers {
		p.wantLog(name, 0, all[1:], committed[1:])
	}

	// As clients did before: the epoch stays, and a batch for a partition that is not
	// in the open transaction is refused.
	classic := []*peer{connect(t, addrs[0]), connect(t, addrs[1])}
	classic[0].create(classicName, 2)
	c := begin(t, classic, classicName+"-txn", 5*time.Second)
	if err := until(t, classic, "a partition joins", func(p *peer) error { return p.add(c, classicName, 0) }); err != nil {
		t.Fatal(err)
	}
	written(t, classic, c, classicName, 0, 0, "first")
	ended(t, classic, c, true)
	if err := until(t, classic, "a partition joins", func(p *peer) error { return p.add(c, classicName, 1) }); err != nil {
		t.Fatal(err)
	}
	for _, p := range classic {
		if err := until(t, []*peer{p}, "a late batch", func(p *peer) error { return p.write(c, classicName, 0, 1, "too late") }); !errors.Is(err, kerr.InvalidTxnState) {
			t.Errorf("a batch for a partition that has not joined is answered with %v", err)
		}
	}
	written(t, classic, c, classicName, 1, 0, "second")
	// It dies: its transaction is aborted.
	settled(t, classic[1], classicName, 2, patience)
	for _, p := range classic {
		p.wantLog(classicName, 0, "first commit", "first")
		p.wantLog(classicName, 1, "second abort", "")
	}
	if err := until(t, classic, "the end of a transaction that has timed out", func(p *peer) error {
		_, err := p.end(c, true)
		return err
	}); !errors.Is(err, kerr.ProducerFenced) {
		t.Errorf("EndTxn after the timeout is answered with %v", err)
	}
}
