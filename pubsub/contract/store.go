package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

func info(t *testing.T, s pubsub.Store) {
	i := s.Info()
	if i.Version == "" || i.URL == "" || i.MaxPayload < 64<<10 || i.MaxReplicas < 1 {
		t.Errorf("Info: %+v", i)
	}
	if !s.Connected() {
		t.Error("not connected")
	}
	noErr(t, "Ping", s.Ping(timeout(t)))
	for _, memory := range []bool{false, true} {
		space, err := s.Space(timeout(t), memory)
		noErr(t, "Space", err)
		if known := space.Total >= 0; known != (space.Free >= 0) || space.Free > space.Total || space.Free < -1 {
			t.Errorf("Space: %+v", space)
		}
	}
	s.OnConnection(func(bool) {})
	if i.MaxReplicas == 1 {
		name := unique("log")
		err := s.CreateLog(timeout(t), pubsub.LogConfig{Name: name, Subject: "ct." + name, Replicas: 3})
		if err == nil || errors.Is(err, pubsub.ErrExists) {
			t.Errorf("CreateLog with 3 replicas where 1 is possible: %v", err)
		}
	}
}

func request(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	subject := "ct." + unique("req")
	_, err := s.Request(ctx, subject, []byte("hello"))
	wantErr(t, "Request that nobody serves", err, pubsub.ErrNotFound)
	cancel, err := s.Serve(subject, func(_ context.Context, request []byte) []byte {
		return append([]byte("re: "), request...)
	})
	noErr(t, "Serve", err)
	for _, q := range [][]byte{[]byte("hello"), {}, bytes.Repeat([]byte{7}, 40_000)} {
		a, err := s.Request(ctx, subject, q)
		if err != nil || string(a) != "re: "+string(q) {
			t.Errorf("Request of %d bytes: %d bytes, %v", len(q), len(a), err)
		}
	}
	_, err = s.Request(ctx, subject, make([]byte, s.Info().MaxPayload+1))
	wantErr(t, "Request of max payload + 1", err, pubsub.ErrTooLarge)
	cancel()
	_, err = s.Request(ctx, subject, []byte("hello"))
	wantErr(t, "Request after cancel", err, pubsub.ErrNotFound)
}

// requestConcurrent: handlers that wait, many of them, hold up no other request.
func requestConcurrent(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	subject := "ct." + unique("req")
	release, began := make(chan struct{}), make(chan struct{})
	var free sync.Once
	cancel, err := s.Serve(subject, func(_ context.Context, request []byte) []byte {
		if string(request) == "wait" {
			began <- struct{}{}
			<-release
		}
		return request
	})
	noErr(t, "Serve", err)
	defer cancel()
	defer free.Do(func() { close(release) })
	const waiting = 1500
	slow := make(chan error, waiting)
	for range waiting {
		go func() {
			_, err := s.Request(ctx, subject, []byte("wait"))
			slow <- err
		}()
	}
	for range waiting {
		receive(t, "a request that waits", began)
	}
	for i := range 10 {
		q := fmt.Sprint(i)
		if a, err := s.Request(ctx, subject, []byte(q)); err != nil || string(a) != q {
			t.Errorf("Request %s: %q, %v", q, a, err)
		}
	}
	free.Do(func() { close(release) })
	for range waiting {
		noErr(t, "a request that waited", receive(t, "its answer", slow))
	}
}

func requestUnanswered(t *testing.T, s pubsub.Store) {
	subject := "ct." + unique("req")
	release := make(chan struct{})
	cancel, err := s.Serve(subject, func(_ context.Context, request []byte) []byte {
		<-release
		return request
	})
	noErr(t, "Serve", err)
	defer cancel()
	defer close(release)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	_, err = s.Request(ctx, subject, []byte("x"))
	wantErr(t, "Request that is not answered in time", err, pubsub.ErrOutcomeUnknown)
}

func serveCancel(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	subject := "ct." + unique("req")
	entered, release := make(chan struct{}), make(chan struct{})
	cancel, err := s.Serve(subject, func(_ context.Context, request []byte) []byte {
		close(entered)
		<-release
		return request
	})
	noErr(t, "Serve", err)
	answered := make(chan error, 1)
	go func() {
		_, err := s.Request(ctx, subject, []byte("x"))
		answered <- err
	}()
	receive(t, "the request", entered)
	done := make(chan struct{})
	go func() { cancel(); close(done) }()
	select {
	case <-done:
		t.Error("cancel did not wait for the handler")
	case <-time.After(50 * time.Millisecond): // cannot prove it, only fail to disprove
	}
	close(release)
	receive(t, "cancel", done)
	noErr(t, "a request under way while serving ended", receive(t, "its answer", answered))
}

// closeEnds: Close leaves no watch and no follow behind.
func closeEnds(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	l := newLog(t, s)
	noErr(t, "DeleteLog", s.DeleteLog(timeout(t), l.Name()))
	w := startWatch(t, tb, pubsub.WatchOptions{})
	receive(t, "Synced", w.synced)
	cancel, err := l.Follow(func(pubsub.Message) {})
	noErr(t, "Follow", err)
	s.Close()
	receive(t, "end of the watch", w.done)
	cancel()
	if s.Connected() {
		t.Error("connected after Close")
	}
	_, err = l.Bounds(timeout(t))
	if err == nil || errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("Bounds after Close: %v", err)
	}
	s.Close() // again: harmless
}
