package client

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestCompactWaits: --wait ends when all is done; it says once what is in the way,
// and ends with the reason when a run has failed or nobody is to compact.
func TestCompactWaits(t *testing.T) {
	t.Parallel()
	const head = `{"topic":"t","compacted":true,"cleaner":`
	for name, c := range map[string]struct {
		docs           []string // the answer to POST, then to GET, the last again and again
		stdout, stderr string
		err            string
	}{
		"done": {
			docs: []string{
				head + `{"state":"idle","gateway":2},"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`,
				head + `{"state":"running","gateway":2,"running":{"partition":"t-0","since":"x","done_bytes":1,"of_bytes":2}},"partitions":[{"partition":0,"compacted_to":1,"wanted":9,"running":{"partition":"t-0","since":"x","done_bytes":1,"of_bytes":2}}]}`,
				head + `{"state":"idle","gateway":2},"partitions":[{"partition":0,"compacted_to":9,"wanted":0}]}`,
			},
			stdout: "\n0          9 ",
		},
		"asked of one that is away": {
			docs: []string{
				head + `{"state":"unknown","gateway":2,"detail":"gateway 2 does not answer"},"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`,
				head + `{"state":"unknown","gateway":2,"detail":"gateway 2 does not answer"},"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`,
				head + `{"state":"clock","gateway":3},"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`,
				head + `{"state":"idle","gateway":3},"partitions":[{"partition":0,"compacted_to":9,"wanted":0}]}`,
			},
			stdout: "\n0          9 ",
			stderr: "waiting: it is not known what compaction does: gateway 2 does not answer\nwaiting: gateway 3, which would compact, does not know the store's time, or its clock is a minute off and more\n",
		},
		"failed": {
			docs: []string{
				head + `{"state":"idle","gateway":2},"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`,
				head + `{"state":"idle","gateway":2},"partitions":[{"partition":0,"compacted_to":1,"wanted":9,"error":"no room","again":"2026-11-30T08:00:00Z"}]}`,
			},
			err: "partition 0: no room (tried again at 2026-11-30T08:00:00Z)",
		},
		"off": {
			docs: []string{head + `{"state":"off","gateway":2},"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`},
			err:  "gateway 2, which would compact, has log.cleaner.enable=false",
		},
		"a gateway that does not tell": {
			docs: []string{
				`{"topic":"t","compacted":true,"partitions":[{"partition":0,"compacted_to":1,"wanted":9}]}`,
				`{"topic":"t","compacted":true,"partitions":[{"partition":0,"compacted_to":9,"wanted":0}]}`,
			},
			stdout: "\n0          9 ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(asked.Add(1)) - 1
				if want := map[bool]string{true: http.MethodPost, false: http.MethodGet}[n == 0]; r.Method != want || r.URL.Path != "/v1/stream/topics/t/compaction" {
					t.Errorf("question %d: %s %s", n, r.Method, r.URL)
				}
				_, _ = w.Write([]byte(c.docs[min(n, len(c.docs)-1)]))
			}))
			defer s.Close()
			cmd := Commands("test", nil)[0]
			var stdout, stderr bytes.Buffer
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{"compact", "t", "--wait", "--admin", s.URL})
			err := cmd.ExecuteContext(t.Context())
			if got := ""; err != nil || c.err != "" {
				if err != nil {
					got = err.Error()
				}
				if got != c.err {
					t.Errorf("ended with %q, want %q", got, c.err)
				}
			}
			if !strings.Contains(stdout.String(), c.stdout) || stderr.String() != c.stderr {
				t.Errorf("stdout\n%s\nstderr\n%s", &stdout, &stderr)
			}
			if want := len(c.docs); int(asked.Load()) != want {
				t.Errorf("asked %d times, want %d", asked.Load(), want)
			}
		})
	}
}
