package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/hanzoai/stream/logging"
)

// Server is a running NATS server. It is a nats.InProcessConnProvider.
type Server struct {
	config Config
	name   string // of the server, see Config.ServerName
	host   string
	port   int // for NATS clients, if config.Listen is set; 0 takes a free one
	room   room
	lock   *os.File
	tmp    string // folder to remove at Stop
	url    string

	stop     sync.Once
	end      context.CancelFunc // of watch
	watching sync.WaitGroup

	mu  sync.Mutex // guards: srv
	srv *server.Server
}

// Start locks the data folder, starts the server and waits until JetStream has
// recovered what the folder holds, which takes milliseconds after a clean stop
// and may take minutes after a crash of a large store. If ctx ends first the
// start is undone. Errors: ErrLocked, ErrFolder, ErrListen, ctx.Err(), else what
// the server said.
func Start(ctx context.Context, c Config) (*Server, error) {
	host, port, err := c.validate()
	if err != nil {
		return nil, fmt.Errorf("embedded nats: %w", err)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{}
	if c.Memory && c.Dir == "" {
		if s.tmp, err = os.MkdirTemp("", "stream-nats-"); err != nil {
			return nil, fmt.Errorf("embedded nats: %w: %w", ErrFolder, err)
		}
		c.Dir = s.tmp
	}
	if s.lock, err = lockDir(c.Dir); err != nil {
		s.release()
		return nil, fmt.Errorf("embedded nats: %w", err)
	}
	if s.name, err = openNode(c.Dir, c.Cluster, c.ServerName); err != nil {
		s.release()
		return nil, fmt.Errorf("embedded nats: %w", err)
	}
	addrs := []string{}
	if c.Listen != "" && port != 0 {
		addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	if c.Cluster != nil {
		addrs = append(addrs, c.Cluster.Listen)
	}
	for _, a := range addrs {
		if err := listenable(ctx, a); err != nil {
			s.release()
			return nil, fmt.Errorf("embedded nats: %w: %w", ErrListen, err)
		}
	}
	s.config, s.host, s.port = c, host, port
	if s.srv, err = s.start(ctx); err != nil {
		s.release()
		return nil, err
	}
	if c.Listen != "" {
		// The same one if it is started again.
		s.url = s.srv.ClientURL()
		if u, err := url.Parse(s.url); err == nil && s.port == 0 {
			s.port, _ = strconv.Atoi(u.Port())
		}
	}
	s.look()
	life, end := context.WithCancel(context.Background())
	s.end = end
	s.watching.Go(func() { s.watch(life) })
	return s, nil
}

// listenable reports whether an address is free. A taken one would make the
// server log a fatal line after it has begun to recover: look before that.
func listenable(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// start makes a server and waits until it is ready.
func (s *Server) start(ctx context.Context) (*server.Server, error) {
	c := s.config
	opts := &server.Options{
		ServerName:   cmp.Or(s.name, "stream"),
		Host:         s.host,
		Port:         s.port,
		DontListen:   c.Listen == "",
		JetStream:    true,
		StoreDir:     c.Dir,
		SyncAlways:   c.SyncAlways,
		SyncInterval: c.SyncInterval,
		MaxPayload:   int32(c.MaxPayload),
		NoSigs:       true,
	}
	if c.Cluster != nil {
		c.Cluster.apply(opts)
		if c.Listen == "" {
			// The server opens its routes only after a port for clients: it gets
			// one on which nobody is let in, and which the others do not hear of.
			opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", server.RANDOM_PORT
			opts.Cluster.NoAdvertise = true
			opts.CustomClientAuthentication = inProcessOnly{}
		}
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = DefaultMaxPayload
	}
	if c.Listen != "" && s.port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded nats: %w", err)
	}
	l := &natsLogger{log: c.Logger.With(slog.String(logging.Component, "nats"))}
	if c.Cluster == nil {
		// In a cluster most errors are about the others.
		l.failed = func() { s.room.suspect.Store(true) }
	}
	srv.SetLoggerV2(l, c.Logger.Enabled(ctx, slog.LevelDebug-2), false, false)

	// Start recovers all streams before it returns.
	started := make(chan struct{})
	go func() {
		defer close(started)
		srv.Start()
	}()
	abandon := func() {
		srv.Shutdown()
		<-started
		srv.WaitForShutdown()
	}
	begin, next := time.Now(), 5*time.Second
	for waiting := true; waiting; {
		select {
		case <-started:
			waiting = false
		case <-ctx.Done():
			abandon()
			return nil, fmt.Errorf("embedded nats: recovery of %s did not end in %v: %w", c.Dir, time.Since(begin).Round(time.Millisecond), ctx.Err())
		case <-time.After(next):
			c.Logger.LogAttrs(ctx, slog.LevelInfo, "still recovering the data folder", slog.String(logging.Component, "nats"), slog.Duration("elapsed", time.Since(begin).Round(time.Second)))
			next = min(2*next, time.Minute)
		}
	}
	if f := l.failure(); f != "" {
		abandon()
		return nil, fmt.Errorf("embedded nats: %s", f)
	}
	if !srv.ReadyForConnections(10*time.Second) || !srv.JetStreamEnabled() {
		abandon()
		return nil, errors.New("embedded nats: server did not become ready with JetStream")
	}
	return srv, nil
}

// InProcessConn opens a connection without a network; it implements
// nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv.InProcessConn()
}

// ClientURL is the URL for NATS clients of other processes, "" if there is no
// listener.
func (s *Server) ClientURL() string { return s.url }

// Alone reports that only this process can reach what the server stores.
func (s *Server) Alone() bool { return s.config.Listen == "" && s.config.Cluster == nil }

// Name is the server's name, which NATS tools show.
func (s *Server) Name() string { return cmp.Or(s.name, "stream") }

// Version is the version of the NATS server inside.
func (s *Server) Version() string { return server.VERSION }

// Stop shuts the server down cleanly, which writes its indexes and so makes the
// next start fast, then releases the folder. Connections should be closed
// before. Calling it again does nothing.
func (s *Server) Stop() {
	s.stop.Do(func() {
		s.end()
		s.watching.Wait()
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
		s.release()
	})
}

func (s *Server) release() {
	if s.lock != nil {
		s.lock.Close() // also unlocks
		s.lock = nil
	}
	if s.tmp != "" {
		os.RemoveAll(filepath.Clean(s.tmp))
		s.tmp = ""
	}
}
