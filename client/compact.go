package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanzoai/stream/logging"
)

const (
	defaultAdminPort = "9093"
	// pollEvery is how often it is asked how far a compaction is.
	pollEvery = 500 * time.Millisecond
	// maxDocument bounds what is read of an answer over HTTP.
	maxDocument = 16 << 20
)

// compaction is what a gateway says of a topic's compaction.
type compaction struct {
	Topic      string               `json:"topic"`
	Compacted  bool                 `json:"compacted"`
	Cleaner    cleaner              `json:"cleaner"`
	Partitions []compactedPartition `json:"partitions"`
}

// cleaner is the gateway that compacts, and what it is at.
type cleaner struct {
	State   string         `json:"state"`
	Gateway int32          `json:"gateway,omitempty"` // 0: none at this moment
	Detail  string         `json:"detail,omitempty"`
	Running *compactionRun `json:"running,omitempty"`
}

// off is the state of one that is told not to compact.
const off = "off"

// trouble is why nothing is compacted; "": nothing is in the way.
func (c *cleaner) trouble() string {
	switch c.State {
	case off:
		return fmt.Sprintf("gateway %d, which would compact, has log.cleaner.enable=false", c.Gateway)
	case "older gateways":
		return "a gateway that is running does not know compacted topics"
	case "clock":
		return fmt.Sprintf("gateway %d, which would compact, does not know the store's time, or its clock is a minute off and more", c.Gateway)
	case "unknown":
		return "it is not known what compaction does: " + logging.Printable(c.Detail)
	}
	return ""
}

type compactedPartition struct {
	Partition   int32          `json:"partition"`
	CompactedTo int64          `json:"compacted_to"`
	Wanted      int64          `json:"wanted"` // 0: nothing more
	Records     int64          `json:"records"`
	Bytes       int64          `json:"bytes"`
	LastRun     string         `json:"last_run,omitempty"`
	Running     *compactionRun `json:"running,omitempty"`
	Error       string         `json:"error,omitempty"`
	Again       string         `json:"again,omitempty"`
}

// failure tells why the last run failed, and when the next one is.
func (p *compactedPartition) failure() string {
	s := fmt.Sprintf("partition %d: %s", p.Partition, logging.Printable(p.Error))
	if p.Again != "" {
		s += " (tried again at " + logging.Printable(p.Again) + ")"
	}
	return s
}

type compactionRun struct {
	Partition string `json:"partition"`
	Since     string `json:"since"`
	Done      int64  `json:"done_bytes"`
	Of        int64  `json:"of_bytes"`
}

// percent is how far it is, "" while that is not known.
func (r *compactionRun) percent() string {
	if r.Of <= 0 {
		return ""
	}
	return fmt.Sprintf(", %d %%", min(r.Done*100/r.Of, 100))
}

func topicCompact(o *options) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "compact NAME",
		Short: "Have a topic compacted now",
		Long: "Asks that all of a topic with cleanup.policy=compact that may be compacted is, however little\n" +
			"that is; without it a topic is when enough of it is not. Kafka's protocol has no request for\n" +
			"it: it goes to the HTTP port of a gateway, which takes it from its own machine only. Whichever\n" +
			"gateway compacts does the work, at once also if it failed before; --wait shows how far it is,\n" +
			"says what is in the way, and returns when it is done or a run has failed.",
		Example:           "  stream topic compact users --wait\n  stream topic compact users --admin http://localhost:9093",
		Args:              names("topic", 1),
		ValidArgsFunction: o.completeTopics(1),
	}
	admin := ""
	o.bare(cmd, true, func(cmd *cobra.Command, args []string) (func(ctx context.Context) error, error) {
		a, err := o.adminURL(cmd, admin)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			c := compaction{}
			path := "/v1/stream/topics/" + url.PathEscape(args[0]) + "/compaction"
			if err := o.http(ctx, http.MethodPost, a, path, &c); err != nil {
				return err
			}
			if wait {
				if err := o.untilCompacted(ctx, cmd, a, path, &c); err != nil {
					return err
				}
			}
			return o.print(cmd, c, c.table)
		}, nil
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is done, and show how far it is")
	adminFlag(cmd, &admin)
	return cmd
}

func adminFlag(cmd *cobra.Command, admin *string) {
	cmd.Flags().StringVar(admin, "admin", "", "`URL` of the gateway's HTTP port (default: port "+defaultAdminPort+" of the first server of -b)")
}

func (c *compaction) table(w io.Writer) {
	row(w, "PARTITION", "COMPACTED TO", "RECORDS", "BYTES", "LAST RUN", "WANTED")
	for _, p := range c.Partitions {
		wanted := "" // done
		if p.CompactedTo < p.Wanted {
			wanted = fmt.Sprint(p.Wanted)
		}
		row(w, p.Partition, p.CompactedTo, p.Records, p.Bytes, p.LastRun, wanted)
	}
	for i := range c.Partitions {
		if p := &c.Partitions[i]; p.Error != "" {
			fmt.Fprintln(w, "failing: "+p.failure())
		}
	}
	if s := c.Cleaner.trouble(); s != "" && c.Compacted {
		fmt.Fprintln(w, s)
	}
}

