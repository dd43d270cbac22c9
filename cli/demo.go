package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"locktop/cli/demo"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/keyspace/release"
	"locktop/loadgen"
	"locktop/loadgen/scenarios"
	"locktop/tui"
)

func (p *program) demoCommand() *cobra.Command {
	r := &screenRun{program: p}
	clients, real := 20, false
	set := flagSection("Demo")
	set.IntVar(&clients, "clients", clients, "`number` of clients on the Load page")
	set.BoolVar(&real, "real", false, "start redis-servers, one and five more for a Redlock, and stop them at the end")
	return withFlags(&cobra.Command{
		Use:   "demo [SCENE] [flags]",
		Short: "Show the screen on a built-in Redis with traffic",
		Long: `Shows the screen on a Redis inside this program. No server is needed, and locktop
connects to none. Simulated owners acquire, renew and lose locks in the formats of
many libraries. On the Load page, clients compete for further locks. m shows the menu
of scenes. With a name the demo begins with that scene; locktop scenarios lists them.`,
		Example: `  locktop demo
  locktop demo freeze
  locktop demo --real redlock-minority    on six redis-servers of its own`,
		Args:      oneOrNone,
		ValidArgs: scenarios.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.demo(cmd.Context(), clients, real, strings.Join(args, ""))
		},
	}, set, r.selection.flags(), r.look.flags())
}

func (r *screenRun) demo(ctx context.Context, clients int, real bool, scene string) error {
	if clients < 1 || clients > loadgen.MaxClients {
		return usageErrorf("", "--clients: 1 to %d", loadgen.MaxClients)
	}
	if scene != "" && !slices.Contains(scenarios.Names(), scene) {
		return usageErrorf("there are "+strings.Join(scenarios.Names(), ", "), "unknown scene %q", scene)
	}
	if err := cmp.Or(r.check(), r.needsTerminal()); err != nil {
		return err
	}
	d, err := demo.Start(ctx, clients, real)
	if err != nil {
		return err
	}
	defer d.Close()
	s := &r.selection
	source := d.Source(func(rdb inspect.Client) *inspect.Scanner { return s.scanner(rdb, 0) })
	defer source.Close()
	log, err := openAudit("")
	if err != nil {
		return err
	}
	defer log.close()
	return r.show(ctx, tui.Config{
		Source: s.selected(source), Store: s.storedOn(source.ClientOf), Load: d.Load,
		Scenes: scenarios.All(), Scene: scene, Quorum: d.Quorum(), Title: d.Title,
		Executor: release.NewExecutor(d.Clients, formats.All(), log),
	})
}
