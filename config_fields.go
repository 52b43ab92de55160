package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hanzoai/stream/logging"
)

// field is one key of config, as its tags describe it.
type field struct {
	index       int
	key, id     string // id is the key as all spellings read: fold(key)
	env         string // STREAM_…
	aliases     []string
	foreignEnv  string
	def, doc    string
	show, group string
	kafka       []string
	unit        time.Duration
	noflag      bool
	lo, hi      string
	oneof       []string
	kind        reflect.Type
}

// fields lists every key in the order of the struct; it is built once.
var fields = readFields(reflect.TypeFor[config]())

// fold makes the spellings of a key equal: a.b-c and a_b_c are a-b-c.
func fold(s string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(s) }

func words(s, sep string) []string {
	return slices.DeleteFunc(strings.Split(s, sep), func(w string) bool { return w == "" })
}

func readFields(t reflect.Type) []*field {
	var out []*field
	group := ""
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if g := tag.Get("group"); g != "" {
			group = g
		}
		f := &field{
			index: i, key: tag.Get("key"), id: fold(tag.Get("key")), aliases: words(tag.Get("alias"), ","),
			foreignEnv: tag.Get("env"), def: tag.Get("default"), doc: tag.Get("doc"), show: tag.Get("show"),
			group: group, kafka: words(tag.Get("kafka"), ","), noflag: tag.Get("noflag") == "true",
			oneof: words(tag.Get("oneof"), " "), kind: t.Field(i).Type,
		}
		f.env = envName(f.key)
		f.lo, f.hi, _ = strings.Cut(tag.Get("range"), "..")
		switch tag.Get("unit") {
		case "ms":
			f.unit = time.Millisecond
		case "min":
			f.unit = time.Minute
		}
		out = append(out, f)
	}
	return out
}

func envName(key string) string {
	return "STREAM_" + strings.ToUpper(strings.ReplaceAll(fold(key), "-", "_"))
}

// flag is the name on the command line.
func (f *field) flag() string { return f.id }

// names are the ids under which the key is read.
func (f *field) names() []string {
	ns := []string{f.id}
	for _, a := range f.aliases {
		ns = append(ns, fold(a))
	}
	return ns
}

// findField finds a key by any spelling or alias.
func findField(name string) *field {
	id := fold(name)
	for _, f := range fields {
		if slices.Contains(f.names(), id) {
			return f
		}
	}
	return nil
}

// set parses raw into the field of c and checks range and allowed words.
func (f *field) set(c *config, raw string) error {
	v := reflect.ValueOf(c).Elem().Field(f.index)
	got, err := f.parse(raw)
	if err != nil {
		return err
	}
	if err := f.within(got); err != nil {
		return err
	}
	v.Set(reflect.ValueOf(got))
	return nil
}

// parse gives a value of the field's type. Errors quote what was given, never
// for a secret.
func (f *field) parse(raw string) (any, error) {
	switch f.kind {
	case reflect.TypeFor[string]():
		if len(f.oneof) > 0 && !slices.Contains(f.oneof, raw) {
			return nil, fmt.Errorf("%q is not one of %s: did you mean %s?", raw, strings.Join(f.oneof, ", "), nearest(raw, f.oneof))
		}
		return raw, nil
	case reflect.TypeFor[logging.Secret]():
		return logging.NewSecret(raw), nil
	case reflect.TypeFor[bool]():
		b, err := strconv.ParseBool(raw)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", raw)
		}
		return b, nil
	case reflect.TypeFor[int]():
		n, err := strconv.Atoi(raw)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", raw)
		}
		return n, nil
	case reflect.TypeFor[nodeID]():
		return parseNodeID(raw)
	case reflect.TypeFor[byteSize]():
		return parseByteSize(raw)
	case reflect.TypeFor[syncMode]():
		return parseSyncMode(raw)
	case reflect.TypeFor[time.Duration]():
		return parseDuration(raw, f.unit)
	case reflect.TypeFor[[]string]():
		var list []string
		for _, w := range strings.Split(raw, ",") {
			if w = strings.TrimSpace(w); w != "" {
				list = append(list, w)
			}
		}
		return list, nil
	}
	panic("config field " + f.key + " has a type that is not read")
}

// within checks the range tag.
func (f *field) within(v any) error {
	n, ok := number(v)
	if !ok {
		return nil
	}
	for i, limit := range []string{f.lo, f.hi} {
		if limit == "" {
			continue
		}
		lv, err := f.parse(limit)
		if err != nil {
			panic("config field " + f.key + ": range: " + err.Error())
		}
		l, _ := number(lv)
		if i == 0 && n < l {
			return fmt.Errorf("%s is below the least allowed, %s", f.text(v), f.text(lv))
		}
		if i == 1 && n > l {
			return fmt.Errorf("%s is above the most allowed, %s", f.text(v), f.text(lv))
		}
	}
	return nil
}

func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case nodeID:
		return int64(v), true
	case byteSize:
		return int64(v), true
	case time.Duration:
		return int64(v), true
	}
	return 0, false
}

// text writes a value of the field as it could be given, without hiding
// anything.
func (f *field) text(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return shortDuration(v)
	case []string:
		return strings.Join(v, ",")
	}
	return fmt.Sprint(v)
}

// shown is the value as it may be printed: only fields tagged show are.
func (f *field) shown(c *config) string {
	s := f.text(reflect.ValueOf(c).Elem().Field(f.index).Interface())
	switch f.show {
	case "plain":
		return s
	case "url":
		return logging.RedactURLs(s)
	}
	if s == "" {
		return ""
	}
	return logging.Mask
}

// plain is the value as Kafka writes it: sizes in bytes, durations in the
// key's unit.
func (f *field) plain(c *config) string {
	switch v := reflect.ValueOf(c).Elem().Field(f.index).Interface().(type) {
	case byteSize:
		return strconv.FormatInt(int64(v), 10)
	case time.Duration:
		if f.unit > 0 {
			return strconv.FormatInt(int64(v/f.unit), 10)
		}
		return v.String()
	default:
		return f.text(v)
	}
}
