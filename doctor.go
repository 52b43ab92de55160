package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

// finding is one line of the doctor's.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warn, fail
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// doctor gathers findings.
type doctor struct {
	l        *loaded
	stderr   io.Writer
	admin    string // URL of a running server; "" tries the configured port
	findings []finding
	// unreachable: the store cannot be looked at, neither directly nor through a
	// server.
	unreachable bool
}

func doctorCommand(environ []string) *cobra.Command {
	d := &doctor{}
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check store, limits, clock and addresses, with a remedy for each problem",
		Long: "Looks at everything that serve would use, with the same configuration, and changes nothing.\n" +
			"Where the embedded store's folder is in use, the server that has it is asked over HTTP.\n" +
			"Exit code: 0 if nothing failed, 1 if a check failed, 3 if the store is out of reach.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			l, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			d.l, d.stderr = l, cmd.ErrOrStderr()
			l.resolve(readMemory())
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
			defer cancel()
			d.run(ctx)
			return d.report(cmd.OutOrStdout(), output)
		},
	}
	bindFlags(cmd)
	cmd.Flags().StringVar(&d.admin, "admin", "", "`URL` of the running server's HTTP side; default: the configured admin-port on this machine")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func (d *doctor) add(check, level, found, remedy string) {
	d.findings = append(d.findings, finding{check, level, logging.RedactURLs(oneLine(found)), logging.RedactURLs(oneLine(remedy))})
}

func (d *doctor) ok(check, format string, args ...any) {
	d.add(check, levelOK, fmt.Sprintf(format, args...), "")
}

func (d *doctor) run(ctx context.Context) {
	for _, w := range d.l.warnings {
		d.add("configuration", levelWarn, w, "every key is explained in docs/config.md")
	}
	if len(d.l.warnings) == 0 {
		d.ok("configuration", "no problem")
	}
	partitions := d.store(ctx)
	d.openFiles(partitions)
	d.address(ctx)
}

// store looks at what is stored where; it returns how many partitions there are.
func (d *doctor) store(ctx context.Context) (partitions int) {
	if d.l.external() {
		return d.look(ctx)
	}
	if d.l.Storage == "memory" && !d.l.isSet("data-dir") {
		d.ok("store", "embedded, in memory: it exists while the server runs")
		d.payload(embedded.DefaultMaxPayload)
		return 0
	}
	if there := d.folder(); !there {
		d.ok("store", "nothing is stored yet; JetStream, clock and contents are checked once there is something")
		d.payload(embedded.DefaultMaxPayload)
		return 0
	}
	pid, held, err := embedded.Holder(d.l.DataDir)
	switch {
	case err != nil:
		d.add("lock", levelFail, err.Error(), "make the folder readable and writable for this user, or choose another with --data-dir")
		d.unreachable = true
		return 0
	case held:
		who := "another process"
		if pid > 0 {
			who = fmt.Sprintf("process %d", pid)
		}
		return d.askServer(ctx, who)
	}
	d.ok("lock", "the folder is free")
	return d.look(ctx)
}

// folder checks the data folder and tells whether anything can be stored in it
// already.
func (d *doctor) folder() (there bool) {
	dir := d.l.DataDir
	at := dir
	for {
		st, err := os.Stat(at)
		if err == nil && !st.IsDir() {
			d.add("data folder", levelFail, fmt.Sprintf("%s is not a folder", at), "choose another with --data-dir")
			return false
		}
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) || filepath.Dir(at) == at {
			d.add("data folder", levelFail, err.Error(), "choose another with --data-dir or mend its permissions")
			return false
		}
		at = filepath.Dir(at)
	}
	f, err := os.CreateTemp(at, ".stream-doctor-*")
	if err != nil {
		d.add("data folder", levelFail, fmt.Sprintf("%s cannot be written: %v", at, unwrapPath(err)), "make it writable for this user, or choose another with --data-dir")
		return at == dir
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	text := dir
	if at != dir {
		text = fmt.Sprintf("%s will be made; %s is writable", dir, at)
	}
	if free, total, ok := diskSpace(at); ok {
		text += fmt.Sprintf(", %s of %s free", roundSize(free), roundSize(total))
		if free < 1<<30 || total > 0 && free < total/20 {
			d.add("data folder", levelWarn, text, "free some space or move the folder: on a full disk produces are refused with KAFKA_STORAGE_ERROR")
			return at == dir
		}
	}
	d.ok("data folder", "%s", text)
	return at == dir
}

