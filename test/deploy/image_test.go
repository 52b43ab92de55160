package deploy

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/hanzoai/stream/test/testkit"
)

// What the tests build.
const (
	testVersion = "1.2.3-test"
	testCommit  = "0123456789ab"
)

var arches = []string{"amd64", "arm64"}

// images builds the image for all platforms, once, into an OCI layout below
// .cache, and gives the folder.
var images = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir := filepath.Join(testkit.Cache(), fmt.Sprintf("deploy.%d", os.Getpid()))
	made = dir
	buildContext := filepath.Join(dir, "context")
	if err := makeContext(buildContext); err != nil {
		return "", fmt.Errorf("build context: %w", err)
	}
	var index v1.ImageIndex = empty.Index
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	for _, arch := range arches {
		d, err := parseDockerfile()
		if err != nil {
			return "", err
		}
		b, err := d.build(ctx, arch, buildContext, filepath.Join(dir, arch), vars{"VERSION": testVersion, "COMMIT": testCommit})
		if err != nil {
			return "", fmt.Errorf("linux/%s: %w", arch, err)
		}
		img, err := b.image()
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	_, err := layout.Write(filepath.Join(dir, "layout"), index)
	return filepath.Join(dir, "layout"), err
})

// made is the folder that images has made, to be removed at the end.
var made string

// image assembles what a builder would.
func (b *built) image() (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var layers []v1.Layer
	for _, nodes := range b.layers {
		blob, err := tarOf(nodes)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(blob)), nil },
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, err
	}
	f, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	f = f.DeepCopy()
	f.OS, f.Architecture = "linux", b.arch
	f.Config = v1.Config{
		User: b.config.user, Env: b.config.env, Entrypoint: b.config.entrypoint, Labels: b.config.labels, StopSignal: b.config.stopSignal,
		ExposedPorts: map[string]struct{}{}, Volumes: map[string]struct{}{},
	}
	for _, p := range b.config.ports {
		if !strings.Contains(p, "/") {
			p += "/tcp"
		}
		f.Config.ExposedPorts[p] = struct{}{}
	}
	for _, v := range b.config.volumes {
		f.Config.Volumes[v] = struct{}{}
	}
	return mutate.ConfigFile(img, f)
}

func tarOf(nodes []node) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, n := range nodes {
		h := &tar.Header{Name: strings.TrimPrefix(n.path, "/"), Mode: int64(n.mode.Perm()), Uid: n.uid, Gid: n.gid, ModTime: time.Unix(0, 0)}
		var body []byte
		switch {
		case n.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case n.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, n.link
		default:
			var err error
			if body, err = os.ReadFile(n.source); err != nil {
				return nil, err
			}
			h.Typeflag, h.Size = tar.TypeReg, int64(len(body))
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

// openImage reads the image of one platform back from the layout.
func openImage(t *testing.T, arch string) v1.Image {
	t.Helper()
	dir, err := images()
	if err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range manifest.Manifests {
		if d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == arch {
			img, err := index.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return img
		}
	}
	t.Fatalf("no linux/%s in the index", arch)
	return nil
}

// file is one of an image's files.
type file struct {
	tar.Header
	body []byte
}

// files are the files of an image, all layers applied, by absolute path.
func files(t *testing.T, img v1.Image) map[string]file {
	t.Helper()
	flat := mutate.Extract(img)
	defer flat.Close()
	out := map[string]file{}
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[path.Clean("/"+h.Name)] = file{*h, body}
	}
}

// TestImage inspects the layout as a registry would get it.
func TestImage(t *testing.T) {
	dir, err := images()
	if err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
	}
	slices.Sort(platforms)
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %q", platforms)
	}
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) { inspect(t, arch) })
	}
}

