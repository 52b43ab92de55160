package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/hanzoai/stream/logging"
)

// print writes v as JSON or YAML, or what table makes of it. All is written at
// once: a command that fails has written nothing.
func (o *options) print(cmd *cobra.Command, v any, table func(w io.Writer)) error {
	var out bytes.Buffer
	switch o.output {
	case "json":
		if err := writeJSON(&out, v, "  "); err != nil {
			return err
		}
	case "yaml":
		if err := writeYAML(&out, v); err != nil {
			return err
		}
	default:
		tw := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
		table(tw)
		_ = tw.Flush() // to a buffer
	}
	_, err := cmd.OutOrStdout().Write(out.Bytes())
	return err
}

// printDetails writes what is known of each thing that was asked about, then
// tells of those that could not be described: the command has failed if there is
// one.
func printDetails[T interface{ table(w io.Writer) }](o *options, cmd *cobra.Command, details []T, bad []string) error {
	err := o.print(cmd, details, func(w io.Writer) {
		for i, d := range details {
			if i > 0 {
				fmt.Fprintln(w)
			}
			d.table(w)
		}
	})
	if err != nil {
		return err
	}
	return several(cmd, bad)
}

func writeJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// writeYAML goes over JSON: one set of field names, in one order.
func writeYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := writeJSON(&text, v, ""); err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(escapeControls(text.String())), &doc); err != nil {
		return err
	}
	block(&doc)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return err
	}
	return e.Close()
}

// escapeControls escapes what JSON may hold as it is and YAML may not.
func escapeControls(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// block takes JSON's braces and quotes away.
func block(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		block(c)
	}
}

// row writes cells; what servers and other clients named is made harmless for
// a terminal.
func row(w io.Writer, cells ...any) {
	for i, c := range cells {
		s := fmt.Sprint(c)
		switch {
		case s == "":
			s = "-"
		default:
			s = logging.Printable(s)
		}
		if i > 0 {
			s = "\t" + s
		}
		_, _ = io.WriteString(w, s) // to a buffer
	}
	_, _ = io.WriteString(w, "\n")
}

// result is what became of one thing of several.
type result struct {
	Name   string `json:"name"`
	Result string `json:"result"` // what was done; empty if nothing
	Error  string `json:"error,omitempty"`
}

// report prints results; what failed is told on stderr too, unless it stands in
// a document, and makes the command fail.
func (o *options) report(cmd *cobra.Command, what string, rs []result) error {
	if err := o.print(cmd, rs, func(w io.Writer) {
		for _, r := range rs {
			if r.Error == "" {
				fmt.Fprintf(w, "%s %s: %s\n", what, logging.Printable(r.Name), r.Result)
			}
		}
	}); err != nil {
		return err
	}
	var bad []string
	for _, r := range rs {
		if r.Error != "" {
			bad = append(bad, fmt.Sprintf("%s %s: %s", what, logging.Printable(r.Name), r.Error))
		}
	}
	switch {
	case len(bad) == 0:
		return nil
	case len(rs) == 1:
		return failed("", "%s", bad[0])
	}
	for _, b := range bad {
		fmt.Fprintf(cmd.ErrOrStderr(), "stream: %s\n", b)
	}
	return failed("", "%d of %d failed", len(bad), len(rs))
}

// plural is "1 partition", "2 partitions".
func plural[N int | int32 | int64 | int16](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
