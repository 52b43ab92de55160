package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/mod/semver"

	"github.com/hanzoai/stream/test/testkit"
)

// dockerfile is the Dockerfile as BuildKit's parser reads it.
type dockerfile struct {
	stages   []instructions.Stage
	meta     []instructions.ArgCommand
	warnings []string
}

func parseDockerfile() (*dockerfile, error) {
	b, err := os.ReadFile(filepath.Join(testkit.Root(), "Dockerfile"))
	if err != nil {
		return nil, err
	}
	res, err := parser.Parse(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	d := &dockerfile{}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, msg string, where []parser.Range) {
		d.warnings = append(d.warnings, fmt.Sprintf("%s: %s %v", rule, msg, where))
	}})
	for _, w := range res.Warnings {
		d.warnings = append(d.warnings, w.Short)
	}
	d.stages, d.meta, err = instructions.Parse(res.AST, lint)
	return d, err
}

// vars are the variables of one stage.
type vars map[string]string

// Get implements shell.EnvGetter.
func (v vars) Get(key string) (string, bool) { s, ok := v[key]; return s, ok }

// Keys implements shell.EnvGetter.
func (v vars) Keys() []string {
	var ks []string
	for k := range v {
		ks = append(ks, k)
	}
	return ks
}

// expand replaces variables; one that is not declared is an error.
func (v vars) expand(word string) (string, error) {
	s, unknown, err := shell.NewLex('\\').ProcessWord(word, v)
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("%q: variables %v are not declared in this stage", word, unknown)
	}
	return s, err
}

// node is a file of an image's layer.
type node struct {
	path     string // absolute
	mode     fs.FileMode
	uid, gid int
	link     string // target, if a symbolic link
	source   string // on this machine, if a file
}

// built is what the Dockerfile makes for one platform.
type built struct {
	arch   string
	layers [][]node
	config imageConfig
}

// imageConfig is what the last stage says about running the image.
type imageConfig struct {
	user, stopSignal string
	env, entrypoint  []string
	ports, volumes   []string
	labels           map[string]string
}

// build executes the Dockerfile for linux/arch without a container: the first
// stage runs in the folder root of this machine, with this machine's Go; the
// second is interpreted.
func (d *dockerfile) build(ctx context.Context, arch, buildContext, root string, args vars) (*built, error) {
	if len(d.stages) != 2 || d.stages[1].BaseName != "scratch" {
		return nil, errors.New("want two stages, the last from scratch")
	}
	global := vars{}
	for _, m := range d.meta {
		for _, a := range m.Args {
			global[a.Key] = a.ValueString()
			if v, ok := args[a.Key]; ok {
				global[a.Key] = v
			}
		}
	}
	declare := func(v vars, a *instructions.ArgCommand) error {
		for _, kv := range a.Args {
			value, ok := args[kv.Key]
			if !ok {
				value, ok = global[kv.Key]
			}
			if !ok && kv.Value != nil {
				value, ok = *kv.Value, true
			}
			switch {
			case kv.Key == "TARGETOS":
				value, ok = "linux", true
			case kv.Key == "TARGETARCH":
				value, ok = arch, true
			}
			if !ok {
				return fmt.Errorf("ARG %s has no value", kv.Key)
			}
			v[kv.Key] = value
		}
		return nil
	}
	if err := d.compile(ctx, declare, buildContext, root); err != nil {
		return nil, fmt.Errorf("stage %s: %w", d.stages[0].Name, err)
	}

	b := &built{arch: arch, config: imageConfig{labels: map[string]string{}}}
	v, there := vars{}, map[string]bool{"/": true}
	for _, cmd := range d.stages[1].Commands {
		if e, ok := cmd.(instructions.SupportsSingleWordExpansion); ok {
			if err := e.Expand(v.expand); err != nil {
				return nil, err
			}
		}
		switch c := cmd.(type) {
		case *instructions.ArgCommand:
			if err := declare(v, c); err != nil {
				return nil, err
			}
		case *instructions.LabelCommand:
			for _, kv := range c.Labels {
				b.config.labels[kv.Key] = kv.Value
			}
		case *instructions.EnvCommand:
			for _, kv := range c.Env {
				b.config.env = append(b.config.env, kv.Key+"="+kv.Value)
				v[kv.Key] = kv.Value
			}
		case *instructions.CopyCommand:
			if c.From != d.stages[0].Name {
				return nil, fmt.Errorf("COPY from %q", c.From)
			}
			layer, err := copyLayer(c, root, there)
			if err != nil {
				return nil, err
			}
			b.layers = append(b.layers, layer)
		case *instructions.UserCommand:
			b.config.user = c.User
		case *instructions.ExposeCommand:
			b.config.ports = append(b.config.ports, c.Ports...)
		case *instructions.VolumeCommand:
			b.config.volumes = append(b.config.volumes, c.Volumes...)
		case *instructions.StopSignalCommand:
			b.config.stopSignal = c.Signal
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				return nil, errors.New("ENTRYPOINT needs a shell, which the image does not have")
			}
			b.config.entrypoint = c.CmdLine
		default:
			return nil, fmt.Errorf("%s: not expected in the last stage", cmd.Name())
		}
	}
	return b, nil
}

