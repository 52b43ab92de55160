package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/logging"
)

// Reasons for which Connect fails; each comes as a *StartError.
var (
	// ErrUnreachable: no server answered at the address.
	ErrUnreachable = errors.New("nats is unreachable")
	// ErrLogin: a server answered and refused the login or the certificate.
	ErrLogin = errors.New("nats refused the login")
	// ErrTooOld: the server is older than MinVersion.
	ErrTooOld = errors.New("nats server is too old")
	// ErrNoJetStream: JetStream is off, for the server or for the account.
	ErrNoJetStream = errors.New("jetstream is not enabled")
)

// MinVersion is the oldest server that we work with: older ones can lose a
// stream in a crash.
const MinVersion = "2.10.23"

// StartError says why there is no store and what to do about it. It wraps one
// of the reasons above and the cause.
type StartError struct {
	Reason error
	URL    string // without user info
	Detail string // what was seen
	Hint   string // what to do next
	Err    error  // may be nil
}

// Error is one line.
func (e *StartError) Error() string {
	s := fmt.Sprintf("%v at %s", e.Reason, e.URL)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s + ": " + e.Hint
}

// Unwrap gives reason and cause to errors.Is.
func (e *StartError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}

// Connect opens the connections and checks that the server will do: version,
// JetStream, in that order. It does not wait for a server that is not there.
// Errors: *StartError, ctx.Err(), or what is wrong with the config.
func Connect(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	st := &Store{
		cfg: cfg, apiPrefix: cfg.apiPrefix(), newsRoot: cfg.newsRoot(),
		seed: maphash.MakeSeed(), apiSlots: make(chan struct{}, cfg.MaxAPIInflight),
		wake:     make(chan struct{}, 1),
		runAfter: runAfter, runIdle: runIdle, runFresh: runFresh,
		down: make(map[*conn]bool), follows: make(map[*follow]struct{}), serves: make(map[*serve]struct{}),
	}
	st.life, st.end = context.WithCancel(context.Background())
	st.info.URL = shownURL(cfg)
	st.metrics, err = newMetrics(cfg.Registerer, func() float64 {
		if st.Connected() {
			return 1
		}
		return 0
	}, func() float64 { return float64(len(st.apiSlots)) })
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	err = st.connect(ctx)
	if err == nil {
		err = st.metrics.measure(map[string][]*conn{"control": {st.control}, "append": st.appends, "read": st.reads})
	}
	if err != nil {
		st.end()
		st.closeConns()
		st.metrics.close()
		return nil, err
	}
	st.wg.Go(st.run)
	return st, nil
}

