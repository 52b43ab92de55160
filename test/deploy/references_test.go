package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// manifests are all objects of one installation.
type manifests struct{ objects []metav1.Object }

// workload is what makes pods.
type workload struct {
	kind     string
	meta     *metav1.ObjectMeta
	replicas int
	selector *metav1.LabelSelector
	pod      *corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
	service  string // of a StatefulSet
}

func (m *manifests) workloads() []*workload {
	var ws []*workload
	for _, o := range m.objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			ws = append(ws, &workload{"Deployment", &o.ObjectMeta, int(*o.Spec.Replicas), o.Spec.Selector, &o.Spec.Template, nil, ""})
		case *appsv1.StatefulSet:
			ws = append(ws, &workload{"StatefulSet", &o.ObjectMeta, int(*o.Spec.Replicas), o.Spec.Selector, &o.Spec.Template, o.Spec.VolumeClaimTemplates, o.Spec.ServiceName})
		}
	}
	return ws
}

func (m *manifests) workload(name string) *workload {
	for _, w := range m.workloads() {
		if w.meta.Name == name {
			return w
		}
	}
	return nil
}

func all[T metav1.Object](m *manifests) []T {
	var ts []T
	for _, o := range m.objects {
		if t, ok := o.(T); ok {
			ts = append(ts, t)
		}
	}
	return ts
}

// named is the object of a kind with a name; it panics if there is none.
func named[T metav1.Object](m *manifests, name string) T {
	ts := all[T](m)
	return ts[slices.IndexFunc(ts, func(t T) bool { return t.GetName() == name })]
}

func (m *manifests) service(name string) *corev1.Service { return named[*corev1.Service](m, name) }
func (m *manifests) budget(name string) *policyv1.PodDisruptionBudget {
	return named[*policyv1.PodDisruptionBudget](m, name)
}
func (m *manifests) policy(name string) *networkingv1.NetworkPolicy {
	return named[*networkingv1.NetworkPolicy](m, name)
}

// selected are the workloads whose pods a selector takes.
func (m *manifests) selected(s *metav1.LabelSelector) []*workload {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(m.workloads(), func(w *workload) bool { return !sel.Matches(labels.Set(w.pod.Labels)) })
}

// port is the number of a container's port by name or number; 0 if it has none.
func (w *workload) port(p intstr.IntOrString) int32 {
	for _, c := range w.pod.Spec.Containers {
		for _, have := range c.Ports {
			if p.Type == intstr.String && have.Name == p.StrVal || p.Type == intstr.Int && have.ContainerPort == p.IntVal {
				return have.ContainerPort
			}
		}
	}
	return 0
}

// secrets are the Secrets that deploy/README.md has the operator create, with
// their keys.
var secrets = map[string][]string{"stream-nats": {"password"}}

// problems are all contradictions between the objects and with the rules for
// them, none in good manifests.
func (m *manifests) problems() []string {
	r := &report{}
	m.checkNames(r)
	for _, w := range m.workloads() {
		m.checkWorkload(r, w)
	}
	m.checkServices(r)
	m.checkBudgets(r)
	m.checkPolicies(r)
	return r.problems
}

type report struct{ problems []string }

