package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func configCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at the configuration",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var resolved bool
	p := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration as a YAML file, with the origin of each value",
		Long: "Prints what was set, or with --resolved every value and every limit in force,\n" +
			"as YAML with the origin as a comment. Secrets are printed as ***.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadConfig(cmd, environ)
			for _, w := range l.warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", oneLine(w))
			}
			if err != nil {
				return err
			}
			return printConfig(cmd.OutOrStdout(), l, resolved)
		},
	}
	bindFlags(p)
	p.Flags().BoolVar(&resolved, "resolved", false, "print defaults and derived limits too")
	cmd.AddCommand(p)
	return cmd
}

// printConfig writes what was set or, resolved, everything.
func printConfig(w io.Writer, l *loaded, resolved bool) error {
	var out strings.Builder
	derived := map[string]string{}
	if resolved {
		mem := readMemory()
		derived = l.resolve(mem)
		fmt.Fprintf(&out, "# memory limit: %s (%s), garbage collection: %s\n", mem.Limit, mem.Origin, mem.gcText())
	}
	group := ""
	for _, f := range fields {
		if !resolved && !l.isSet(f.key) {
			continue
		}
		if resolved && f.group != group {
			group = f.group
			fmt.Fprintf(&out, "\n# %s\n", group)
		}
		from := l.originOf(f)
		if d, ok := derived[f.id]; ok {
			from += ", " + d
		}
		fmt.Fprintf(&out, "%s: %s  # %s\n", f.key, yamlScalar(f.shown(&l.config)), from)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// yamlScalar quotes what YAML would read as something else than this text.
func yamlScalar(s string) string {
	if s == "" {
		return `""`
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r)) {
			return strconv.Quote(s)
		}
	}
	if strings.HasPrefix(s, "-") && s != "-1" {
		return strconv.Quote(s)
	}
	return s
}
