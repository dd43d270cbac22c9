package cli

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) completionCommand() *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
		"zsh":        (*cobra.Command).GenZshCompletion,
	}
	names := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{
		Use:   "completion " + strings.Join(names, "|"),
		Short: "A script that makes a shell complete commands and flags",
		Long:  "Prints a script for a shell to load at its start.",
		Example: `  source <(locktop completion bash)                      # in .bashrc
  locktop completion zsh > "${fpath[1]}/_locktop"
  locktop completion fish > ~/.config/fish/completions/locktop.fish`,
		ValidArgs:             names,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || shells[args[0]] == nil {
				return misuse("see locktop completion --help", "completion takes the name of a shell: %s", strings.Join(names, ", "))
			}
			return shells[args[0]](cmd.Root(), p.out)
		},
	}
}