// compile executes the first stage. Absolute paths that the stage makes lie
// below root; others, such as the certificates, are those of this machine.
func (d *dockerfile) compile(ctx context.Context, declare func(vars, *instructions.ArgCommand) error, buildContext, root string) error {
	v, dir := vars{}, "/"
	own := regexp.MustCompile(`(^|[\s=])(/(?:out|empty|src)\b)`)
	for _, cmd := range d.stages[0].Commands {
		switch c := cmd.(type) {
		case *instructions.WorkdirCommand:
			dir = c.Path
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				return err
			}
		case *instructions.ArgCommand:
			if err := declare(v, c); err != nil {
				return err
			}
		case *instructions.CopyCommand:
			if c.From != "" {
				return fmt.Errorf("COPY from %q", c.From)
			}
			for _, src := range c.SourcePaths {
				from := filepath.Join(buildContext, src)
				info, err := os.Stat(from)
				if err != nil {
					return fmt.Errorf("COPY %s: not in the build context: %w", src, err)
				}
				to := filepath.Join(root, dir, c.DestPath)
				if info.IsDir() {
					if err := copyTree(from, to); err != nil {
						return err
					}
				} else if err := copyFile(from, filepath.Join(to, filepath.Base(src))); err != nil {
					return err
				}
			}
		case *instructions.RunCommand:
			if len(c.CmdLine) != 1 || !c.PrependShell {
				return fmt.Errorf("RUN %q: not for a shell", c.CmdLine)
			}
			sh := exec.CommandContext(ctx, "sh", "-euc", "umask 022\n"+own.ReplaceAllString(c.CmdLine[0], "${1}"+root+"$2"))
			sh.Dir = filepath.Join(root, dir)
			sh.Env = testkit.Environ()
			for key, value := range v {
				sh.Env = append(sh.Env, key+"="+value)
			}
			if out, err := sh.CombinedOutput(); err != nil {
				return fmt.Errorf("RUN %s: %w\n%s", c.CmdLine[0], err, out)
			}
		default:
			return fmt.Errorf("%s: not expected in the first stage", cmd.Name())
		}
	}
	return nil
}

// copyLayer is one COPY of a folder's content from the first stage. there are
// the folders of the layers below.
func copyLayer(c *instructions.CopyCommand, root string, there map[string]bool) ([]node, error) {
	uid, gid := 0, 0
	if c.Chown != "" {
		if _, err := fmt.Sscanf(c.Chown, "%d:%d", &uid, &gid); err != nil {
			return nil, fmt.Errorf("COPY --chown=%s: not numeric", c.Chown)
		}
	}
	if len(c.SourcePaths) != 1 || !strings.HasSuffix(c.SourcePaths[0], "/") || !strings.HasSuffix(c.DestPath, "/") {
		return nil, fmt.Errorf("COPY %s %s: want one folder into another", c.SourcePaths, c.DestPath)
	}
	var nodes []node
	dest := path.Clean(c.DestPath)
	if !there[path.Dir(dest)] {
		// Who owns parents that COPY makes differs between builders.
		return nil, fmt.Errorf("COPY to %s: its parent folder is not made before", dest)
	}
	if !there[dest] {
		nodes = append(nodes, node{path: dest, mode: fs.ModeDir | 0o755, uid: uid, gid: gid})
		there[dest] = true
	}
	from := filepath.Join(root, c.SourcePaths[0])
	err := filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == from {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		n := node{path: path.Join(dest, filepath.ToSlash(rel)), mode: info.Mode(), uid: uid, gid: gid}
		switch {
		case info.IsDir():
			there[n.path] = true
		case info.Mode()&fs.ModeSymlink != 0:
			if n.link, err = os.Readlink(p); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			n.source = p
		default:
			return fmt.Errorf("%s: mode %v", n.path, info.Mode())
		}
		nodes = append(nodes, n)
		return nil
	})
	return nodes, err
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return copyFile(p, filepath.Join(to, rel))
	})
}

