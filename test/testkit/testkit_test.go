package testkit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	p := StartProcess(t, Command{Name: "sh", Path: "/bin/sh", Args: []string{"-c", `trap 'echo bye; exit 7' TERM; echo "hello $WHO"; while :; do sleep 0.01; done`}, Env: []string{"WHO=you"}})
	Poll(t, 5*time.Second, "greeting", func() error {
		if !strings.Contains(p.Log(), "hello you") {
			return errors.New(p.Log())
		}
		return nil
	})
	if code := p.Terminate(t, 5*time.Second); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if want := "hello you\nbye\n"; p.Log() != want {
		t.Errorf("log %q, want %q", p.Log(), want)
	}
	p.Kill() // after the end: no error, no wait
}

func TestProcessKill(t *testing.T) {
	p := StartProcess(t, Command{Name: "sleep", Path: "/bin/sleep", Args: []string{"60"}})
	p.Kill()
	if code := p.ExitCode(t, time.Second); code != -1 {
		t.Errorf("exit code %d, want -1", code)
	}
}

func TestRelay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	r := NewRelay(t, l.Addr().String())
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(5 * time.Second))
		return c, bufio.NewReader(c)
	}
	echo := func(c net.Conn, b *bufio.Reader) error {
		if _, err := io.WriteString(c, "ping\n"); err != nil {
			return err
		}
		line, err := b.ReadString('\n')
		if err == nil && line != "ping\n" {
			err = errors.New(line)
		}
		return err
	}

	c, b := dial()
	if err := echo(c, b); err != nil {
		t.Fatalf("echo: %v", err)
	}
	r.Stall()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if err := echo(c, b); err == nil {
		t.Error("bytes came through a stalled relay")
	}
	r.Flow()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if line, err := b.ReadString('\n'); err != nil || line != "ping\n" {
		t.Errorf("after the stall: %q, %v", line, err)
	}
	r.Cut()
	if err := echo(c, b); err == nil {
		t.Error("echo over a cut connection")
	}
	c, b = dial()
	if err := echo(c, b); err != nil {
		t.Errorf("echo after a cut: %v", err)
	}
	r.Refuse()
	c, b = dial()
	if err := echo(c, b); err == nil {
		t.Error("echo over a refused connection")
	}
	r.Accept()
	c, b = dial()
	if err := echo(c, b); err != nil {
		t.Errorf("echo after refusing: %v", err)
	}
}

// TestCompile: what is built already is not linked again, by whichever process.
func TestCompile(t *testing.T) {
	var built [2]os.FileInfo
	for i := range built {
		bin, err := compile("stream")
		if err == nil {
			built[i], err = os.Stat(bin)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !os.SameFile(built[0], built[1]) {
		t.Errorf("%s was built twice", built[0].Name())
	}
}