func (r *report) add(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (m *manifests) checkNames(r *report) {
	spaces := all[*corev1.Namespace](m)
	if len(spaces) != 1 {
		r.add("%d namespaces", len(spaces))
		return
	}
	for _, level := range []string{"enforce", "warn"} {
		if spaces[0].Labels["pod-security.kubernetes.io/"+level] != "restricted" {
			r.add("namespace: pod security is not restricted (%s)", level)
		}
	}
	seen := map[string]bool{}
	for _, o := range m.objects {
		id := fmt.Sprintf("%T %s", o, o.GetName())
		if seen[id] {
			r.add("%s: twice", id)
		}
		seen[id] = true
		if msgs := validation.IsDNS1123Subdomain(o.GetName()); len(msgs) > 0 {
			r.add("%s: %s", id, msgs)
		}
		for k, v := range o.GetLabels() {
			if msgs := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(msgs) > 0 {
				r.add("%s: label %s: %s", id, k, msgs)
			}
		}
		if _, isSpace := o.(*corev1.Namespace); !isSpace && o.GetNamespace() != spaces[0].Name {
			r.add("%s: namespace %q", id, o.GetNamespace())
		}
	}
}

func (m *manifests) checkWorkload(r *report, w *workload) {
	add := func(format string, args ...any) {
		r.add("%s %s: %s", w.kind, w.meta.Name, fmt.Sprintf(format, args...))
	}
	spec := &w.pod.Spec
	if ws := m.selected(w.selector); len(ws) != 1 || ws[0].meta != w.meta {
		add("its selector takes pods of %d workloads", len(ws))
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		add("%v", err)
		return
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	if res := policy.AggregateCheckResults(checks.EvaluatePod(level, &w.pod.ObjectMeta, spec)); !res.Allowed {
		add("pod security: %s", res.ForbiddenDetail())
	}
	if spec.SecurityContext == nil || spec.SecurityContext.RunAsUser == nil || *spec.SecurityContext.RunAsUser == 0 {
		add("no numeric user")
	}
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		add("enableServiceLinks is on")
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		add("a token of the API server is mounted")
	}
	keys := map[string]bool{}
	for _, c := range spec.TopologySpreadConstraints {
		keys[c.TopologyKey] = true
		if ws := m.selected(c.LabelSelector); len(ws) != 1 || ws[0].meta != w.meta {
			add("topology spread by %s counts pods of others", c.TopologyKey)
		}
	}
	if !keys["kubernetes.io/hostname"] || !keys["topology.kubernetes.io/zone"] {
		add("not spread over nodes and zones")
	}
	volumes := m.checkVolumes(add, w)
	if len(spec.Containers) != 1 {
		add("%d containers", len(spec.Containers))
	}
	for _, c := range spec.Containers {
		m.checkContainer(add, w, &c, volumes)
	}
	for v, used := range volumes {
		if !used {
			add("volume %s is not mounted", v)
		}
	}
	if w.kind == "StatefulSet" {
		ss := all[*corev1.Service](m)
		i := slices.IndexFunc(ss, func(s *corev1.Service) bool { return s.Name == w.service })
		switch {
		case i < 0:
			add("no service %s", w.service)
		case ss[i].Spec.ClusterIP != corev1.ClusterIPNone || !ss[i].Spec.PublishNotReadyAddresses:
			add("service %s does not give the addresses of all pods", w.service)
		}
	}
}

// checkVolumes gives the names of all volumes.
func (m *manifests) checkVolumes(add func(string, ...any), w *workload) map[string]bool {
	volumes := map[string]bool{}
	for _, c := range w.claims {
		volumes[c.Name] = false
	}
	for _, v := range w.pod.Spec.Volumes {
		volumes[v.Name] = false
		switch {
		case v.ConfigMap != nil:
			if !slices.ContainsFunc(all[*corev1.ConfigMap](m), func(c *corev1.ConfigMap) bool { return c.Name == v.ConfigMap.Name }) {
				add("volume %s: no ConfigMap %s", v.Name, v.ConfigMap.Name)
			}
		case v.Secret != nil:
			if secrets[v.Secret.SecretName] == nil {
				add("volume %s: nobody creates the Secret %s", v.Name, v.Secret.SecretName)
			}
		case v.EmptyDir == nil:
			add("volume %s: neither ConfigMap, Secret nor emptyDir", v.Name)
		}
	}
	return volumes
}

func (m *manifests) checkContainer(add func(string, ...any), w *workload, c *corev1.Container, volumes map[string]bool) {
	if tag := imageTag(c.Image); tag == "" || tag == "latest" {
		add("image %s is not pinned", c.Image)
	}
	if sc := c.SecurityContext; sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem {
		add("the root file system is writable")
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q := c.Resources.Requests[name]; q.IsZero() {
			add("no request for %s", name)
		}
	}
	if limit := c.Resources.Limits[corev1.ResourceMemory]; limit.IsZero() || limit.Cmp(c.Resources.Requests[corev1.ResourceMemory]) < 0 {
		add("memory limit %v", &limit)
	}
	names := map[string]bool{}
	for _, p := range c.Ports {
		if msgs := validation.IsValidPortName(p.Name); len(msgs) > 0 || names[p.Name] {
			add("port name %q: %v", p.Name, msgs)
		}
		names[p.Name] = true
	}
	for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		switch {
		case p == nil || p.HTTPGet == nil:
			add("no %s probe over HTTP", name)
		case w.port(p.HTTPGet.Port) == 0:
			add("%s probe: no port %s", name, p.HTTPGet.Port.String())
		case p.TimeoutSeconds < 2:
			add("%s probe: a timeout of %ds fails on a busy machine", name, p.TimeoutSeconds)
		}
	}
	paths := map[string]bool{}
	for _, v := range c.VolumeMounts {
		if _, ok := volumes[v.Name]; !ok {
			add("mount of an unknown volume %s", v.Name)
			continue
		}
		volumes[v.Name] = true
		if paths[v.MountPath] {
			add("two volumes at %s", v.MountPath)
		}
		paths[v.MountPath] = true
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; !slices.Contains(secrets[ref.Name], ref.Key) {
			add("variable %s: nobody creates key %s of the Secret %s", e.Name, ref.Key, ref.Name)
		}
	}
}

// imageTag is the tag of an image's name; "" if it has none.
func imageTag(image string) string {
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}

