package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hanzoai/stream/test/testkit"
)

// Versions of the load tools. librdkafka comes with the Node client, the only
// registry that has its sources with the example programs.
const (
	nodeRdkafka = "3.6.1"
	natsCLI     = "v0.5.1"
)

// loadTools are the paths of what makes load.
type loadTools struct{ rdkafka, transactions, nats, kafkaLibs, java string }

// setup installs, once, what is missing into .cache. The longest step, two
// minutes, is to build librdkafka.
func setup(ctx context.Context) (loadTools, error) {
	cache := testkit.Cache()
	source, err := os.ReadFile(transactionsSource())
	if err != nil {
		return loadTools{}, err
	}
	t := loadTools{
		transactions: filepath.Join(cache, "bench", fmt.Sprintf("transactions-%.8x", sha256.Sum256(source))),
		rdkafka:      filepath.Join(cache, "bench", "rdkafka_performance-"+nodeRdkafka),
		nats:         filepath.Join(cache, "bench", "nats-"+natsCLI),
		kafkaLibs:    filepath.Join(cache, "kafka", "libs"),
	}
	if err := os.MkdirAll(filepath.Join(cache, "bench"), 0o755); err != nil {
		return t, err
	}
	steps := []struct {
		path string
		make func(ctx context.Context, path, dir string) error
	}{{t.rdkafka, buildRdkafka}, {t.transactions, buildTransactions}, {t.nats, buildNats}}
	for _, s := range steps {
		if _, err := os.Stat(s.path); err == nil {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench: building", filepath.Base(s.path))
		dir, err := os.MkdirTemp(filepath.Dir(s.path), "build-")
		if err != nil {
			return t, err
		}
		err = s.make(ctx, s.path, dir)
		os.RemoveAll(dir)
		if err != nil {
			return t, fmt.Errorf("build %s: %w", filepath.Base(s.path), err)
		}
	}
	if t.java, err = exec.LookPath("java"); err != nil {
		return t, err
	}
	if _, err := os.Stat(t.kafkaLibs); err != nil {
		return t, fmt.Errorf("Apache Kafka is not in .cache, run make setup: %w", err)
	}
	return t, nil
}

func buildRdkafka(ctx context.Context, path, dir string) error {
	if err := command(ctx, dir, "npm", "pack", "--silent", "node-rdkafka@"+nodeRdkafka); err != nil {
		return err
	}
	if err := command(ctx, dir, "tar", "xzf", "node-rdkafka-"+nodeRdkafka+".tgz"); err != nil {
		return err
	}
	src := filepath.Join(dir, "package/deps/librdkafka")
	// Plain TCP and no codecs of the system: nothing here needs them.
	for _, args := range [][]string{
		{"./configure", "--disable-ssl", "--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-lz4-ext"},
		{"make", "-j2", "-C", "src"},
		{"make", "-C", "examples", "rdkafka_performance"},
	} {
		if err := command(ctx, src, args...); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(src, "examples/rdkafka_performance"), path)
}

func transactionsSource() string {
	return filepath.Join(testkit.Root(), "test/bench/rdkafka/transactions.c")
}

// buildTransactions links with the librdkafka that the module confluent-kafka-go
// of the client tests brings.
func buildTransactions(ctx context.Context, path, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/confluentinc/confluent-kafka-go/v2")
	cmd.Dir = filepath.Join(testkit.Root(), "test/e2e")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the module with librdkafka: %w", err)
	}
	vendored := filepath.Join(strings.TrimSpace(string(out)), "kafka/librdkafka_vendor")
	made := filepath.Join(dir, "transactions")
	if err := command(ctx, dir, "gcc", "-O2", "-Wall", "-DLIBRDKAFKA_STATICLIB", "-I", vendored, "-o", made, transactionsSource(),
		filepath.Join(vendored, "librdkafka_glibc_linux_"+runtime.GOARCH+".a"), "-lm", "-ldl", "-lpthread", "-lrt"); err != nil {
		return err
	}
	return os.Rename(made, path)
}

func buildNats(ctx context.Context, path, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "install", "github.com/nats-io/natscli/nats@"+natsCLI)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Rename(filepath.Join(dir, "nats"), path)
}

func command(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if len(out) > 2<<10 {
			out = out[len(out)-2<<10:]
		}
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