// roundSize is for people.
func roundSize(n uint64) string {
	for _, u := range []struct {
		name string
		size uint64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// look opens the store and checks it.
func (d *doctor) look(ctx context.Context) (partitions int) {
	st, stop, err := openForTools(ctx, d.l, d.stderr)
	if err != nil {
		hint := ""
		if e := (*exitError)(nil); errors.As(err, &e) {
			hint = e.hint
		}
		check := "nats"
		switch {
		case errors.Is(err, jetstream.ErrTooOld):
			check = "nats version"
		case errors.Is(err, jetstream.ErrNoJetStream):
			check = "jetstream"
		default:
			d.unreachable = true
		}
		d.add(check, levelFail, err.Error(), hint)
		return 0
	}
	defer stop()
	info := st.Info()
	p, err := st.Probe(ctx)
	if err != nil {
		d.add("jetstream", levelFail, err.Error(), "check that the NATS cluster has a leader and that this login may use $JS.API.>")
		return 0
	}
	d.ok("nats", "%s answers in %v", info.URL, p.RTT.Round(10*time.Microsecond))
	if p.BelowFloor {
		d.add("nats version", levelWarn, p.Version+" lacks security fixes", "upgrade the NATS server to "+p.Floor)
	} else {
		d.ok("nats version", "%s (%s or later is needed)", p.Version, jetstream.MinVersion)
	}
	d.jetstream(&p)
	d.payload(info.MaxPayload)
	d.replicas(info, &p)
	d.clock(&p)
	return d.contents(ctx, st)
}

func (d *doctor) jetstream(p *jetstream.Probe) {
	limit := func(n int64, size bool) string {
		switch {
		case n < 0:
			return "no limit"
		case size:
			return "of " + roundSize(uint64(n))
		}
		return fmt.Sprintf("of %d", n)
	}
	text := fmt.Sprintf("on, API level %d; the account uses %d streams (%s), %s of file storage (%s)", p.APILevel,
		p.Streams, limit(p.MaxStreams, false), roundSize(uint64(max(p.Storage, 0))), limit(p.MaxStorage, true))
	used, most, what := p.Storage, p.MaxStorage, "file storage"
	if d.l.Storage == "memory" {
		used, most, what = p.Memory, p.MaxMemory, "memory storage"
	}
	switch {
	case most == 0:
		d.add("jetstream", levelFail, text+": the account may use no "+what, "give the account "+what+" in the NATS server's configuration, or choose the other --storage")
	case most > 0 && used > most/10*9:
		d.add("jetstream", levelWarn, text+": more than 90 % of the account's "+what, "raise the account's limit or delete topics: when it is reached produces are refused with KAFKA_STORAGE_ERROR")
	case p.MaxStreams > 0 && p.Streams >= p.MaxStreams:
		d.add("jetstream", levelFail, text+": no stream can be made any more", "raise the account's max_streams: each partition is a stream, and there are some buckets")
	case p.MaxStreams > 0 && p.Streams > p.MaxStreams/10*9:
		d.add("jetstream", levelWarn, text+": few streams are left", "raise the account's max_streams: each partition is a stream")
	case most < 0 && d.l.external() && d.l.Storage == "file":
		// The server's own limit is not shown to its accounts.
		d.ok("jetstream", "%s; so the server's max_file_store must be below the size of its disk, which cannot be seen from here: "+
			"NATS answers no write to a stream that has met a full disk until it is restarted", text)
	default:
		d.ok("jetstream", "%s", text)
	}
}

// payload compares the largest batch with the largest message.
func (d *doctor) payload(most int) {
	need := int64(d.l.MaxMessage) + partition.StorageRoom
	text := fmt.Sprintf("%d bytes; message.max.bytes %d needs %d", most, int64(d.l.MaxMessage), need)
	if int64(most) < need {
		d.add("max_payload", levelWarn, text+": serve lowers message.max.bytes", "set max_payload: 8MB in the NATS server's configuration, or lower --message-max-bytes")
		return
	}
	d.ok("max_payload", "%s", text)
}

func (d *doctor) replicas(info pubsub.Info, p *jetstream.Probe) {
	where := "a single server"
	if p.Cluster != "" {
		where = fmt.Sprintf("cluster %s", p.Cluster)
	}
	switch most := max(info.MaxReplicas, 1); {
	case d.l.Replicas > most && !d.l.ClampReplicas:
		d.add("replicas", levelFail, fmt.Sprintf("%d asked for, %d possible on %s", d.l.Replicas, most, where), "lower --replicas, allow fewer with --clamp-replication, or use a NATS cluster of enough servers")
	case d.l.Replicas > most:
		d.add("replicas", levelWarn, fmt.Sprintf("%d asked for, topics get the %d possible on %s", d.l.Replicas, most, where), "use a NATS cluster of enough servers")
	default:
		d.ok("replicas", "%d of %d possible on %s; durability %s", d.l.Replicas, most, where, durabilityOf(d.l, info.MaxReplicas).Level)
	}
}

// clock compares our clock with the store's. Gateways refuse to append from a
// minute on.
func (d *doctor) clock(p *jetstream.Probe) {
	const remedy = "synchronise the clocks of this machine and the NATS servers (NTP)"
	if !p.AheadKnown {
		d.ok("clock", "not compared: the store has no stream yet that could tell its time")
		return
	}
	text := fmt.Sprintf("%v ahead of the store's (± %v)", p.Ahead.Round(time.Millisecond), (p.RTT / 2).Round(10*time.Microsecond))
	switch off := p.Ahead.Abs(); {
	case off > time.Minute:
		d.add("clock", levelFail, text+": nothing is appended by a gateway whose clock is off by more than 1m", remedy)
	case off > 5*time.Second:
		d.add("clock", levelWarn, text, remedy)
	default:
		d.ok("clock", "%s", text)
	}
}

// contents checks what is stored under the prefix.
func (d *doctor) contents(ctx context.Context, st *jetstream.Store) (partitions int) {
	unreadable := func(err error) {
		hint := "look at the log of the NATS server"
		if f := (*broker.FormatError)(nil); errors.As(err, &f) {
			hint = f.Hint
		}
		d.add("stored state", levelFail, err.Error(), hint)
	}
	logs, silent, err := st.Logs(ctx, d.l.Prefix+".>")
	if err != nil {
		unreadable(err)
		return 0
	}
	partitions = len(logs) + len(silent)
	meta := d.l.Prefix + "-meta"
	there, err := st.HasTable(ctx, meta)
	if err != nil {
		unreadable(err)
		return partitions
	}
	id := ""
	if there {
		t, err := st.Table(ctx, pubsub.TableConfig{Name: meta})
		if err == nil {
			id, err = broker.ClusterID(ctx, t)
		}
		if err != nil {
			unreadable(err)
			return partitions
		}
	}
	switch {
	case id == "" && partitions > 0:
		d.add("stored state", levelFail, fmt.Sprintf("there are %d streams under %s.> but no cluster id in bucket %s", partitions, d.l.Prefix, meta),
			"restore the bucket, delete those streams, or use another --prefix")
		return partitions
	case id == "":
		d.ok("stored state", "nothing under prefix %s yet", d.l.Prefix)
		return partitions
	}
	d.ok("stored state", "cluster %s, %d partitions", id, partitions)
	if len(silent) > 0 {
		d.add("streams", levelWarn, fmt.Sprintf("%d do not answer, for example %s", len(silent), silent[0]), "look at the NATS servers: their leaders are missing")
	}
	if len(logs) > 0 {
		n, example := 0, ""
		for _, l := range logs {
			if l.Bounds.InSync < l.Bounds.Replicas {
				n, example = n+1, fmt.Sprintf("%s with %d of %d", l.Name, l.Bounds.InSync, l.Bounds.Replicas)
			}
		}
		d.copies(n, example)
	}
	d.stopped(ctx, st)
	return partitions
}

// copies tells of streams with fewer copies than they should have.
func (d *doctor) copies(n int, example string) {
	if n == 0 {
		d.ok("copies", "all are in sync")
		return
	}
	d.add("copies", levelWarn, fmt.Sprintf("%d partitions have copies that are away or behind, for example %s", n, example),
		"start the servers that are away; those that are back catch up by themselves")
}

func (d *doctor) stopped(ctx context.Context, st *jetstream.Store) {
	name := d.l.Prefix + "-partitions"
	there, err := st.HasTable(ctx, name)
	if err == nil && !there {
		return
	}
	var listed []partition.Listed
	if err == nil {
		var t pubsub.Table
		if t, err = st.Table(ctx, pubsub.TableConfig{Name: name}); err == nil {
			listed, err = partition.ListRecords(ctx, t)
		}
	}
	if err != nil {
		d.add("partitions", levelFail, err.Error(), "look at the log of the NATS server")
		return
	}
	n, example := 0, ""
	for _, p := range listed {
		if p.Stop != nil || p.Problem != "" {
			n, example = n+1, p.Stream
		}
	}
	d.partitionsStopped(n, example)
}

func (d *doctor) partitionsStopped(n int, example string) {
	if n == 0 {
		d.ok("partitions", "none is stopped")
		return
	}
	d.add("partitions", levelFail, fmt.Sprintf("%d are stopped, for example %s", n, example), "stream repair shows why and what can be done")
}

// askServer asks the server that has the folder.
func (d *doctor) askServer(ctx context.Context, who string) (partitions int) {
	base := strings.TrimSuffix(d.admin, "/")
	if base == "" && d.l.AdminPort != 0 {
		host := "localhost"
		if len(d.l.AdminBind) > 0 {
			if full, err := listenAddress(d.l.AdminBind[0], d.l.AdminPort); err == nil {
				if h, _, _ := splitHostPort(full); h != "" && !unspecified(h) {
					host = h
				}
			}
		}
		base = fmt.Sprintf("http://%s", joinHostPort(host, d.l.AdminPort))
	}
	var status struct {
		Service string   `json:"service"`
		Version string   `json:"version"`
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
		NATS    struct {
			Version    string `json:"server_version"`
			MaxPayload int    `json:"max_payload"`
		} `json:"nats"`
		Durability struct {
			Level string `json:"level"`
		} `json:"durability"`
		Warnings []string `json:"warnings"`
	}
	err := errors.New("admin-port is 0")
	if base != "" {
		err = getJSON(ctx, base+"/v1/stream/status", &status)
		if err == nil && status.Service != "hanzo-stream" {
			err = fmt.Errorf("%s is another service (%q)", base, logging.Printable(status.Service))
		}
	}
	if err != nil {
		d.unreachable = true
		d.add("lock", levelFail, fmt.Sprintf("the folder is in use by %s, and it cannot be asked: %v", who, err),
			"name the HTTP side of that server with --admin URL, or stop it")
		return 0
	}
	d.ok("lock", "the folder is in use by %s: stream %s at %s is asked instead", who, status.Version, base)
	if status.Ready {
		d.ok("server", "ready; embedded NATS %s, durability %s", status.NATS.Version, status.Durability.Level)
	} else {
		d.add("server", levelFail, "not ready: "+strings.Join(status.Reasons, ", "), "look at its log and at "+base+"/readyz")
	}
	for _, w := range status.Warnings {
		d.add("server", levelWarn, w, "see its log")
	}
	if status.NATS.MaxPayload > 0 {
		d.payload(status.NATS.MaxPayload)
	}
	var topics []struct {
		Name       string
		Partitions []struct {
			Partition int32
			Error     string
			Replicas  int
			InSync    int `json:"in_sync"`
		}
	}
	if err := getJSON(ctx, base+"/v1/stream/topics", &topics); err != nil {
		d.add("partitions", levelFail, err.Error(), "look at the server's log")
		return 0
	}
	n, example := 0, ""
	under, short := 0, ""
	for _, t := range topics {
		for _, p := range t.Partitions {
			partitions++
			if p.InSync < p.Replicas {
				under, short = under+1, fmt.Sprintf("%s-%d with %d of %d", t.Name, p.Partition, p.InSync, p.Replicas)
			}
			if p.Error != "" {
				n, example = n+1, fmt.Sprintf("%s-%d", t.Name, p.Partition)
			}
		}
	}
	if partitions > 0 {
		d.copies(under, short)
	}
	d.partitionsStopped(n, example)
	return partitions
}

// getJSON reads one answer of a server, at most 64 MiB of it.
func getJSON(ctx context.Context, url string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // only read from
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<20)).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// report writes the findings and makes the exit code.
func (d *doctor) report(w io.Writer, output string) error {
	failed := 0
	for _, f := range d.findings {
		if f.Level == levelFail {
			failed++
		}
	}
	var err error
	if output == "json" {
		err = writeJSON(w, d.findings)
	} else {
		var out strings.Builder
		tw := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
		for _, f := range d.findings {
			fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Level, f.Check, f.Found)
			if f.Remedy != "" {
				fmt.Fprintf(tw, "\t\tremedy: %s\n", f.Remedy)
			}
		}
		_ = tw.Flush() // to a strings.Builder
		_, err = io.WriteString(w, out.String())
	}
	switch {
	case err != nil:
		return err
	case d.unreachable:
		return &exitError{code: exitStore, err: errors.New("the store is out of reach")}
	case failed == 1:
		return &exitError{code: exitFailed, err: errors.New("1 check failed")}
	case failed > 0:
		return &exitError{code: exitFailed, err: fmt.Errorf("%d checks failed", failed)}
	}
	return nil
}