// untilCompacted asks until all that c wants is done, and leaves in it how far it is
// then.
func (o *options) untilCompacted(ctx context.Context, cmd *cobra.Command, admin, path string, c *compaction) error {
	want := map[int32]int64{}
	for _, p := range c.Partitions {
		want[p.Partition] = p.Wanted
	}
	shown := newProgress(cmd)
	defer shown.clear()
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	told := ""
	for lost := (time.Time{}); ; {
		left, first := 0, (*compactedPartition)(nil)
		for i := range c.Partitions {
			p := &c.Partitions[i]
			// Wanted is 0 when it is done, also if there was nothing to do.
			if p.Wanted > 0 && p.CompactedTo < want[p.Partition] {
				if left++; first == nil || p.Running != nil {
					first = p
				}
				if p.Error != "" && p.Running == nil {
					return failed("", "%s", p.failure())
				}
			}
		}
		why := c.Cleaner.trouble()
		switch r := c.Cleaner.Running; {
		case left == 0:
			return nil
		case c.Cleaner.State == off:
			return failed("start the gateways with --log-cleaner-enable true", "%s", why)
		case first.Running != nil:
			shown.show("%s to go, partition %d%s", plural(left, "partition"), first.Partition, first.Running.percent())
		case r != nil:
			shown.show("%s to go, first %s%s", plural(left, "partition"), logging.Printable(r.Partition), r.percent())
		default:
			shown.show("%s to go", plural(left, "partition"))
		}
		if why != told { // also where nobody looks at the progress: it may take long
			if told = why; why != "" {
				shown.clear()
				fmt.Fprintln(cmd.ErrOrStderr(), "waiting: "+why)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		now := compaction{}
		switch err := o.http(ctx, http.MethodGet, admin, path, &now); {
		case err == nil:
			*c, lost = now, time.Time{}
		case ctx.Err() != nil:
			return ctx.Err()
		default: // it may be restarted meanwhile
			if lost.IsZero() {
				lost = time.Now()
			}
			if e := (*Error)(nil); !errors.As(err, &e) || e.Code != Unreachable && !again(e) || time.Since(lost) > o.timeout {
				return err
			}
		}
	}
}

// again reports an answer that another try may change: 503.
func again(e *Error) bool {
	p := (*problem)(nil)
	return errors.As(e.Err, &p) && p.Status == http.StatusServiceUnavailable
}

// adminURL is where the gateway's HTTP port is.
func (o *options) adminURL(cmd *cobra.Command, admin string) (string, error) {
	if admin == "" {
		seeds := o.seeds()
		if len(seeds) == 0 {
			return "", usage(cmd, "no server is named")
		}
		host := seeds[0]
		if !address(host) {
			return "", usage(cmd, "%q is no host:port", logging.Printable(host))
		}
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		return "http://" + net.JoinHostPort(host, defaultAdminPort), nil
	}
	u, err := url.Parse(admin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", usage(cmd, "--admin %q: http://host:port is wanted", logging.Printable(logging.RedactURLs(admin)))
	}
	return strings.TrimSuffix(admin, "/"), nil
}

// problem is an error document of a gateway (RFC 9457).
type problem struct {
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Kafka  string `json:"kafka_error"`
	Hint   string `json:"hint"`
}

// Error implements error.
func (p *problem) Error() string {
	s := logging.Printable(p.Detail)
	if p.Kafka != "" {
		s = logging.Printable(p.Kafka) + ": " + s
	}
	return s
}

// http asks a gateway over HTTP; the answer goes into out.
func (o *options) http(ctx context.Context, method, admin, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, admin+path, nil)
	if err != nil {
		return failed("", "%w", err)
	}
	r.Header.Set("User-Agent", "stream/"+o.version)
	where := logging.Printable(logging.RedactURLs(admin))
	away := func(err error) error {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return &Error{Code: Unreachable, Err: fmt.Errorf("no answer from %s: %w", where, cause(err)), Hint: "is the HTTP port of a gateway there? name it with --admin http://host:port"}
	}
	resp, err := httpClient.Do(r)
	if err != nil {
		return away(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return away(err)
	}
	if resp.StatusCode/100 != 2 {
		p := &problem{}
		if json.Unmarshal(body, p) != nil || p.Detail == "" {
			return failed("--admin names the HTTP port of a gateway", "%s is no gateway: HTTP status %d", where, resp.StatusCode)
		}
		p.Status = resp.StatusCode
		return failed(logging.Printable(p.Hint), "%w", p)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return failed("--admin names the HTTP port of a gateway", "%s is no gateway: what it answers cannot be read", where)
	}
	return nil
}

// httpClient follows no redirects and keeps no connection: a command asks little.
var httpClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
