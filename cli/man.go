//go:build manpages

package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommands returns the command that prints manual pages. Only `make dist` builds
// it, because the generator needs two more modules.
func (p *program) manCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "man [COMMAND]",
		Short:  "The manual page of locktop or of one command",
		Hidden: true,
		Long:   "Prints a manual page as man(1) reads it.",
		Example: `  locktop man | man -l -
  locktop man release > /usr/local/share/man/man1/locktop-release.1`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, err := commandNamed(cmd.Root(), args)
			if err != nil {
				return err
			}
			about.DisableAutoGenTag = true // the tag has the generator's name and a date
			about.Long = cmp.Or(about.Long, about.Short+".") + "\n\n# EXIT CODES\n\n" + strings.ReplaceAll("\n"+strings.TrimSpace(exitCodes), "\n", "\n\n") + "\n"
			header := &doc.GenManHeader{Section: "1", Source: "locktop " + build(), Manual: "locktop"}
			if err := doc.GenMan(about, header, p.out); err != nil {
				return fmt.Errorf("write the manual page: %w", err)
			}
			return nil
		},
	}}
}

// commandNamed returns the command that args name, or root without args.
func commandNamed(root *cobra.Command, args []string) (*cobra.Command, error) {
	found, rest, err := root.Find(args)
	if err != nil || len(rest) > 0 {
		return nil, usageErrorf("see locktop --help", "there is no command %q", strings.Join(args, " "))
	}
	return found, nil
}
