package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completionTimeout bounds how long the Tab key may take.
const completionTimeout = 2 * time.Second

// complete offers fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag
}

// completeConfigs offers the names of common topic configs.
func completeConfigs(cmd *cobra.Command, flag string) {
	names := []string{"cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.bytes", "retention.ms"}
	if flag != "unset" {
		for i := range names {
			names[i] += "="
		}
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// completeTopics offers the topics of the server as arguments, at most most if
// that is not 0.
func (o *options) completeTopics(most int) cobra.CompletionFunc {
	return o.completeNames(most, listTopicNames)
}

func (o *options) completeGroups(most int) cobra.CompletionFunc {
	return o.completeNames(most, listGroupNames)
}

func (o *options) completeNames(most int, ask func(context.Context, *kadm.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		short := *o
		short.timeout = completionTimeout
		c, err := short.connect(ctx, cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // nobody to ask: nothing to offer
		}
		defer c.cl.Close()
		names, err := ask(ctx, c.adm)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names = slices.DeleteFunc(names, func(n string) bool {
			return !strings.HasPrefix(n, prefix) || strings.ContainsAny(n, "\t\n") || slices.Contains(args, n)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func listTopicNames(ctx context.Context, adm *kadm.Client) ([]string, error) {
	t, err := adm.ListTopics(ctx)
	return t.Names(), err
}

func listGroupNames(ctx context.Context, adm *kadm.Client) ([]string, error) {
	g, err := adm.ListGroups(ctx)
	return g.Groups(), err
}
