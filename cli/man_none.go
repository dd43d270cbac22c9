//go:build !manpages

package cli

import "github.com/spf13/cobra"

func (p *program) manCommands() []*cobra.Command { return nil }
