package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/mod/semver"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanzoai/stream/test/testkit"
)

func itoa(n int) string { return strconv.Itoa(n) }

// natsConf is the configuration file that the NATS servers mount.
func natsConf(t *testing.T, m *manifests) string {
	t.Helper()
	w := m.workload("nats")
	for _, v := range w.pod.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		data := named[*corev1.ConfigMap](m, v.ConfigMap.Name).Data
		command := w.pod.Spec.Containers[0].Command
		text, ok := data[filepath.Base(command[len(command)-1])]
		if !ok || len(data) != 1 {
			t.Fatalf("ConfigMap %s holds other files than %s", v.ConfigMap.Name, command[len(command)-1])
		}
		for _, mount := range w.pod.Spec.Containers[0].VolumeMounts {
			if mount.Name == v.Name && mount.MountPath != filepath.Dir(command[len(command)-1]) {
				t.Fatalf("the configuration is mounted at %s, the command says %s", mount.MountPath, command)
			}
		}
		return text
	}
	t.Fatal("no ConfigMap is mounted")
	return ""
}

// processConfig lets the server's own parser read the configuration in the
// environment of a pod's container.
func processConfig(t *testing.T, text, pod string) *server.Options {
	t.Helper()
	t.Setenv("POD_NAME", pod)
	t.Setenv("NATS_PASSWORD", password)
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("nats.conf: %v", err)
	}
	return o
}

// securityFloor reports whether a version of NATS has all known security fixes.
func securityFloor(v string) bool {
	if semver.MajorMinor(v) == "v2.12" {
		return semver.Compare(v, "v2.12.12") >= 0
	}
	return semver.Compare(v, "v2.14.3") >= 0
}

