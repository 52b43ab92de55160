package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/hanzoai/stream/client"
	"github.com/hanzoai/stream/logging"
)

// noDelim keeps koanf from nesting: max.connections is a value and the
// beginning of max.connections.per.ip at once.
const noDelim = "\x00"

// maxConfigFile bounds what is read as a config file, in bytes.
const maxConfigFile = 1 << 20

// loaded is a configuration with what is known about it.
type loaded struct {
	config
	origin   map[string]string // id -> where its value comes from; not in it: default
	problems []string          // every reason not to start
	warnings []string
	environ  []string
}

// getenv looks a variable up in the environment that was loaded.
func (l *loaded) getenv(name string) string {
	for _, kv := range l.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// isSet reports whether a key was given anywhere.
func (l *loaded) isSet(key string) bool { _, ok := l.origin[fold(key)]; return ok }

func (l *loaded) problem(format string, args ...any) {
	l.problems = append(l.problems, logging.RedactURLs(fmt.Sprintf(format, args...)))
}

func (l *loaded) warn(format string, args ...any) {
	l.warnings = append(l.warnings, logging.RedactURLs(fmt.Sprintf(format, args...)))
}

// given is what one source says: id -> value and where exactly it stood.
type given map[string]struct{ raw, origin string }

// put keeps a value of a source. A second, different one is a problem.
func (l *loaded) put(g given, f *field, raw, origin string) {
	if old, ok := g[f.id]; ok && old.raw != raw {
		l.problem("%s: given twice with different values (%s and %s)", f.key, old.origin, origin)
		return
	}
	g[f.id] = struct{ raw, origin string }{raw, origin}
}

// load reads every source, lowest first, and validates the result. It never
// stops at the first problem.
func load(flags *pflag.FlagSet, environ []string) *loaded {
	l := &loaded{origin: map[string]string{}, environ: environ}
	final := koanf.New(noDelim)
	defaults := map[string]any{}
	for _, f := range fields {
		defaults[f.id] = f.def
	}
	l.merge(final, defaults)

	foreign, own := l.readEnv(environ)
	for _, g := range []given{
		l.readFile(l.configPath(flags)),
		foreign,
		own,
		l.readKafkaProperties(flags),
		l.readSets(flags),
		l.readFlags(flags),
	} {
		values := map[string]any{}
		for id, v := range g {
			values[id] = v.raw
			l.origin[id] = v.origin
		}
		l.merge(final, values)
	}
	for _, f := range fields {
		raw := final.String(f.id)
		if raw == "" { // given empty: as if not given
			delete(l.origin, f.id)
			if raw = f.def; raw == "" {
				continue
			}
		}
		if err := f.set(&l.config, raw); err != nil {
			l.problem("%s: %v (from %s)", f.key, err, l.originOf(f))
		}
	}
	l.validate()
	return l
}

func (l *loaded) merge(k *koanf.Koanf, values map[string]any) {
	if err := k.Load(confmap.Provider(values, ""), nil); err != nil {
		l.problem("reading the configuration: %v", err)
	}
}

// originOf names the source of a key.
func (l *loaded) originOf(f *field) string {
	if o, ok := l.origin[f.id]; ok {
		return o
	}
	return "default"
}

// knownKeys lists what may be written in a file or after -X.
func knownKeys() []string {
	var ks []string
	for _, f := range fields {
		ks = append(append(ks, f.key), f.aliases...)
	}
	return ks
}

// configPath is the file to read: --config, else STREAM_CONFIG, else none.
func (l *loaded) configPath(flags *pflag.FlagSet) string {
	if p, _ := flags.GetString("config"); p != "" {
		return p
	}
	return l.getenv("STREAM_CONFIG")
}

// flatYAML parses YAML into one level: nested maps become dotted keys.
type flatYAML struct{ *yaml.YAML }

// Unmarshal implements koanf.Parser.
func (p flatYAML) Unmarshal(b []byte) (map[string]any, error) {
	m, err := p.YAML.Unmarshal(b)
	if err != nil {
		return nil, err
	}
	flat := map[string]any{}
	return flat, flatten(flat, "", m)
}

func flatten(out map[string]any, path string, v any) error {
	each := func(k string, v any) error {
		if path != "" {
			k = path + "." + k
		}
		return flatten(out, k, v)
	}
	switch v := v.(type) {
	case map[string]any:
		for k, v := range v {
			if err := each(k, v); err != nil {
				return err
			}
		}
	case map[any]any:
		for k, v := range v {
			if err := each(fmt.Sprint(k), v); err != nil {
				return err
			}
		}
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			switch item.(type) {
			case map[string]any, map[any]any, []any:
				return fmt.Errorf("%s: a list of plain values is wanted", path)
			}
			items[i] = fmt.Sprint(item)
		}
		return flatten(out, path, strings.Join(items, ","))
	case nil:
		return flatten(out, path, "")
	default:
		if _, ok := out[path]; ok {
			return fmt.Errorf("%s: given twice", path)
		}
		out[path] = fmt.Sprint(v)
	}
	return nil
}

