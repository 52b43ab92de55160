package main

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

func dialRoom(t *testing.T, w *waitingRoom) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", w.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func openRoom(t *testing.T, hold time.Duration) *waitingRoom {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWaitingRoom(l, hold)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// TestWaitingRoom: a client that comes long before the gateway serves is not left
// alone with its timeout.
func TestWaitingRoom(t *testing.T) {
	w := openRoom(t, time.Millisecond)
	early := dialRoom(t, w)
	if _, err := early.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("a client that came too early reads %v, want the end of its connection", err)
	}
}

// TestWaitingRoomServes: one that comes shortly before is served, as those that
// come later.
func TestWaitingRoomServes(t *testing.T) {
	w := openRoom(t, time.Minute)
	soon := dialRoom(t, w)
	testkit.Poll(t, 30*time.Second, "it is inside", func() error {
		if len(w.held) == 0 {
			return errors.New("nobody came in")
		}
		return nil
	})
	c, err := w.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := soon.Read(make([]byte, 1)); err != nil {
		t.Errorf("a client that came in time: %v", err)
	}
	_ = c.Close()

	later := dialRoom(t, w)
	if c, err = w.Accept(); err != nil || c.RemoteAddr().String() != later.LocalAddr().String() {
		t.Errorf("a client that came later: %v", err)
	} else {
		_ = c.Close()
	}
}

// TestWaitingRoomCloses: nobody is left inside, and whoever serves hears of it.
func TestWaitingRoomCloses(t *testing.T) {
	w := openRoom(t, time.Minute)
	in := dialRoom(t, w)
	ended := make(chan error, 1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	go func() { _, err := w.Accept(); ended <- err }()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
	if _, err := in.Read(make([]byte, 1)); err == nil {
		t.Error("a client was left inside")
	}
}
