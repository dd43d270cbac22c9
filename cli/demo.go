package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/tui"
)

func (p *program) demoCommand() *cobra.Command {
	var s selection
	var look appearance
	clients := 20
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "The screen on a Redis of its own, busy at once",
		Long: `Shows the screen on a Redis inside this program: no server is needed and none
is touched. The locks are as the libraries leave them, taken, renewed and lost
by a cast of owners; the clients of the Load page compete for theirs.`,
		Example: `  locktop demo
  locktop demo --clients 200`,
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.demo(cmd.Context(), &s, &look, clients)
		},
	}
	set := pflag.NewFlagSet("Demo", pflag.ContinueOnError)
	set.IntVar(&clients, "clients", clients, "`number` of clients on the Load page")
	cmdFlags(cmd, set, s.flags(), look.flags())
	return cmd
}

func (p *program) demo(ctx context.Context, s *selection, look *appearance, clients int) error {
	if clients < 1 {
		return misuse("", "--clients: at least 1")
	}
	if err := errors.Join(s.check(), look.check()); err != nil {
		return err
	}
	if err := p.needsTerminal(); err != nil {
		return err
	}
	st, err := openStage(ctx, clients)
	if err != nil {
		return err
	}
	defer st.close()
	return p.screen(ctx, look, tui.World{Source: s.follow(&st.target), Load: st.load, Ledger: keep(st.rdb), Title: st.title})
}
