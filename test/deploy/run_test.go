package deploy

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// contained is the image's process: its root is the image's, its user the
// image's, its environment only what the image says.
type contained struct {
	cmd    *exec.Cmd
	exited chan struct{}

	mu  sync.Mutex // guards: log
	log bytes.Buffer
}

// Write implements io.Writer.
func (c *contained) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

func (c *contained) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// contain starts the image unpacked in root. Without the rights of root it
// runs as this user, outside of root but on its volume.
func contain(t *testing.T, root string, args ...string) *contained {
	t.Helper()
	conf, err := openImage(t, runtime.GOARCH).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := &contained{exited: make(chan struct{})}
	entry := conf.Config.Entrypoint
	c.cmd = exec.Command(entry[0], append(entry[1:], args...)...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Env = append([]string{"PATH=/usr/bin"}, conf.Config.Env...)
	if os.Getuid() == 0 {
		uid, gid, err := numericUser(conf.Config.User)
		if err != nil {
			t.Fatal(err)
		}
		c.cmd.SysProcAttr.Chroot = root
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		c.cmd.Dir = "/"
	} else {
		c.cmd.Path, c.cmd.Dir = filepath.Join(root, entry[0]), filepath.Join(root, "usr")
		for i, e := range c.cmd.Env {
			c.cmd.Env[i] = strings.Replace(e, "=/var/", "="+root+"/var/", 1)
		}
	}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.WaitDelay = c, c, 5*time.Second
	started := make(chan error, 1)
	go func() {
		// Pdeathsig is sent when the thread that started the child ends.
		runtime.LockOSThread()
		defer close(c.exited)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // read from ProcessState
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.exited
		if t.Failed() {
			t.Logf("output of the image:\n%s", c.output())
		}
	})
	return c
}

// stop sends the image's stop signal and wants exit code 0.
func (c *contained) stop(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.exited:
		if code := c.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("exit code %d after SIGTERM", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("no end within a minute of SIGTERM")
	}
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, topic string, values ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, v := range values {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatalf("produce %s: %v", v, err)
		}
	}
}

// consume polls until n records have come and gives their values.
func consume(t *testing.T, cl *kgo.Client, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out []string
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
	}
	return out
}

// TestRun runs the image for this machine in its own root: read-only but for
// the volume, with no user's rights and nothing of this machine's files.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	img := openImage(t, runtime.GOARCH)
	root := unpack(t, img)
	volume := filepath.Join(root, "var", "lib", "stream")
	if os.Getuid() == 0 {
		// The folder's own parents must let the image's user through.
		for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		t.Log("without root's rights: no chroot, no other user")
		err := filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() || p == volume {
				return err
			}
			t.Cleanup(func() { _ = os.Chmod(p, 0o755) })
			return os.Chmod(p, 0o555)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	before := tree(t, root, volume)
	addr, web := testkit.FreeAddr(t), testkit.FreeAddr(t)
	args := []string{"--bind", addr, "--admin-bind", web, "--advertised-address", addr, "--shutdown-delay", "0s"}

	c := contain(t, root, args...)
	waitReady(t, c, web)
	cl := client(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil || len(resp.ApiKeys) < 10 {
		t.Fatalf("ApiVersions: %v, %d keys", err, len(resp.ApiKeys))
	}
	produce(t, cl, "kept", "a", "b")
	if os.Getuid() == 0 {
		if st, err := os.Stat(filepath.Join("/proc", itoa(c.cmd.Process.Pid))); err != nil || st.Sys().(*syscall.Stat_t).Uid == 0 {
			t.Errorf("the process belongs to root (%v)", err)
		}
	}
	c.stop(t)

	// Another container on the same volume.
	c = contain(t, root, args...)
	waitReady(t, c, web)
	got := consume(t, client(t, addr, kgo.ConsumeTopics("kept"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 2)
	if strings.Join(got, "") != "ab" {
		t.Errorf("read %q after a restart", got)
	}
	c.stop(t)
	if entries, err := os.ReadDir(volume); err != nil || len(entries) == 0 {
		t.Errorf("nothing on the volume: %v", err)
	}
	if after := tree(t, root, volume); !maps.Equal(before, after) {
		t.Errorf("files beside the volume have changed:\n%v\n%v", before, after)
	}

	// Without a writable volume the reason is told, not guessed.
	if os.Getuid() == 0 {
		if err := os.RemoveAll(volume); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(volume, 0o755); err != nil { // root's
			t.Fatal(err)
		}
		c := contain(t, root, args...)
		select {
		case <-c.exited:
		case <-time.After(time.Minute):
			t.Fatal("it runs on a volume that it cannot write to")
		}
		if out := c.output(); c.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(out, "hint: make the folder writable") {
			t.Errorf("exit code %d on a foreign volume: %s", c.cmd.ProcessState.ExitCode(), out)
		}
	}
}

// waitReady waits for /readyz, or fails at once when the process ends.
func waitReady(t *testing.T, c *contained, web string) {
	t.Helper()
	testkit.Poll(t, time.Minute, "ready", func() error {
		select {
		case <-c.exited:
			t.Fatalf("it ended with exit code %d:\n%s", c.cmd.ProcessState.ExitCode(), c.output())
		default:
		}
		return testkit.Get(t.Context(), "http://"+web+"/readyz")
	})
}
