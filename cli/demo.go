package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/loadgen"
	"locktop/loadgen/scenarios"
	"locktop/tui"
)

func (p *program) demoCommand() *cobra.Command {
	var s selection
	var look screenFlags
	o := demoOptions{clients: 20}
	cmd := &cobra.Command{
		Use:   "demo [SCENE] [flags]",
		Short: "The screen on a built-in Redis with traffic",
		Long: `Shows the screen on a Redis inside this program: no server is needed and none
is touched. The locks are as the libraries leave them, taken, renewed and lost
by a cast of owners; the clients of the Load page compete for theirs. It begins
with a menu of scenes, or with the scene that is named: ` + strings.Join(sceneNames(), ", ") + `.`,
		Example: `  locktop demo
  locktop demo freeze
  locktop demo --real redlock-minority    on six redis-servers of its own`,
		Args:                  cobra.MaximumNArgs(1),
		DisableFlagsInUseLine: true,
		ValidArgs:             sceneNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.demo(cmd.Context(), &s, &look, o, strings.Join(args, ""))
		},
	}
	set := pflag.NewFlagSet("Demo", pflag.ContinueOnError)
	set.IntVar(&o.clients, "clients", o.clients, "`number` of clients on the Load page")
	set.BoolVar(&o.real, "real", false, "start redis-servers of its own, one and five for a redlock, and end them afterwards")
	cmdFlags(cmd, set, s.flags(), look.flags())
	return cmd
}

func (p *program) demo(ctx context.Context, s *selection, look *screenFlags, o demoOptions, scene string) error {
	if o.clients < 1 || o.clients > loadgen.MaxClients {
		return usageErrorf("", "--clients: 1 to %d", loadgen.MaxClients)
	}
	if scene != "" && !slices.Contains(sceneNames(), scene) {
		return usageErrorf("there are "+strings.Join(sceneNames(), ", "), "unknown scene %q", scene)
	}
	if err := errors.Join(s.check(), look.check()); err != nil {
		return err
	}
	if err := p.needsTerminal(); err != nil {
		return err
	}
	st, err := newDemoEnv(ctx, o)
	if err != nil {
		return err
	}
	defer st.close()
	a := st.source(s)
	defer a.close()
	log, err := openAudit()
	if err != nil {
		return err
	}
	defer log.close()
	return p.screen(ctx, look, tui.Config{
		Source: filteredSource{a, s}, Store: &rawReader{selection: s, client: a.clientOf}, Load: st.load, Scenes: scenarios.All(), Scene: scene, Quorum: st.addrs(),
		CommandStats: a.ledger, Title: st.title, Breaker: st.breaker(log),
	})
}

func sceneNames() []string {
	var names []string
	for _, s := range scenarios.All() {
		names = append(names, s.Name)
	}
	return names
}
