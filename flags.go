package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanzoai/stream/logging"
)

// flagValue keeps what was typed: values are parsed with those of all other
// sources, so that every problem is told at once.
type flagValue struct{ raw, kind string }

func (v *flagValue) String() string     { return v.raw }
func (v *flagValue) Set(s string) error { v.raw = s; return nil }
func (v *flagValue) Type() string       { return v.kind }

// bindFlags gives a command every key of config as a flag.
func bindFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.String("config", "", "YAML file with any of the keys below (variable STREAM_CONFIG)")
	fs.StringArrayP("set", "X", nil, "`key=value`: any key of the config file")
	fs.StringArray("kafka-property", nil, "`name=value`: a property of Kafka's server.properties")
	for _, f := range fields {
		if f.noflag {
			continue
		}
		add := func(name string, hidden bool) {
			def := f.def
			if def == "" && f.kind == reflect.TypeFor[bool]() {
				def = "false"
			}
			fl := fs.VarPF(&flagValue{def, f.kindName()}, name, "", f.doc)
			fl.Hidden = hidden
			if f.kind == reflect.TypeFor[bool]() {
				fl.NoOptDefVal = "true"
			}
		}
		add(f.flag(), false)
		for _, a := range f.aliases {
			add(fold(a), true)
		}
	}
	cmd.SetFlagErrorFunc(flagError)
}

// kindName is the type as help and docs show it.
func (f *field) kindName() string {
	switch f.kind {
	case reflect.TypeFor[bool]():
		return "bool"
	case reflect.TypeFor[int]():
		return "number"
	case reflect.TypeFor[nodeID]():
		return "number|pod"
	case reflect.TypeFor[byteSize]():
		return "bytes"
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[syncMode]():
		return "always|duration"
	case reflect.TypeFor[[]string]():
		return "list"
	case reflect.TypeFor[logging.Secret]():
		return "secret"
	}
	if len(f.oneof) > 0 {
		return strings.Join(f.oneof, "|")
	}
	return "string"
}

// flagError turns pflag's errors into usage errors that name the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return &exitError{code: exitUsage, err: err, hint: helpHint(cmd)}
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return &exitError{code: exitUsage, err: err, hint: helpHint(cmd)}
	}
	name := unknown.GetSpecifiedName()
	if f := findField(name); f != nil && f.noflag && cmd.Flags().Lookup(f.key) == nil && cmd.Flags().Lookup("config") != nil {
		return usageError(fmt.Sprintf("--%s: never taken from the command line, where other users can read it", name), secretRemedy(f))
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	// A flag of the server given to another command is no typing mistake.
	if len(known) > 0 && !slices.Contains(known, name) {
		return usageError(fmt.Sprintf("unknown flag --%s", logging.Printable(name)), fmt.Sprintf("did you mean --%s? %s", nearest(name, known), helpHint(cmd)))
	}
	return usageError(fmt.Sprintf("unknown flag --%s", logging.Printable(name)), helpHint(cmd))
}

func helpHint(cmd *cobra.Command) string {
	return "see " + cmd.CommandPath() + " --help"
}