func (l *loaded) readFile(path string) given {
	g := given{}
	if path == "" {
		return g
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		l.problem("config file %s: %v", path, unwrapPath(err))
		return g
	case st.IsDir():
		l.problem("config file %s: is a folder", path)
		return g
	case st.Size() > maxConfigFile:
		l.problem("config file %s: %d bytes, more than %d", path, st.Size(), maxConfigFile)
		return g
	}
	k := koanf.New(noDelim)
	if err := k.Load(file.Provider(path), flatYAML{yaml.Parser()}); err != nil {
		l.problem("config file %s: %v", path, strings.ReplaceAll(unwrapPath(err).Error(), "\n", " "))
		return g
	}
	all := k.All()
	for _, name := range slices.Sorted(mapKeys(all)) {
		f := findField(name)
		if f == nil {
			l.problem("config file %s: unknown key %q: did you mean %q?", path, logging.Printable(name), nearest(name, knownKeys()))
			continue
		}
		l.put(g, f, fmt.Sprint(all[name]), "file "+path)
	}
	return g
}

// unwrapPath drops the operation and path that os errors repeat.
func unwrapPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// serviceLink matches what Kubernetes injects for a Service called stream or
// stream-…: STREAM_SERVICE_HOST, STREAM_PORT_9092_TCP_ADDR and so on.
var serviceLink = regexp.MustCompile(`^STREAM_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)$`)

// serviceLinkValue matches the value of an injected …_PORT.
var serviceLinkValue = regexp.MustCompile(`^(tcp|udp|sctp)://`)

func (l *loaded) readEnv(environ []string) (foreign, own given) {
	foreign, own = given{}, given{}
	for _, kv := range environ {
		name, raw, _ := strings.Cut(kv, "=")
		for _, f := range fields {
			if f.foreignEnv == name && name != "" && raw != "" {
				l.put(foreign, f, raw, name)
			}
		}
	}
	k := koanf.New(noDelim)
	var unknown []string
	err := k.Load(env.Provider("", env.Opt{
		Prefix:      "STREAM_",
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, raw string) (string, any) {
			if name == "STREAM_CONFIG" || name == client.Variable || raw == "" || serviceLink.MatchString(name) ||
				strings.HasSuffix(name, "_PORT") && serviceLinkValue.MatchString(raw) {
				return "", nil
			}
			if f := findField(strings.ToLower(strings.TrimPrefix(name, "STREAM_"))); f == nil || strings.ToUpper(name) != name {
				unknown = append(unknown, name)
				return "", nil
			}
			return name, raw
		},
	}), nil)
	if err != nil {
		l.problem("reading STREAM_* variables: %v", err)
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		known := []string{"STREAM_CONFIG", client.Variable}
		for _, key := range knownKeys() {
			known = append(known, envName(key))
		}
		l.warn("unknown variable %s is ignored: did you mean %s?", logging.Printable(name), nearest(name, known))
	}
	all := k.All()
	for _, name := range slices.Sorted(mapKeys(all)) {
		f := findField(strings.ToLower(strings.TrimPrefix(name, "STREAM_")))
		l.put(own, f, fmt.Sprint(all[name]), name)
	}
	return foreign, own
}

// refuseSecret reports, and says so, that a key is not taken from argv.
func (l *loaded) refuseSecret(f *field) bool {
	if f.noflag {
		l.problem("%s: never taken from the command line, where other users can read it: %s", f.key, secretRemedy(f))
	}
	return f.noflag
}

// secretRemedy says how to give a key that is not taken from the command line.
func secretRemedy(f *field) string {
	s := "set the variable " + f.env
	if findField(f.key+"-file") != nil {
		s += " or use --" + f.flag() + "-file"
	}
	return s
}

func (l *loaded) readSets(flags *pflag.FlagSet) given {
	g := given{}
	sets, _ := flags.GetStringArray("set")
	for _, kv := range sets {
		name, raw, ok := strings.Cut(kv, "=")
		f := findField(name)
		switch {
		case f == nil:
			l.problem("-X: unknown key %q: did you mean %q?", logging.Printable(name), nearest(name, knownKeys()))
		case l.refuseSecret(f):
		case !ok:
			l.problem("-X %s: key=value is wanted", f.key)
		default: // the last one counts, as with flags
			g[f.id] = struct{ raw, origin string }{raw, "-X " + f.key}
		}
	}
	return g
}

func (l *loaded) readFlags(flags *pflag.FlagSet) given {
	g := given{}
	k := koanf.New(noDelim)
	err := k.Load(posflag.ProviderWithFlag(flags, noDelim, nil, func(f *pflag.Flag) (string, any) {
		if findField(f.Name) == nil || !f.Changed {
			return "", nil
		}
		return f.Name, f.Value.String()
	}), nil)
	if err != nil {
		l.problem("reading flags: %v", err)
	}
	all := k.All()
	for _, name := range slices.Sorted(mapKeys(all)) {
		l.put(g, findField(name), fmt.Sprint(all[name]), "flag --"+name)
	}
	return g
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