func inspect(t *testing.T, arch string) {
	img := openImage(t, arch)
	conf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := conf.Config
	if conf.OS != "linux" || conf.Architecture != arch {
		t.Errorf("platform %s/%s", conf.OS, conf.Architecture)
	}
	uid, gid, err := numericUser(c.User)
	if err != nil {
		t.Error(err)
	}
	if !slices.Equal(c.Entrypoint, []string{"/usr/bin/stream"}) || len(c.Cmd) != 0 || c.StopSignal != "SIGTERM" {
		t.Errorf("entrypoint %q, cmd %q, stop signal %q", c.Entrypoint, c.Cmd, c.StopSignal)
	}
	if ports := slices.Sorted(maps.Keys(c.ExposedPorts)); !slices.Equal(ports, []string{"9092/tcp", "9093/tcp"}) {
		t.Errorf("ports %q", ports)
	}
	for key, want := range map[string]string{"title": "stream", "version": testVersion, "revision": testCommit, "licenses": "MIT",
		"source": "https://github.com/hanzoai/stream", "description": "", "documentation": "", "vendor": ""} {
		if got := c.Labels["org.opencontainers.image."+key]; got == "" || want != "" && got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}

	fs := files(t, img)
	total := int64(0)
	for name, f := range fs {
		total += f.Size
		_, isVolume := c.Volumes[name]
		switch {
		case f.Mode&0o7022 != 0 && f.Typeflag != tar.TypeSymlink:
			t.Errorf("%s: mode %o", name, f.Mode)
		case !isVolume && (f.Uid != 0 || f.Gid != 0):
			t.Errorf("%s belongs to %d:%d: the user could change it", name, f.Uid, f.Gid)
		case isVolume && (f.Uid != uid || f.Gid != gid):
			t.Errorf("volume %s belongs to %d:%d", name, f.Uid, f.Gid)
		}
		if base := path.Base(name); base == "sh" || base == "busybox" {
			t.Errorf("%s: a shell", name)
		}
	}
	for v := range c.Volumes {
		if _, ok := fs[v]; !ok {
			t.Errorf("volume %s is not there: a new one would belong to root", v)
		}
	}
	if total > 64<<20 {
		t.Errorf("%d bytes", total)
	}
	if p := string(fs["/etc/passwd"].body); !strings.HasPrefix(p, fmt.Sprintf("stream:x:%d:%d:", uid, gid)) {
		t.Errorf("passwd %q", p)
	}
	if ca := fs["/etc/ssl/certs/ca-certificates.crt"].body; !bytes.Contains(ca, []byte("BEGIN CERTIFICATE")) {
		t.Error("no certificate authorities")
	}
	if l := fs["/usr/bin/hanzo-stream"]; l.Typeflag != tar.TypeSymlink || l.Linkname != "stream" {
		t.Errorf("hanzo-stream: %c %s", l.Typeflag, l.Linkname)
	}
	binary := fs["/usr/bin/stream"]
	if binary.Typeflag != tar.TypeReg || binary.Mode&0o111 != 0o111 {
		t.Fatalf("stream: type %c, mode %o", binary.Typeflag, binary.Mode)
	}
	checkStatic(t, arch, binary.body)
}

// checkStatic wants a program that needs nothing but the kernel.
func checkStatic(t *testing.T, arch string, binary []byte) {
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		t.Errorf("machine %v, want %v", f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("segment %v: not static", p.Type)
		}
	}
	if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
		t.Error("symbols are not stripped")
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	for key, want := range map[string]string{"CGO_ENABLED": "0", "-trimpath": "true", "GOOS": "linux", "GOARCH": arch} {
		if set[key] != want {
			t.Errorf("built with %s=%s, want %s", key, set[key], want)
		}
	}
	if bytes.Contains(binary, []byte(testkit.Root())) {
		t.Error("the binary names the folder it was built in")
	}
}

// unpack writes an image's files below a new folder. If we may, they belong to
// whom the image says.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	fs := files(t, img)
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		f, to := fs[name], filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch f.Typeflag {
		case tar.TypeDir:
			if err = os.MkdirAll(to, 0o755); err == nil {
				err = os.Chmod(to, os.FileMode(f.Mode).Perm())
			}
		case tar.TypeSymlink:
			err = os.Symlink(f.Linkname, to)
		default:
			err = os.WriteFile(to, f.body, os.FileMode(f.Mode).Perm())
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Lchown(to, f.Uid, f.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// hostBinary is the image's binary for this machine.
func hostBinary(t *testing.T) string {
	t.Helper()
	dir, err := images()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" || !slices.Contains(arches, runtime.GOARCH) {
		return testkit.Binary(t)
	}
	return filepath.Join(filepath.Dir(dir), runtime.GOARCH, "out", "usr", "bin", "stream")
}

// TestVersion: the binary says which release it is.
func TestVersion(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), hostBinary(t), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("stream %s (commit %s, ", testVersion, testCommit); !strings.HasPrefix(string(out), want) {
		t.Errorf("version: %q, want %q…", out, want)
	}
}

// tree is what lies below a folder, but for one that is left out: names with
// mode, size and content or target.
func tree(t *testing.T, root, without string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == without {
			return fs.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		out[rel] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			out[rel] += fmt.Sprint(" ", info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
