package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/tui"
)

func (p *program) configCommand() *cobra.Command {
	var check bool
	set := flagSection("Configuration")
	set.BoolVar(&check, "check", false, "check the file instead of printing an example")
	return withFlags(&cobra.Command{
		Use:   "config [FILE] [flags]",
		Short: "Print an example of the configuration, or check one",
		Long: `Prints a configuration with every key, its default and a line of explanation. locktop
reads locktop/config.yaml in $XDG_CONFIG_HOME or ~/.config; other systems have other
directories, and the first line of the example names the path.

With --check, it reads this file, or FILE, or - for stdin, and prints the first error with its
line number. It connects to no server and runs no password command.`,
		Example: `  mkdir -p ~/.config/locktop; locktop config > ~/.config/locktop/config.yaml
  locktop config --check
  locktop config --check new.yaml`,
		Args: oneOrNone,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case check:
				return p.checkConfig(args)
			case len(args) > 0:
				return usageErrorf("", "FILE needs --check")
			}
			keys := render.Each(tui.Actions(), func(a tui.Action) connect.ExampleKey {
				return connect.ExampleKey{Name: a.Name, Keys: a.Keys, About: a.Help}
			})
			return render.Written(p.out, connect.Example(keys, tui.Placeholders()))
		},
	}, set)
}

// checkConfig checks a configuration file; without args, the user's.
func (p *program) checkConfig(args []string) error {
	c, err := readConfig(args, p.in)
	if err != nil {
		return err
	}
	if err := cmp.Or(c.CheckContexts(checkContext), checkKeys(c)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "%s is valid: %s, %s, %s\n", c.Path(),
		humanize.Plural(len(c.Contexts), "context"), humanize.Plural(len(c.Keys), "key"), humanize.Plural(len(c.Commands), "command"))
	return err
}

// readConfig reads the file of args, which is in for -, or the user's.
func readConfig(args []string, in io.Reader) (*connect.Configuration, error) {
	if len(args) == 0 {
		return connect.ReadConfiguration()
	}
	if args[0] == "-" {
		return connect.ParseConfiguration("stdin", in)
	}
	file, err := os.Open(args[0])
	if err != nil {
		return nil, usageErrorf("", "read the configuration: %w", err)
	}
	defer file.Close()
	return connect.ParseConfiguration(args[0], file)
}

// checkContext returns an error for a value of a context that package connect does not know, and
// its key.
func checkContext(of connect.Context) (key string, err error) {
	for _, text := range of.Overdue {
		if err := new(limits).Set(text); err != nil {
			return "overdue", overdueError(of, err)
		}
	}
	if of.Theme != "" && !slices.Contains(tui.Themes(), of.Theme) {
		return "theme", fmt.Errorf("theme of context %s: there are %s", of.Name, strings.Join(tui.Themes(), ", "))
	}
	if slices.Contains(of.Locks, "") {
		return "locks", fmt.Errorf("locks of context %s: a glob is empty", of.Name)
	}
	if slices.ContainsFunc(of.Orders, func(text string) bool { return strings.Count(text, " then ") != 1 }) {
		return "snoozed_orders", fmt.Errorf("snoozed_orders of context %s: an order is like 'cart:* then stock:*'", of.Name)
	}
	return "", nil
}

// checkKeys returns an error for keys and commands of the screen that cannot work.
func checkKeys(c *connect.Configuration) error {
	err := tui.CheckKeys(c.Keys, rowCommands(c))
	e, wrong := errors.AsType[*tui.KeyError](err)
	if !wrong {
		return err
	}
	place := []string{"keys", e.Action}
	if e.Action == "" {
		place = []string{"commands", strconv.Itoa(e.Command)}
	}
	if u, ok := errors.AsType[*tui.UnknownActionError](err); ok {
		names := render.Each(tui.Actions(), func(a tui.Action) string { return a.Name })
		hint := "locktop config lists them"
		if near := alike(u.Name, names); len(near) > 0 {
			hint = "did you mean " + strings.Join(near[:min(len(near), maxHints)], ", ") + "?"
		}
		err = &connect.Error{Err: err, Hint: hint, Usage: true}
	}
	return c.Wrong(err, place...)
}

// rowCommands returns the commands of the configuration for the screen.
func rowCommands(c *connect.Configuration) []tui.RowCommand {
	return render.Each(c.Commands, func(one connect.Command) tui.RowCommand { return tui.RowCommand(one) })
}
