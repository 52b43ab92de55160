// Package test checks the repository itself: who may import whom, that every
// package says what it is for. The suites of the product live in its folders.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hanzoai/stream"

// arrows lists, per folder, what of this module and of the outside world its
// non-test files may import; the standard library is always allowed (but see
// never). An arrow that is not here is a failure: think before adding one.
var arrows = map[string]struct {
	own   []string
	third []string
}{
	".": {own: []string{"admin", "broker", "broker/clean", "broker/cluster", "broker/group", "broker/partition", "broker/topic", "broker/txn", "client", "logging", "protocol", "pubsub", "pubsub/embedded", "pubsub/jetstream", "types"},
		third: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/knadh/koanf/", "github.com/prometheus/client_golang/", "github.com/nats-io/nats.go", "github.com/twmb/franz-go/pkg/kerr"}},
	"client": {own: []string{"logging"},
		third: []string{"github.com/spf13/cobra", "github.com/twmb/franz-go/pkg/", "go.yaml.in/yaml/v3", "golang.org/x/term"}},
	"types":    {},
	"logging":  {},
	"serde":    {third: []string{"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kbin"}},
	"compress": {third: []string{"github.com/klauspost/compress/", "github.com/pierrec/lz4/v4", "github.com/eapache/go-xerial-snappy"}},
	"protocol": {own: []string{"broker/group", "broker/partition", "broker/topic", "broker/txn", "logging", "serde", "types", "utils/killpoint"},
		third: []string{"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kbin", "github.com/prometheus/client_golang/"}},
	"broker": {own: []string{"broker/clean", "broker/cluster", "broker/coord", "broker/group", "broker/offsets", "broker/partition", "broker/topic", "broker/txn", "logging", "pubsub", "types", "utils/killpoint"},
		third: []string{"github.com/twmb/franz-go/pkg/kerr", "github.com/prometheus/client_golang/"}},
	"broker/clean":     {own: []string{"broker/partition", "logging", "pubsub", "types"}, third: []string{"github.com/prometheus/client_golang/"}},
	"broker/cluster":   {own: []string{"logging", "pubsub"}},
	"broker/compact":   {own: []string{"compress", "serde", "types"}},
	"broker/coord":     {own: []string{"broker/cluster", "compress", "logging", "pubsub", "types", "utils/killpoint"}, third: []string{"github.com/twmb/franz-go/pkg/kerr"}},
	"broker/group":     {own: []string{"broker/cluster", "broker/coord", "logging", "pubsub", "types"}, third: []string{"github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kmsg", "github.com/prometheus/client_golang/"}},
	"broker/offsets":   {own: []string{"broker/group", "broker/partition", "broker/topic", "logging", "pubsub", "serde", "types"}, third: []string{"github.com/twmb/franz-go/pkg/kerr"}},
	"broker/partition": {own: []string{"broker/compact", "compress", "logging", "pubsub", "serde", "types", "utils/killpoint"}, third: []string{"github.com/twmb/franz-go/pkg/kerr", "github.com/prometheus/client_golang/", "github.com/klauspost/compress/"}},
	"broker/txn":       {own: []string{"broker/cluster", "broker/coord", "broker/group", "broker/partition", "logging", "pubsub", "types", "utils/killpoint"}, third: []string{"github.com/twmb/franz-go/pkg/kerr", "github.com/prometheus/client_golang/"}},
	"broker/topic":     {own: []string{"broker/partition", "logging", "pubsub", "types", "utils/killpoint"}, third: []string{"github.com/twmb/franz-go/pkg/kerr"}},
	"pubsub":           {},
	"pubsub/contract":  {own: []string{"pubsub"}},
	"pubsub/memory":    {own: []string{"pubsub"}},
	"pubsub/jetstream": {own: []string{"pubsub", "logging", "utils/killpoint"}, third: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/prometheus/client_golang/"}},
	"pubsub/embedded":  {own: []string{"pubsub", "logging"}, third: []string{"github.com/nats-io/nats-server/v2/server", "github.com/nats-io/nats.go", "golang.org/x/sys/"}},
	"utils/killpoint":  {},
	"admin":            {own: []string{"logging", "types"}, third: []string{"github.com/prometheus/client_golang/"}},
}

// never names what a folder must not import even of the standard library.
var never = map[string][]string{
	"broker": {"net", "net/http"}, "broker/compact": {"net", "net/http", "log/slog", "time"}, "broker/partition": {"net", "net/http"}, "broker/group": {"net", "net/http"},
	"broker/topic": {"net", "net/http"}, "broker/txn": {"net", "net/http"}, "broker/offsets": {"net", "net/http"}, "broker/coord": {"net", "net/http"}, "broker/cluster": {"net", "net/http"},
	"serde": {"net", "net/http", "log/slog"}, "types": {"net", "log/slog"},
}

// TestImports fails on every arrow that the table does not list.
func TestImports(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	walk(t, func(dir string, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		rule, ok := arrows[dir]
		if !ok {
			if !strings.HasPrefix(dir, "test") {
				t.Errorf("%s: a folder that no rule knows", dir)
			}
			return
		}
		seen[dir] = true
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			imp := strings.Trim(spec.Path.Value, `"`)
			first, _, _ := strings.Cut(imp, "/")
			switch own, isOwn := strings.CutPrefix(imp, module+"/"); {
			case isOwn:
				if !slices.Contains(rule.own, own) {
					t.Errorf("%s imports %s", file, own)
				}
			case strings.Contains(first, "."):
				if !slices.ContainsFunc(rule.third, func(p string) bool {
					return imp == p || strings.HasPrefix(imp, strings.TrimSuffix(p, "/")+"/")
				}) {
					t.Errorf("%s imports %s", file, imp)
				}
			default:
				if slices.Contains(never[dir], imp) {
					t.Errorf("%s imports %s", file, imp)
				}
			}
		}
	})
	for dir := range arrows {
		if !seen[dir] {
			t.Errorf("%s: a rule for a folder without Go files", dir)
		}
	}
}

// TestPackageComments fails when a package has no comment, or more than one.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	walk(t, func(dir, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := comments[dir]; !ok {
			comments[dir] = nil
		}
		if f.Doc != nil {
			comments[dir] = append(comments[dir], file)
		}
	})
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s: package comment in %v, want exactly one file", dir, files)
		}
	}
}

// walk calls fn for each Go file of this module with slash paths from its root.
func walk(t *testing.T, fn func(dir, file string)) {
	t.Helper()
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && p != "." || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(p, "go.mod")); err == nil && p != "." {
				return fs.SkipDir // a module of its own
			}
			return nil
		}
		if strings.HasSuffix(p, ".go") {
			fn(path.Dir(p), p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