func (st *Store) connect(ctx context.Context) error {
	var err error
	if st.control, err = st.dial(ctx, "control"); err != nil {
		return err
	}
	nc := st.control.nc
	v, err := parseVersion(nc.ConnectedServerVersion())
	if minimum, _ := parseVersion(MinVersion); err != nil || v.less(minimum) {
		return st.startError(ErrTooOld, fmt.Sprintf("version %s", nc.ConnectedServerVersion()),
			"upgrade the NATS server to "+MinVersion+" or later", err)
	}
	st.clustered = nc.ConnectedClusterName() != ""
	patience := st.cfg.APITimeout
	if st.cfg.InProcess != nil {
		// A server within this process is there; on a slow disk it answers when
		// its writes are done.
		patience *= 6
	}
	if err := st.ask(ctx, patience, "INFO", nil, nil); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("jetstream at %s: %w", st.info.URL, ctx.Err())
		}
		switch {
		case errors.Is(err, errNoResponders), hasCode(err, codeNotEnabled, codeNotForAccount):
			return st.startError(ErrNoJetStream, "", "start the NATS server with JetStream (nats-server -js) and enable it for this account", err)
		}
		return st.startError(ErrUnreachable, "JetStream does not answer: "+err.Error(), "check that the NATS cluster has a leader and that this login may use $JS.API.>", err)
	}
	for i := range st.cfg.AppendConns {
		c, err := st.dial(ctx, "append-"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		st.appends = append(st.appends, c)
	}
	for i := range st.cfg.ReadConns {
		c, err := st.dial(ctx, "read-"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		st.reads = append(st.reads, c)
	}
	st.info.Version = nc.ConnectedServerVersion()
	st.info.MaxPayload = int(nc.MaxPayload())
	st.info.MaxReplicas = 1
	if st.clustered {
		// A stream has at most five replicas. The servers of a cluster that
		// does not advertise itself cannot be counted: then the server decides.
		st.info.MaxReplicas = 5
		n := st.cfg.Servers
		if n == 0 && len(nc.DiscoveredServers()) > 0 {
			// Those that we were told of are not among the discovered ones. One
			// under two names counts twice: then the server decides as well.
			n = len(nc.Servers())
		}
		if n > 1 {
			st.info.MaxReplicas = min(5, n)
		}
	}
	if v.belowFloor() {
		st.warnings = append(st.warnings, fmt.Sprintf("NATS server %s lacks security fixes: upgrade to %s, %s or a newer line", v, floor212, floor214))
	}
	st.mu.Lock()
	st.up = len(st.down) == 0
	st.mu.Unlock()
	return nil
}

func (st *Store) startError(reason error, detail, hint string, err error) error {
	return &StartError{Reason: reason, URL: st.info.URL, Detail: detail, Hint: hint, Err: err}
}

const dialTimeout = 2 * time.Second

// dial opens one connection. nats.Connect does not know contexts, so it runs
// beside, and what it opens after ctx has ended is closed again.
func (st *Store) dial(ctx context.Context, role string) (*conn, error) {
	c := newConn(st.cfg.ReadBudget)
	if strings.HasPrefix(role, "read") {
		c.bypass = newBypass()
	}
	ready := make(chan struct{}) // closed when c.nc is set: callbacks may come before
	opts := append([]nats.Option{
		nats.Timeout(dialTimeout),
		nats.PingInterval(5 * time.Second),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
	}, st.cfg.Options...)
	opts = append(opts,
		nats.Name(st.cfg.Name+" "+role),
		nats.MaxReconnects(-1),
		// No buffer while disconnected: what cannot be sent now fails now.
		nats.ReconnectBufSize(-1),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			<-ready
			if st.isClosed() {
				return
			}
			c.down()
			st.setState(c, false)
			st.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "connection to NATS lost",
				slog.String("role", role), errAttr(err))
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			<-ready
			c.learn(nc)
			st.setState(c, true)
			if c == st.control {
				st.renewFollows()
			}
			st.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "connection to NATS is back",
				slog.String("role", role))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			st.logError("NATS reported an error", err)
		}),
	)
	urls := st.cfg.URL
	switch in := st.cfg.InProcess; {
	case in != nil && c.bypass != nil:
		opts = append(opts, nats.InProcessServer(inProcess{in, c.bypass}))
	case in != nil:
		opts = append(opts, nats.InProcessServer(in))
	case c.bypass != nil:
		opts = append(opts, nats.SetCustomDialer(&dialer{net.Dialer{Timeout: dialTimeout}, c.bypass}))
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(urls, opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			close(ready)
			return nil, st.dialError(r.err)
		}
		c.nc = r.nc
		c.learn(r.nc)
		close(ready)
		return c, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
			close(ready)
		}()
		return nil, fmt.Errorf("jetstream at %s: %w", st.info.URL, ctx.Err())
	}
}

func (st *Store) dialError(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported), errors.Is(err, nats.ErrSecureConnRequired):
		return st.startError(ErrLogin, err.Error(), "check user, password, credentials file or certificate", err)
	}
	return st.startError(ErrUnreachable, err.Error(), "start a NATS server there, correct --pubsub-url, or leave it out to use the embedded server", err)
}

func (c *conn) learn(nc *nats.Conn) {
	v, err := parseVersion(nc.ConnectedServerVersion())
	c.batched.Store(err == nil && !v.less(version{2, 11, 0}))
}

func (st *Store) logError(msg string, err error) {
	st.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, msg, errAttr(err))
}

func errAttr(err error) slog.Attr {
	if err == nil {
		return slog.String(logging.Error, "closed by the server")
	}
	return slog.String(logging.Error, err.Error())
}

// shownURL is the address without user info.
func shownURL(cfg Config) string {
	if cfg.InProcess != nil {
		return "embedded"
	}
	parts := strings.Split(cfg.URL, ",")
	for i, p := range parts {
		p = strings.TrimSpace(p)
		if u, err := url.Parse(p); err == nil && u.Host != "" {
			u.User = nil
			p = u.String()
		} else if _, host, found := strings.Cut(p, "@"); found {
			p = host
		}
		parts[i] = p
	}
	return strings.Join(parts, ",")
}

// version is a server version without its suffix.
type version [3]int

// The oldest versions of their lines with all security fixes known to us.
var (
	floor212 = version{2, 12, 12}
	floor214 = version{2, 14, 3}
)

func parseVersion(s string) (version, error) {
	var v version
	core, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	parts := strings.SplitN(core, ".", 4)
	if len(parts) < 3 {
		return v, fmt.Errorf("version %q: want three numbers", s)
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, fmt.Errorf("version %q: %w", s, err)
		}
		v[i] = n
	}
	return v, nil
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) less(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

func (v version) belowFloor() bool {
	switch {
	case v.less(floor212):
		return true
	case v[0] == 2 && v[1] == 12:
		return false
	}
	return v.less(floor214)
}
