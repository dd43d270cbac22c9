package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/keyspace"
	"locktop/tui"
	"locktop/tui/widget"
)

// section is the annotation with the heading of a flag in the help.
const section = "section"

// flagSection returns an empty set of flags for a section of the help.
func flagSection(heading string) *pflag.FlagSet {
	set := pflag.NewFlagSet(heading, pflag.ContinueOnError)
	set.SortFlags = false
	return set
}

// subset returns the flags of a set whose names are kept.
func subset(of *pflag.FlagSet, keep func(name string) bool) *pflag.FlagSet {
	set := flagSection(of.Name())
	of.VisitAll(func(f *pflag.Flag) {
		if keep(f.Name) {
			set.AddFlag(f)
		}
	})
	return set
}

// withFlags adds the flags of sets to cmd, and returns it. Each set is a section of the help.
func withFlags(cmd *cobra.Command, sets ...*pflag.FlagSet) *cobra.Command {
	cmd.Flags().SortFlags = false
	for _, set := range sets {
		of := map[string][]string{section: {set.Name()}}
		set.VisitAll(func(f *pflag.Flag) { f.Annotations = of })
		cmd.Flags().AddFlagSet(set)
	}
	for name, values := range map[string]func() []string{
		"format": formatNames, "theme": tui.Themes, "glyphs": widget.GlyphSets, "events": eventNames, "kind": kindNames,
	} {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		// The only possible error is that the flag does not exist.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values(), cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// help prints the description of a command, then its usage.
func help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(out, "%s\n\n", strings.TrimSpace(about))
	printUsage(out, cmd)
}

// meanings lists problems for the help, each ID once. The indent makes it a block of the manual page.
func meanings(problems []keyspace.Problem) string {
	all, last := "", ""
	for _, p := range problems {
		if p.ID != last {
			all += fmt.Sprintf("\n    %-20s  %s", p.ID, strings.ReplaceAll(ansi.Wordwrap(p.Meaning, 72, ""), "\n", "\n"+strings.Repeat(" ", 26)))
		}
		last = p.ID
	}
	return all
}

func printUsage(out io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(out, "Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(out, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "  %s COMMAND [flags]\n\nCommands:\n", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	for _, set := range sections(cmd) {
		fmt.Fprintf(out, "\n%s:\n%s", set.Name(), set.FlagUsagesWrapped(95))
	}
	if !cmd.HasParent() {
		fmt.Fprintf(out, "\nEnvironment:\n%s\nExit codes:\n%s", environment, exitCodes)
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
}

// sections returns the flags of a command by heading; flags without one are last.
func sections(cmd *cobra.Command) []*pflag.FlagSet {
	var sets []*pflag.FlagSet
	other := pflag.NewFlagSet("Other", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		heading := f.Annotations[section]
		if len(heading) == 0 {
			other.AddFlag(f)
			return
		}
		if len(sets) == 0 || sets[len(sets)-1].Name() != heading[0] {
			sets = append(sets, flagSection(heading[0]))
		}
		sets[len(sets)-1].AddFlag(f)
	})
	if other.HasAvailableFlags() {
		sets = append(sets, other)
	}
	return sets
}

// flagError returns an exitError for a wrong flag. It quotes no value, because the
// value may be a password for another flag.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see " + cmd.CommandPath() + " --help"
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if e.GetSpecifiedShortnames() != "" {
			return usageErrorf(hint, "unknown flag -%s", e.GetSpecifiedName())
		}
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := alike(e.GetSpecifiedName(), known); len(near) > 0 {
			hint = "did you mean --" + strings.Join(near[:min(len(near), maxHints)], ", --") + "?"
		}
		return usageErrorf(hint, "unknown flag --%s", e.GetSpecifiedName())
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usageErrorf(hint, "--%s needs a value", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usageErrorf(hint, "--%s: not a valid %s", e.GetFlag().Name, typeName(e.GetFlag()))
	}
	return usageErrorf(hint, "a flag that begins neither with - and a letter nor with -- and a name")
}

// typeName returns the type of a flag's value in words.
func typeName(f *pflag.Flag) string {
	switch f.Name {
	case "db":
		return "number of a database, or all"
	case "overdue":
		return "limit, like jobs:*=2h, leader=never or 30m"
	case "budget":
		return "share, like 2%, 10% or full"
	}
	switch f.Value.Type() {
	case "int":
		return "number"
	case "uint16":
		return "number from 0 to 65535"
	case "duration":
		return "duration, like 500ms or 10s"
	case "bool", "boolfunc":
		return "true or false"
	default:
		return "value"
	}
}

// addCompletion adds cobra's completion command to root. The command fails without
// a shell or with an unknown one, where cobra would print the help and succeed.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); err != nil || found == root {
					return command(root, args)
				}
				return nil
			}
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, func(*cobra.Command, []string) error {
				return usageErrorf("see locktop completion --help", "completion takes the name of a shell: bash, fish, powershell, zsh")
			}
		}
	}
}
