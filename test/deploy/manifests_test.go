package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/hanzoai/stream/test/testkit"
)

// base is the folder of the manifests.
func base() string { return filepath.Join(testkit.Root(), "deploy", "base") }

// kinds are the objects that the manifests may hold.
var kinds = map[string]func() metav1.Object{
	"v1 Namespace":                       func() metav1.Object { return &corev1.Namespace{} },
	"v1 ConfigMap":                       func() metav1.Object { return &corev1.ConfigMap{} },
	"v1 Service":                         func() metav1.Object { return &corev1.Service{} },
	"apps/v1 Deployment":                 func() metav1.Object { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":                func() metav1.Object { return &appsv1.StatefulSet{} },
	"policy/v1 PodDisruptionBudget":      func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy": func() metav1.Object { return &networkingv1.NetworkPolicy{} },
}

// decode reads one document as the type it names; an unknown or repeated field
// is an error.
func decode(doc []byte) (metav1.Object, error) {
	var tm metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &tm); err != nil {
		return nil, err
	}
	kind := tm.APIVersion + " " + tm.Kind
	make := kinds[kind]
	if make == nil {
		return nil, fmt.Errorf("kind %q is not expected here", kind)
	}
	o := make()
	if err := yaml.UnmarshalStrict(doc, o); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if o.GetName() == "" {
		return nil, fmt.Errorf("%s without a name", kind)
	}
	return o, nil
}

// render makes the objects of the base as kubectl apply -k would.
func render(t *testing.T) *manifests {
	t.Helper()
	return renderAt(t, base())
}

// renderAt is render for a folder.
func renderAt(t *testing.T, dir string) *manifests {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{}
	for _, r := range rendered.Resources() {
		doc, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o, err := decode(doc)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		m.objects = append(m.objects, o)
	}
	return m
}

// TestFiles parses each file by itself and wants all of them listed.
func TestFiles(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(base(), "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k types.Kustomization
	if err := yaml.UnmarshalStrict(b, &k); err != nil {
		t.Fatal(err)
	}
	if msgs := k.EnforceFields(); len(msgs) > 0 {
		t.Error(msgs)
	}
	listed := slices.Clone(k.Resources)
	for _, g := range k.ConfigMapGenerator {
		listed = append(listed, g.FileSources...)
	}
	slices.Sort(listed)
	entries, err := os.ReadDir(base())
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		if e.Name() != "kustomization.yaml" {
			there = append(there, e.Name())
		}
	}
	if !slices.Equal(there, listed) {
		t.Errorf("files %q, listed in kustomization.yaml %q", there, listed)
	}
	seen := 0
	for _, name := range k.Resources {
		b, err := os.ReadFile(filepath.Join(base(), name))
		if err != nil {
			t.Fatal(err)
		}
		docs := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := decode(doc); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			seen++
		}
	}
	if want := len(render(t).objects) - len(k.ConfigMapGenerator); seen != want {
		t.Errorf("%d documents in the files, %d rendered", seen, want)
	}
}

// TestDecodeIsStrict proves that a typing mistake in a manifest is noticed.
func TestDecodeIsStrict(t *testing.T) {
	for _, doc := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selectr: {a: b}}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: ClusterIP, type: NodePort}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: x}]}",
		"apiVersion: v1\nkind: Service\nspec: {}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}",
	} {
		if _, err := decode([]byte(doc)); err == nil {
			t.Errorf("accepted: %s", strings.ReplaceAll(doc, "\n", "; "))
		}
	}
}

// TestManifests checks what the objects say about each other.
func TestManifests(t *testing.T) {
	m := render(t)
	for _, problem := range m.problems() {
		t.Error(problem)
	}
	gateway, nats := m.workload("stream"), m.workload("nats")
	if gateway == nil || nats == nil {
		t.Fatal("no workload stream or nats")
	}
	if gateway.kind != "Deployment" || gateway.replicas != 2 {
		t.Errorf("gateways: %s of %d", gateway.kind, gateway.replicas)
	}
	if nats.kind != "StatefulSet" || nats.replicas != 3 {
		t.Errorf("nats: %s of %d", nats.kind, nats.replicas)
	}
	c := gateway.pod.Spec.Containers[0]
	for name, p := range map[string]struct {
		probe *corev1.Probe
		path  string
	}{"startup": {c.StartupProbe, "/readyz"}, "readiness": {c.ReadinessProbe, "/readyz"}, "liveness": {c.LivenessProbe, "/livez"}} {
		if p.probe == nil || p.probe.HTTPGet == nil || p.probe.HTTPGet.Path != p.path {
			t.Errorf("%s probe %v, want %s", name, p.probe, p.path)
		}
	}
	for _, v := range gateway.pod.Spec.Volumes {
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			t.Errorf("volume %s: mode %v, want 0440", v.Name, v.Secret.DefaultMode)
		}
		if v.Secret == nil {
			t.Errorf("volume %s: a gateway keeps nothing", v.Name)
		}
	}
}