func TestNATSVersion(t *testing.T) {
	image := render(t).workload("nats").pod.Spec.Containers[0].Image
	tag, _, _ := strings.Cut(imageTag(image), "-")
	if !securityFloor("v" + tag) {
		t.Errorf("image %s is below the security floor", image)
	}
	b, err := os.ReadFile(filepath.Join(testkit.Root(), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	embedded := regexp.MustCompile(`(?m)^\s*github.com/nats-io/nats-server/v2 v(\S+)`).FindSubmatch(b)
	if embedded == nil || string(embedded[1]) != tag {
		t.Errorf("image %s is not the version that is embedded and tested, %s", image, embedded)
	}
	for v, ok := range map[string]bool{"v2.12.11": false, "v2.12.12": true, "v2.13.9": false, "v2.14.2": false, "v2.14.3": true, "v2.15.0": true, "v2.10.29": false} {
		if securityFloor(v) != ok {
			t.Errorf("floor: %s", v)
		}
	}
}

// TestNATSConfig holds the configuration against the pods it is for.
func TestNATSConfig(t *testing.T) {
	m := render(t)
	w := m.workload("nats")
	c := w.pod.Spec.Containers[0]
	text := natsConf(t, m)
	o := processConfig(t, text, "nats-1")

	if !o.JetStream || o.MaxPayload != 8<<20 || o.ServerName != "nats-1" {
		t.Errorf("jetstream %v, max_payload %d, server_name %s", o.JetStream, o.MaxPayload, o.ServerName)
	}
	if !strings.Contains(text, "sync_interval:") {
		t.Error("sync_interval is not stated")
	}
	for name, port := range map[string]int{"client": o.Port, "cluster": o.Cluster.Port, "monitor": o.HTTPPort} {
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name && int(p.ContainerPort) == port }) {
			t.Errorf("port %s: the server has %d, the pod does not", name, port)
		}
	}
	var routes, want []string
	for _, r := range o.Routes {
		routes = append(routes, r.Host)
	}
	for i := range w.replicas {
		want = append(want, fmt.Sprintf("%s-%d.%s:%d", w.meta.Name, i, w.service, o.Cluster.Port))
	}
	if !slices.Equal(routes, want) {
		t.Errorf("routes %q, want %q", routes, want)
	}

	mounts := map[string]string{}
	for _, v := range c.VolumeMounts {
		mounts[v.MountPath] = v.Name
	}
	if name := mounts[o.StoreDir]; name != w.claims[0].Name {
		t.Errorf("store_dir %s lies on volume %q, not on the claim", o.StoreDir, name)
	}
	size := w.claims[0].Spec.Resources.Requests[corev1.ResourceStorage]
	if o.JetStreamMaxStore <= 0 || o.JetStreamMaxStore > size.Value()/100*95 {
		t.Errorf("max_file_store %d of a volume of %d", o.JetStreamMaxStore, size.Value())
	}
	limit := c.Resources.Limits[corev1.ResourceMemory]
	if o.JetStreamMaxMemory <= 0 || o.JetStreamMaxMemory > limit.Value()/2 {
		t.Errorf("max_memory_store %d of %d", o.JetStreamMaxMemory, limit.Value())
	}
	if mounts[filepath.Dir(o.PidFile)] == "" {
		t.Errorf("pid_file %s lies on no volume", o.PidFile)
	}
	if stop := c.Lifecycle.PreStop.Exec.Command; !slices.Equal(stop, []string{c.Command[0], "-sl=ldm=" + o.PidFile}) {
		t.Errorf("preStop %q, pid_file %s", stop, o.PidFile)
	}
	if lame, have := o.LameDuckGracePeriod+o.LameDuckDuration, time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds)*time.Second; have < lame+10*time.Second {
		t.Errorf("terminationGracePeriodSeconds is %v, lame duck takes %v", have, lame)
	}

	// One account for the gateways alone, with one user.
	if len(o.Users) != 1 || len(o.Nkeys) != 0 || o.NoAuthUser != "" {
		t.Fatalf("users %v, nkeys %v, no_auth_user %q", o.Users, o.Nkeys, o.NoAuthUser)
	}
	u := o.Users[0]
	if u.Password != password || u.Account == nil || u.Account.Name != "STREAM" {
		t.Errorf("user %s of account %v", u.Username, u.Account)
	}
	for what, p := range map[string]*server.SubjectPermission{"publish": u.Permissions.Publish, "subscribe": u.Permissions.Subscribe} {
		if p == nil || len(p.Allow) == 0 {
			t.Fatalf("%s: everything is allowed", what)
		}
		for _, s := range p.Allow {
			if first, _, _ := strings.Cut(s, "."); strings.ContainsAny(first, "*>") || first == "$SYS" {
				t.Errorf("%s: %s is too much", what, s)
			}
		}
	}
	if !slices.Equal(documented(t), append(slices.Clone(u.Permissions.Publish.Allow), u.Permissions.Subscribe.Allow...)) {
		t.Errorf("deploy/README.md lists %q", documented(t))
	}
}

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testkit.Root(), "deploy", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// documented are the subjects in the README's table of permissions, those to
// publish first.
func documented(t *testing.T) []string {
	t.Helper()
	var publish, subscribe []string
	for _, row := range regexp.MustCompile("(?m)^\\| (publish|subscribe) \\| `([^`]+)`").FindAllStringSubmatch(readme(t), -1) {
		if row[1] == "publish" {
			publish = append(publish, row[2])
		} else {
			subscribe = append(subscribe, row[2])
		}
	}
	return append(publish, subscribe...)
}

// TestPassword: what the README's command puts into the Secret must come out of
// the server's configuration as it is. A value of digits would be a number.
func TestPassword(t *testing.T) {
	command := regexp.MustCompile(`kubectl -n stream create secret generic (\S+) --from-literal=(\S+?)=(\S*)\$\(openssl rand -hex 24\)`).FindStringSubmatch(readme(t))
	if command == nil || !slices.Equal(secrets[command[1]], []string{command[2]}) {
		t.Fatalf("the README does not create the Secrets %v: %q", secrets, command)
	}
	text := natsConf(t, render(t))
	for _, hex := range []string{"000000000000", "123456789012", "12e4567890ab", "0x1234567890", "1234567890ab", "deadbeef0123", "1k", "2m", "true"} {
		t.Setenv("POD_NAME", "nats-0")
		t.Setenv("NATS_PASSWORD", command[3]+hex)
		file := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := server.ProcessConfigFile(file)
		if err != nil {
			t.Errorf("password %s%s: %v", command[3], hex, err)
		} else if got := o.Users[0].Password; got != command[3]+hex {
			t.Errorf("password %s%s is read as %s", command[3], hex, got)
		}
	}
}
