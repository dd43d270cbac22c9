package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"locktop/cli/connect"
	"locktop/keyspace/formats"
	"locktop/tui"
)

func (p *program) rootCommand() *cobra.Command {
	var c connect.Flags
	var s selection
	var look screenFlags
	var may writeFlags
	own := &ownLoad{program: p}
	root := &cobra.Command{
		Use:   "locktop",
		Short: "Every distributed lock in a Redis keyspace, live",
		Long: `locktop shows every distributed lock in a Redis keyspace, live: who holds it,
since when, how deep, for how much longer, and who waits.

Without flags it looks at LOCKTOP_URL, REDIS_URL, or redis://127.0.0.1:6379.
It only reads, unless --write or --load says otherwise.`,
		Example: `  locktop demo                              look around, no server needed
  locktop -u rediss://redis.internal:6380   the screen on a server
  locktop list --stuck                      what is wrong, once
  locktop watch --match 'lock:orders:*'     what happens, as it happens`,
		Version:                    build(),
		Args:                       command,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.screenOn(cmd.Context(), &c, &s, &look, may, own)
		},
	}
	cmdFlags(root, c.FlagSet(), s.flags(), look.flags(), may.flags(), own.flags())
	root.SetHelpFunc(help)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		p.demoCommand(), p.listCommand(), p.watchCommand(), p.inspectCommand(), p.releaseCommand(), p.doctorCommand(),
		p.recordCommand(), p.replayCommand(), p.formatsCommand(),
		p.loadCommand(), p.scenariosCommand(),
		p.versionCommand(),
	)
	root.AddCommand(p.manCommands()...)
	return root
}

// command returns an error for an argument that is not a command, and suggests the
// nearest commands.
func command(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see locktop --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + near[0] + "?"
	}
	return usageErrorf(hint, "unknown command %q", args[0])
}

// noArguments returns an error if there are arguments. It does not quote them: one
// may be a password that the user meant for --askpass.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes no arguments", cmd.CommandPath())
}

// screenOn shows the screen for the servers of c.
func (p *program) screenOn(ctx context.Context, c *connect.Flags, s *selection, look *screenFlags, may writeFlags, own *ownLoad) error {
	if err := applyContext(c, s, look, &may); err != nil {
		return err
	}
	if err := errors.Join(s.check(), look.check(), may.check(c), own.check(c, may)); err != nil {
		return err
	}
	if err := p.needsTerminal(); err != nil {
		return err
	}
	t, err := p.connect(ctx, c)
	if err != nil {
		return err
	}
	g := &connector{connection: c, selection: *s, rights: may, open: t}
	defer g.close()
	if may.write {
		log, err := openAudit()
		if err != nil {
			return err
		}
		defer log.close()
		g.log = log
	}
	w := g.world(ctx, t)
	own.connection = c
	if own.offered(may) {
		w.Loader, w.Scenes = own, ownScenes()
		defer own.close()
	}
	if own.now {
		if w.Load, err = own.Open(ctx); err != nil {
			return err
		}
	}
	return p.screen(ctx, look, w)
}

// screen shows w until the user quits or ctx ends.
func (p *program) screen(ctx context.Context, look *screenFlags, w tui.Config) error {
	look.applyTo(&w)
	w.Input, w.Output = p.in, p.out
	w.Formats, w.Clipboard, w.Frames = formats.All(), clipboard{p.out}, frameSaver{}
	if err := tui.Run(ctx, w); err != nil {
		return err
	}
	return ctx.Err()
}

// needsTerminal returns an error unless input and output are terminals.
func (p *program) needsTerminal() error {
	for _, end := range []any{p.in, p.out} {
		f, ok := end.(*os.File)
		if !ok || !term.IsTerminal(f.Fd()) {
			return usageErrorf("locktop list and locktop watch work everywhere", "the screen needs a terminal")
		}
	}
	return nil
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(p.out, "locktop %s, %s, %s/%s\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// build returns the version, and the commit if the build has one.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	version := info.Main.Version
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ", modified"
		}
	}
	if commit == "" {
		return version
	}
	return fmt.Sprintf("%s (commit %s%s)", version, commit, dirty)
}
