package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// startHold is how long a client that comes while the gateway starts is kept:
	// longer than a start takes whose store is well.
	startHold = 300 * time.Millisecond
	// maxHeld bounds how many are kept at a time.
	maxHeld = 128
)

// waitingRoom is a listener that lets clients in before anybody serves it, but not
// for long: one that sat in the socket's backlog for as long as a start takes would
// wait there, with its request timeout running, although another gateway is well.
// Its connection is closed after a while, and it asks again, here or elsewhere.
type waitingRoom struct {
	net.Listener
	hold    time.Duration
	out     chan arrival
	serving atomic.Bool // Accept was called
	held    chan struct{}
	closing sync.Once
	closed  chan struct{}
	wg      sync.WaitGroup
}

type arrival struct {
	conn net.Conn
	err  error
}

// newWaitingRoom takes l over and keeps clients for as long as hold. Close ends it.
func newWaitingRoom(l net.Listener, hold time.Duration) *waitingRoom {
	w := &waitingRoom{
		Listener: l, hold: hold,
		out: make(chan arrival), held: make(chan struct{}, maxHeld), closed: make(chan struct{}),
	}
	w.wg.Go(w.run)
	return w
}

func (w *waitingRoom) run() {
	for {
		c, err := w.Listener.Accept()
		switch {
		case err != nil:
			select {
			case w.out <- arrival{err: err}: // whoever serves decides what follows
			case <-w.closed:
				return
			}
		case w.serving.Load():
			w.pass(c, nil)
		default:
			select {
			case w.held <- struct{}{}:
				w.wg.Go(func() {
					t := time.NewTimer(w.hold)
					defer t.Stop()
					w.pass(c, t.C)
					<-w.held
				})
			default:
				_ = c.Close()
			}
		}
	}
}

// pass gives a connection to whoever serves, or closes it.
func (w *waitingRoom) pass(c net.Conn, over <-chan time.Time) {
	select {
	case w.out <- arrival{conn: c}:
	case <-over:
		_ = c.Close()
	case <-w.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (w *waitingRoom) Accept() (net.Conn, error) {
	w.serving.Store(true)
	select {
	case a := <-w.out:
		return a.conn, a.err
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; it also closes the connections that wait.
func (w *waitingRoom) Close() (err error) {
	w.closing.Do(func() {
		close(w.closed)
		err = w.Listener.Close()
		w.wg.Wait()
	})
	return err
}
