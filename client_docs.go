package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanzoai/stream/client"
)

// clientDocs is docs/commands.md, generated from the commands of package client.
func clientDocs() string {
	var b strings.Builder
	b.WriteString(`# Commands

Generated from ` + "`client/`" + ` by ` + "`go generate .`" + `; a test fails when it is out of date.

These commands talk to a server over the Kafka protocol: this one, or any Apache Kafka. ` + "`-b host:port`" + ` or the variable
` + "`" + client.Variable + "`" + ` names it, else it is ` + "`localhost:9092`" + `. What was asked for goes to stdout; errors, questions and, on a
terminal, progress go to stderr. ` + "`stream completion bash|zsh|fish|powershell`" + ` prints a script for the Tab key, which knows topics and groups too.

| Exit code | Meaning |
|---|---|
| 0 | done; also if the reader of a pipe has gone, and after Ctrl-C of ` + "`consume`" + ` |
| 1 | failed, wholly or in part: every failure is named |
| 2 | wrong flags or arguments, or a question that nobody can answer: nothing was done |
| 3 | no broker answers |
`)
	commands := client.Commands("", nil)
	b.WriteString("\nAll take these flags (`-o` is another one for `consume`):\n\n| Flag | Default | Meaning |\n|---|---|---|\n")
	for _, c := range commands {
		if c.Name() == "status" {
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Name != "admin" { // of its own
					writeFlag(&b, f)
				}
			})
		}
	}
	for _, c := range commands {
		writeCommand(&b, c, "stream ")
	}
	return b.String()
}

func writeCommand(b *strings.Builder, cmd *cobra.Command, parent string) {
	if cmd.HasSubCommands() {
		if parent == "stream " {
			fmt.Fprintf(b, "\n# %s%s\n\n%s.\n", parent, cmd.Name(), cmd.Short)
		}
		for _, c := range cmd.Commands() {
			writeCommand(b, c, parent+cmd.Name()+" ")
		}
		return
	}
	level := "##"
	if parent == "stream " {
		level = "#"
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n%s %s%s\n\n%s\n\n```sh\n%s\n```\n", level, parent, cmd.Name(),
		indentedAsCode(text), strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	head := "\n| Flag | Default | Meaning |\n|---|---|---|\n"
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "bootstrap-server" || f.Name == "timeout" || f.Name == "output" && f.DefValue == "table" {
			return
		}
		b.WriteString(head)
		head = ""
		writeFlag(b, f)
	})
}

func writeFlag(b *strings.Builder, f *pflag.Flag) {
	name, meaning := pflag.UnquoteUsage(f)
	flag := "--" + f.Name
	if f.Shorthand != "" {
		flag = "-" + f.Shorthand + ", " + flag
	}
	if name != "" {
		flag += " " + name
	}
	def := "–"
	if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
		def = "`" + f.DefValue + "`"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", flag, def, strings.ReplaceAll(meaning, "|", `\|`))
}

// indentedAsCode fences the indented lines of a help text.
func indentedAsCode(s string) string {
	var b strings.Builder
	in := false
	for line := range strings.Lines(s + "\n") {
		if code := strings.HasPrefix(line, "  "); code != in {
			b.WriteString("```\n")
			in = code
		}
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	if in {
		b.WriteString("```\n")
	}
	return strings.TrimSpace(b.String())
}