func (m *manifests) checkServices(r *report) {
	for _, s := range all[*corev1.Service](m) {
		ws := m.selected(&metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		if len(s.Spec.Selector) == 0 || len(ws) != 1 {
			r.add("service %s: takes pods of %d workloads", s.Name, len(ws))
			continue
		}
		for _, p := range s.Spec.Ports {
			if n := ws[0].port(p.TargetPort); n == 0 || n != p.Port {
				r.add("service %s: port %s %d goes to %s, which is %d", s.Name, p.Name, p.Port, p.TargetPort.String(), n)
			}
		}
	}
}

func (m *manifests) checkBudgets(r *report) {
	have := map[string]int{}
	for _, b := range all[*policyv1.PodDisruptionBudget](m) {
		ws := m.selected(b.Spec.Selector)
		if len(ws) != 1 {
			r.add("budget %s: takes pods of %d workloads", b.Name, len(ws))
			continue
		}
		w := ws[0]
		have[w.meta.Name]++
		lost := 0
		switch {
		case b.Spec.MaxUnavailable != nil:
			lost, _ = intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, w.replicas, true)
		case b.Spec.MinAvailable != nil:
			least, _ := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, w.replicas, true)
			lost = w.replicas - least
		}
		stay := w.replicas - lost
		if lost < 1 {
			r.add("budget %s: no node can ever be drained", b.Name)
		}
		if stay < 1 || w.kind == "StatefulSet" && stay <= w.replicas/2 {
			r.add("budget %s: only %d of %d stay", b.Name, stay, w.replicas)
		}
	}
	for _, w := range m.workloads() {
		if have[w.meta.Name] != 1 {
			r.add("%s: %d budgets", w.meta.Name, have[w.meta.Name])
		}
	}
}

// checkPolicies wants each workload behind one policy, each rule about a port
// that is there, and both sides of every connection that must work.
func (m *manifests) checkPolicies(r *report) {
	have := map[string]*networkingv1.NetworkPolicy{}
	for _, p := range all[*networkingv1.NetworkPolicy](m) {
		ws := m.selected(&p.Spec.PodSelector)
		if len(ws) != 1 {
			r.add("policy %s: for %d workloads", p.Name, len(ws))
			continue
		}
		w := ws[0]
		have[w.meta.Name] = p
		for _, in := range p.Spec.Ingress {
			if len(in.From) == 0 || len(in.Ports) == 0 {
				r.add("policy %s: a rule for everybody or every port", p.Name)
			}
			for _, port := range in.Ports {
				if w.port(*port.Port) == 0 {
					r.add("policy %s: no port %s", p.Name, port.Port.String())
				}
			}
		}
		for _, out := range p.Spec.Egress {
			for _, to := range out.To {
				targets := m.selected(to.PodSelector)
				if len(targets) == 0 {
					r.add("policy %s: egress to nobody", p.Name)
				}
				for _, target := range targets {
					for _, port := range out.Ports {
						if target.port(*port.Port) == 0 {
							r.add("policy %s: egress to %s, which has no port %s", p.Name, target.meta.Name, port.Port.String())
						}
					}
				}
			}
		}
	}
	for _, w := range m.workloads() {
		if have[w.meta.Name] == nil {
			r.add("%s: no network policy", w.meta.Name)
			return
		}
	}
	dns := corev1.ProtocolUDP
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !slices.ContainsFunc(have[name].Spec.Egress, func(e networkingv1.NetworkPolicyEgressRule) bool {
			return len(e.To) == 0 && slices.ContainsFunc(e.Ports, func(p networkingv1.NetworkPolicyPort) bool {
				return p.Protocol != nil && *p.Protocol == dns && p.Port.IntVal == 53
			})
		}) {
			r.add("policy %s: names cannot be resolved", name)
		}
	}
	for _, flow := range []struct {
		from, to string
		port     int32
	}{{"stream", "nats", 4222}, {"nats", "nats", 6222}} {
		from, to := m.workload(flow.from), m.workload(flow.to)
		if from == nil || to == nil {
			r.add("no workload %s or %s", flow.from, flow.to)
			continue
		}
		if !slices.ContainsFunc(have[flow.to].Spec.Ingress, func(in networkingv1.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(in.From, func(p networkingv1.NetworkPolicyPeer) bool { return peer(p, from) }) &&
				slices.ContainsFunc(in.Ports, func(p networkingv1.NetworkPolicyPort) bool { return to.port(*p.Port) == flow.port })
		}) {
			r.add("%s does not let %s in on %d", flow.to, flow.from, flow.port)
		}
		if !slices.ContainsFunc(have[flow.from].Spec.Egress, func(out networkingv1.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(out.To, func(p networkingv1.NetworkPolicyPeer) bool { return peer(p, to) }) &&
				slices.ContainsFunc(out.Ports, func(p networkingv1.NetworkPolicyPort) bool { return to.port(*p.Port) == flow.port })
		}) {
			r.add("%s may not go to %s on %d", flow.from, flow.to, flow.port)
		}
	}
}

// peer reports whether p means the pods of w, of the same namespace.
func peer(p networkingv1.NetworkPolicyPeer, w *workload) bool {
	if p.PodSelector == nil || p.NamespaceSelector != nil {
		return false
	}
	sel, err := metav1.LabelSelectorAsSelector(p.PodSelector)
	return err == nil && sel.Matches(labels.Set(w.pod.Labels))
}
