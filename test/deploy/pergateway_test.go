package deploy

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hanzoai/stream/test/testkit"
)

// TestPerGateway: the overlay differs from the base in the kind of the gateways'
// workload, in its Service, and in who each of them says it is.
func TestPerGateway(t *testing.T) {
	plain, m := render(t), renderAt(t, filepath.Join(testkit.Root(), "deploy", "per-gateway"))
	for _, problem := range m.problems() {
		t.Error(problem)
	}
	if len(m.objects) != len(plain.objects)+1 {
		t.Errorf("%d objects, the base has %d", len(m.objects), len(plain.objects))
	}
	w, was := m.workload("stream"), plain.workload("stream")
	if w == nil || w.kind != "StatefulSet" || w.replicas != 3 {
		t.Fatalf("gateways: %+v", w)
	}
	if n := m.workload("nats"); n == nil || !reflect.DeepEqual(n.pod, plain.workload("nats").pod) {
		t.Error("the NATS servers are others")
	}

	headless := m.service(w.service)
	if headless.Spec.ClusterIP != "None" || !headless.Spec.PublishNotReadyAddresses || !reflect.DeepEqual(headless.Spec.Selector, m.service("stream").Spec.Selector) {
		t.Errorf("service %s: %+v", headless.Name, headless.Spec)
	}
	conf := processConfig(t, natsConf(t, m), "nats-0")
	base := resolved(t, was.start(t, "stream-5f7c"))
	for ordinal, id := range map[string]string{"stream-0": "1", "stream-2": "3"} {
		c := w.start(t, ordinal)
		if stdout, stderr, code := run(t, c, "--check-config"); code != 0 || stdout != "configuration ok\n" || stderr != "" {
			t.Fatalf("--check-config: exit code %d, %q, %q", code, stdout, stderr)
		}
		v := resolved(t, c)
		checkGateway(t, w, v, conf)
		want := map[string]string{
			"address-mode":       "per-gateway",
			"node-id":            id,
			"advertised-address": ordinal + "." + headless.Name + "." + headless.Namespace + ".svc:9092",
		}
		for key, value := range v {
			if w, ok := want[key]; ok && value != w {
				t.Errorf("%s: %s is %q, want %q", ordinal, key, value, w)
			} else if !ok && key != "nats-password-file" && value != base[key] {
				t.Errorf("%s: %s is %q, %q in the base", ordinal, key, value, base[key])
			}
		}
	}
	// The rest of the pod is the base's.
	pod, of := w.pod.DeepCopy(), was.pod.DeepCopy()
	pod.Spec.Containers[0].Args, of.Spec.Containers[0].Args = nil, nil
	pod.Spec.Containers[0].Env, of.Spec.Containers[0].Env = nil, nil
	if !reflect.DeepEqual(pod, of) {
		t.Errorf("pods differ:\n%+v\n%+v", pod, of)
	}
}
