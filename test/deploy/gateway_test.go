package deploy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hanzoai/stream/test/testkit"
)

// password is what the tests put into the Secret.
const password = "s-0123456789abcdef"

// container is the one container of a workload as a kubelet would start it.
type container struct {
	args, env []string
	mounts    map[string]string // path in the container: folder of the test
}

// start resolves variables and mounts of a workload's container; the secrets
// lie in a folder of the test, to which arguments that name them lead.
func (w *workload) start(t *testing.T, podName string) container {
	t.Helper()
	c := w.pod.Spec.Containers[0]
	vars := map[string]string{}
	out := container{mounts: map[string]string{}}
	for _, e := range c.Env {
		v := e.Value
		if e.ValueFrom != nil {
			switch {
			case e.ValueFrom.SecretKeyRef != nil:
				v = password
			case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.name":
				v = podName
			case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
				v = w.meta.Namespace
			default:
				t.Fatalf("variable %s has a source that the test does not know", e.Name)
			}
		}
		vars[e.Name] = v
		out.env = append(out.env, e.Name+"="+v)
	}
	for _, mount := range c.VolumeMounts {
		dir := t.TempDir()
		out.mounts[mount.MountPath] = dir
		for _, v := range w.pod.Spec.Volumes {
			if v.Name != mount.Name || v.Secret == nil {
				continue
			}
			for _, key := range secrets[v.Secret.SecretName] {
				if err := os.WriteFile(filepath.Join(dir, key), []byte(password), 0o440); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, a := range c.Args {
		for k, v := range vars {
			a = strings.ReplaceAll(a, "$("+k+")", v)
		}
		if strings.Contains(a, "$(") {
			t.Errorf("argument %s: a variable that the container does not have", a)
		}
		for path, dir := range out.mounts {
			a = strings.Replace(a, "="+path+"/", "="+dir+"/", 1)
		}
		out.args = append(out.args, a)
	}
	return out
}

// run runs the binary of the image until it ends.
func run(t *testing.T, c container, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	binary := hostBinary(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, c.args...)...)
	cmd.Env = c.env
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// resolved is the configuration that the manifest's arguments make, as the
// binary itself tells it.
func resolved(t *testing.T, c container) map[string]string {
	t.Helper()
	stdout, stderr, code := run(t, c, "config", "print", "--resolved")
	if code != 0 {
		t.Fatalf("config print: exit code %d: %s", code, stderr)
	}
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(stdout), &raw); err != nil {
		t.Fatalf("config print: %v", err)
	}
	values := map[string]string{}
	for _, line := range strings.Split(stdout, "\n") {
		key, rest, ok := strings.Cut(line, ": ")
		if _, known := raw[key]; !ok || !known {
			continue
		}
		v, _, _ := strings.Cut(rest, "  # ")
		values[key] = strings.Trim(v, `"`)
	}
	return values
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestGatewayArguments gives the binary exactly what its container gets.
func TestGatewayArguments(t *testing.T) {
	m := render(t)
	w := m.workload("stream")
	c := w.start(t, "stream-0")
	stdout, stderr, code := run(t, c, "--check-config")
	if code != 0 || stdout != "configuration ok\n" || stderr != "" {
		t.Fatalf("--check-config: exit code %d, %q, %q", code, stdout, stderr)
	}
	bad := c
	bad.args = append([]string{"--replicaz=3"}, c.args...)
	if _, _, code := run(t, bad, "--check-config"); code != 2 {
		t.Fatalf("a wrong flag: exit code %d", code)
	}

	v := resolved(t, c)
	conf := processConfig(t, natsConf(t, m), "nats-0")
	svc := m.service("stream")
	for key, want := range map[string]string{
		"replicas":           "3",
		"storage":            "file",
		"node-id":            "-1",
		"nats-user":          conf.Users[0].Username,
		"pubsub-url":         "nats://" + m.service("nats").Name + ":4222",
		"advertised-address": svc.Name + "." + svc.Namespace + ".svc:9092",
		"port":               "9092",
		"admin-port":         "9093",
	} {
		if v[key] != want {
			t.Errorf("%s is %q, want %q", key, v[key], want)
		}
	}
	for name, key := range map[string]string{"kafka": "port", "http": "admin-port"} {
		for _, p := range w.pod.Spec.Containers[0].Ports {
			if p.Name == name && v[key] != itoa(int(p.ContainerPort)) {
				t.Errorf("port %s is %d, but the gateway listens on %s", name, p.ContainerPort, v[key])
			}
		}
	}
	checkGateway(t, w, v, conf)
}

// checkGateway compares what the gateways are told with what is around them.
func checkGateway(t *testing.T, w *workload, v map[string]string, conf *server.Options) {
	t.Helper()
	// What the gateways say about durability is what the servers do.
	if sync := v["sync"]; (sync == "always") != conf.SyncAlways || sync != "always" && duration(t, sync) != conf.SyncInterval {
		t.Errorf("sync is %s, but the servers sync always: %v, else every %v", sync, conf.SyncAlways, conf.SyncInterval)
	}
	// The kubelet's patience covers the drain and the last goodbyes.
	grace, delay := duration(t, v["shutdown-grace"]), duration(t, v["shutdown-delay"])
	pod := w.pod.Spec
	if have := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; have < grace+5*time.Second {
		t.Errorf("terminationGracePeriodSeconds is %v, too near to shutdown-grace, %v", have, grace)
	}
	// A failed readiness probe must have been seen before connections are cut.
	ready := pod.Containers[0].ReadinessProbe
	if seen := time.Duration(ready.PeriodSeconds*ready.FailureThreshold) * time.Second; delay < seen {
		t.Errorf("shutdown-delay is %v, but the readiness probe fails after %v", delay, seen)
	}
	if grace-delay < 20*time.Second {
		t.Errorf("only %v are left to finish after shutdown-delay", grace-delay)
	}
	if pod.Containers[0].Lifecycle != nil || pod.Containers[0].Command != nil {
		t.Error("the image has neither a shell nor another command")
	}
}

// probes are the probes of a container by name.
func probes(c corev1.Container) map[string]*corev1.Probe {
	return map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe}
}

// waitProbes waits until all probes of a container succeed against url.
func waitProbes(t *testing.T, c corev1.Container, url string) {
	t.Helper()
	for name, p := range probes(c) {
		testkit.Poll(t, time.Minute, name+" probe", func() error { return testkit.Get(t.Context(), url+p.HTTPGet.Path) })
	}
}