// TestManifestMistakes changes one thing each; all of them must be noticed.
func TestManifestMistakes(t *testing.T) {
	pod := func(m *manifests, name string) *corev1.PodTemplateSpec { return m.workload(name).pod }
	for name, change := range map[string]func(m *manifests){
		"selector of a service":     func(m *manifests) { m.service("stream").Spec.Selector["app.kubernetes.io/name"] = "x" },
		"target port":               func(m *manifests) { m.service("stream").Spec.Ports[0].TargetPort.StrVal = "x" },
		"labels of pods":            func(m *manifests) { pod(m, "nats").Labels["app.kubernetes.io/name"] = "x" },
		"budget selector":           func(m *manifests) { m.budget("nats").Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "x" },
		"budget without disruption": func(m *manifests) { m.budget("stream").Spec.MinAvailable.IntVal = 2 },
		"budget without majority":   func(m *manifests) { m.budget("nats").Spec.MaxUnavailable.IntVal = 2 },
		"no budget": func(m *manifests) {
			m.objects = slices.DeleteFunc(m.objects, func(o metav1.Object) bool { _, ok := o.(*policyv1.PodDisruptionBudget); return ok })
		},
		"probe port":      func(m *manifests) { pod(m, "stream").Spec.Containers[0].LivenessProbe.HTTPGet.Port.StrVal = "kafke" },
		"no probe":        func(m *manifests) { pod(m, "stream").Spec.Containers[0].StartupProbe = nil },
		"mount":           func(m *manifests) { pod(m, "nats").Spec.Containers[0].VolumeMounts[0].Name = "x" },
		"unused volume":   func(m *manifests) { pod(m, "nats").Spec.Containers[0].VolumeMounts = nil },
		"config map":      func(m *manifests) { pod(m, "nats").Spec.Volumes[0].ConfigMap.Name = "nats" },
		"foreign secret":  func(m *manifests) { pod(m, "stream").Spec.Volumes[0].Secret.SecretName = "x" },
		"headless":        func(m *manifests) { m.service("nats-headless").Spec.ClusterIP = "" },
		"not ready peers": func(m *manifests) { m.service("nats-headless").Spec.PublishNotReadyAddresses = false },
		"spread": func(m *manifests) {
			pod(m, "nats").Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] = "x"
		},
		"no spread":         func(m *manifests) { pod(m, "stream").Spec.TopologySpreadConstraints = nil },
		"service links":     func(m *manifests) { pod(m, "stream").Spec.EnableServiceLinks = nil },
		"token":             func(m *manifests) { pod(m, "stream").Spec.AutomountServiceAccountToken = nil },
		"no requests":       func(m *manifests) { pod(m, "stream").Spec.Containers[0].Resources.Requests = nil },
		"no limit":          func(m *manifests) { pod(m, "nats").Spec.Containers[0].Resources.Limits = nil },
		"root":              func(m *manifests) { *pod(m, "stream").Spec.SecurityContext.RunAsUser = 0 },
		"writable root":     func(m *manifests) { *pod(m, "nats").Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = false },
		"capabilities":      func(m *manifests) { pod(m, "nats").Spec.Containers[0].SecurityContext.Capabilities = nil },
		"tag":               func(m *manifests) { pod(m, "stream").Spec.Containers[0].Image = "hanzoai/stream:latest" },
		"no tag":            func(m *manifests) { pod(m, "stream").Spec.Containers[0].Image = "localhost:5000/stream" },
		"namespace":         func(m *manifests) { m.service("nats").Namespace = "default" },
		"policy for nobody": func(m *manifests) { m.policy("nats").Spec.PodSelector.MatchLabels["app.kubernetes.io/name"] = "x" },
		"policy from nobody": func(m *manifests) {
			m.policy("nats").Spec.Ingress[0].From[0].PodSelector.MatchLabels["app.kubernetes.io/name"] = "x"
		},
		"policy port":        func(m *manifests) { m.policy("stream").Spec.Ingress[0].Ports[0].Port.StrVal = "x" },
		"policy egress port": func(m *manifests) { m.policy("stream").Spec.Egress[0].Ports[0].Port.IntVal = 4223 },
		"policy without dns": func(m *manifests) { m.policy("stream").Spec.Egress = m.policy("stream").Spec.Egress[:1] },
		"open cluster port":  func(m *manifests) { m.policy("nats").Spec.Ingress[1].From = nil },
	} {
		m := render(t)
		change(m)
		if ps := m.problems(); len(ps) == 0 {
			t.Errorf("%s: not noticed", name)
		}
	}
}
