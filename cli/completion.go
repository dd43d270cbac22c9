package cli

import "github.com/spf13/cobra"

// addCompletion adds cobra's completion command to root. The command fails without
// a shell or with an unknown one, where cobra would print the help and succeed.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, noShell
		}
	}
}

func noShell(*cobra.Command, []string) error {
	return usageErrorf("see locktop completion --help", "completion takes the name of a shell: bash, fish, powershell, zsh")
}