// ignored reads .dockerignore.
func ignored() ([]string, *patternmatcher.PatternMatcher, error) {
	f, err := os.Open(filepath.Join(testkit.Root(), ".dockerignore"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, nil, err
	}
	pm, err := patternmatcher.New(lines)
	return lines, pm, err
}

// makeContext copies what a builder would be sent.
func makeContext(to string) error {
	lines, pm, err := ignored()
	if err != nil {
		return err
	}
	root := testkit.Root()
	return filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // made and removed by others meanwhile
		}
		if err != nil || p == root {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if e.IsDir() {
			// Named without a wildcard below all exceptions: nothing in it can
			// be wanted.
			if slices.Contains(lines, rel) {
				return fs.SkipDir
			}
			return nil
		}
		if out, err := pm.MatchesOrParentMatches(filepath.ToSlash(rel)); err != nil || out {
			return err
		}
		return copyFile(p, filepath.Join(to, rel))
	})
}

// TestDockerignore: secrets, history and caches never reach a builder.
func TestDockerignore(t *testing.T) {
	lines, pm, err := ignored()
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for i, l := range lines {
		if strings.HasPrefix(l, "!") {
			last = i
		}
	}
	for _, dir := range []string{".git", ".cache", "test", "deploy"} {
		if !slices.Contains(lines[last:], dir) {
			t.Errorf("%s is not excluded after all exceptions", dir)
		}
	}
	for name, want := range map[string]bool{
		"go.mod": false, "go.sum": false, "LICENSE": false, "main.go": false, "broker/topic/topic.go": false,
		"main_test.go": true, "broker/topic/topic_test.go": true, ".env": true, "creds.txt": true, "broker/id_rsa": true,
		".git/config": true, ".git/hooks/x.go": true, ".cache/x.go": true, "test/testkit/repo.go": true, "stream": true, "bin/stream": true,
	} {
		out, err := pm.MatchesOrParentMatches(name)
		if err != nil {
			t.Fatal(err)
		}
		if out != want {
			t.Errorf("%s: excluded %v, want %v", name, out, want)
		}
	}
}

// TestDockerfile checks what can be said without building.
func TestDockerfile(t *testing.T) {
	d, err := parseDockerfile()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range d.warnings {
		t.Error(w)
	}
	if len(d.stages) != 2 {
		t.Fatalf("%d stages", len(d.stages))
	}
	build, final := d.stages[0], d.stages[1]
	if final.BaseName != "scratch" {
		t.Errorf("the image is based on %s", final.BaseName)
	}
	if build.Platform != "$BUILDPLATFORM" {
		t.Errorf("the builder runs on %q: Go compiles for other platforms by itself", build.Platform)
	}
	global := vars{}
	for _, m := range d.meta {
		for _, a := range m.Args {
			global[a.Key] = a.ValueString()
		}
	}
	image, err := global.expand(build.BaseName)
	if err != nil {
		t.Fatal(err)
	}
	version, isGo := strings.CutPrefix(image, "golang:")
	version, _, _ = strings.Cut(version, "-")
	mod, err := os.ReadFile(filepath.Join(testkit.Root(), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	need := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(mod)
	if !isGo || need == nil || semver.Compare("v"+version, "v"+string(need[1])) < 0 || strings.Count(version, ".") != 2 {
		t.Errorf("builder %s: want a golang image of a full version from %s", image, need)
	}
	for _, c := range build.Commands {
		if run, ok := c.(*instructions.RunCommand); ok && strings.Contains(run.CmdLine[0], "go build") {
			for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "GOOS=$TARGETOS", "GOARCH=$TARGETARCH", "-X main.version=$VERSION", "-X main.commit=$COMMIT"} {
				if !strings.Contains(run.CmdLine[0], want) {
					t.Errorf("go build without %s", want)
				}
			}
		}
	}
}

// numericUser splits uid:gid; both must be numbers above 0, so that Kubernetes
// can tell that it is not root.
func numericUser(s string) (uid, gid int, err error) {
	u, g, ok := strings.Cut(s, ":")
	if !ok {
		return 0, 0, fmt.Errorf("user %q: want uid:gid", s)
	}
	if uid, err = strconv.Atoi(u); err == nil {
		gid, err = strconv.Atoi(g)
	}
	if err == nil && (uid <= 0 || gid <= 0) {
		err = fmt.Errorf("user %q is root", s)
	}
	return uid, gid, err
}
