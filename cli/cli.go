// Package cli is the locktop program: its commands, flags, output and exit codes.
// No package outside of cli knows flags, addresses, environment variables and file names.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/tui"
)

// program is one run of locktop, with its input and outputs.
type program struct {
	in io.Reader
	output

	session    *connect.Session
	warned     []string     // of connections so far
	interrupts *atomic.Bool // Ctrl-C belongs to a program of the user
}

// output is where a run writes its results and its messages.
type output struct {
	out   io.Writer
	notes messages
}

// Run executes the command line args and returns the exit code. When ctx ends or
// the process is interrupted, Run cleans up and returns early.
//
// Run writes results to stdout and everything else, also errors, to stderr. An
// error is one line, if possible with a hint in brackets.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis would write into the screen

	p := &program{in: stdin, output: output{stdout, messages{to: stderr, json: asksForJSON(args)}}, session: new(connect.Session), interrupts: new(atomic.Bool)}
	root := p.rootCommand()
	ctx, stop := untilSignal(ctx, endSignals(root, args), p.interrupts)
	defer stop()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root) // after SetOut: the command keeps the output of that moment
	for _, cmd := range append(root.Commands(), root) {
		if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // only the help reads the backquotes
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
		}
	}

	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	f := asExitError(err)
	judged := f.code == exitUnsafe || f.code == exitThreshold // an interrupt does not change a verdict
	if by, _ := errors.AsType[signalError](context.Cause(ctx)); !judged && by.signal != 0 {
		return 128 + int(by.signal)
	}
	if !judged && (ctx.Err() != nil || errors.Is(err, tui.ErrInterrupted)) {
		return exitInterrupted
	}
	p.notes.fault(f)
	return f.code
}

// printed prints a document as JSON, or its text. what names it in an error.
func (o output) printed(what string, asJSON bool, document any, text func(io.Writer) error) error {
	print := text
	if asJSON {
		print = func(w io.Writer) error { return render.JSON(w, document) }
	}
	if err := print(o.out); err != nil {
		return fmt.Errorf("print %s: %w", what, err)
	}
	return nil
}

// printedText is printed for a text that is made already.
func (o output) printedText(what string, asJSON bool, document any, text string) error {
	return o.printed(what, asJSON, document, func(w io.Writer) error { return render.Written(w, text) })
}

// signalError is why the context of a run has ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return "received the signal " + e.signal.String() }

// untilSignal returns a context that ends with a signalError. It ignores SIGINT while elsewhere is
// true. A second signal ends the process even if the clean-up hangs.
func untilSignal(parent context.Context, ends []os.Signal, elsewhere *atomic.Bool) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	received := make(chan os.Signal, 1)
	signal.Notify(received, ends...)
	go func() {
		for {
			select {
			case by := <-received:
				if by == syscall.SIGINT && elsewhere.Load() {
					continue
				}
				signal.Stop(received)
				cancel(signalError{by.(syscall.Signal)})
			case <-ctx.Done():
			}
			return
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel(nil)
	}
}

// endSignals returns the signals that end a command. A closed terminal and a dropped ssh
// connection send SIGHUP. Export reads its files again then, and nohup makes a command ignore
// SIGHUP.
func endSignals(root *cobra.Command, args []string) []os.Signal {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if cmd, _, err := root.Find(args); err == nil && cmd.Name() == "export" || signal.Ignored(syscall.SIGHUP) {
		return ends
	}
	return append(ends, syscall.SIGHUP)
}

// Documentation returns the command line for manual pages. The description of each
// command ends with the exit codes, the variables and the files.
func Documentation() *cobra.Command {
	root := new(program).rootCommand()
	addCompletion(root)
	for _, cmd := range append(root.Commands(), root) {
		cmd.Long = cmp.Or(cmd.Long, cmd.Short+".")
		for _, part := range [][2]string{{"EXIT CODES", exitCodes}, {"ENVIRONMENT", environment}, {"FILES", files}} {
			cmd.Long += "\n\n# " + part[0] + "\n\n" + strings.ReplaceAll("\n"+strings.TrimSpace(part[1]), "\n", "\n\n") + "\n"
		}
	}
	return root
}

// asksForJSON looks for --json before the flags are parsed, so that errors in the
// flags are JSON, too.
func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

func (p *program) rootCommand() *cobra.Command {
	var may writeFlags
	r, own := &screenRun{program: p}, &ownLoad{program: p}
	root := &cobra.Command{
		Use:   "locktop",
		Short: "Show every distributed lock in a Redis keyspace, live",
		Long: `locktop shows every distributed lock in a Redis keyspace, live: its holders, the
time since the acquire, the reentry depth, the time to live, and the waiters.

Without flags, locktop connects to LOCKTOP_URL, REDIS_URL, or
redis://127.0.0.1:6379. It only reads, unless --write or --load is set.`,
		Example: `  locktop demo                              try it, no server needed
  locktop -u rediss://redis.internal:6380   the screen on a server
  locktop --ssh ann@bastion -H 10.0.0.5     the screen on a server behind ssh
  locktop --sentinel 10.0.0.1 --sentinel-user ann --master orders
  locktop -H redis.internal --user ann --password-command 'pass show redis/prod'
  locktop list --stuck                      what is wrong, once
  locktop watch --match 'lock:orders:*'     what happens, as it happens
  locktop who lock:orders:4711              which process holds a lock`,
		Version:                    build(),
		Args:                       command,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd.Context(), may, own)
		},
	}
	withFlags(root, r.flags.FlagSet(), r.selection.flags(), r.look.flags(), may.flags(), r.monitor.flags(), own.flags())
	root.SetHelpFunc(help)
	root.SetUsageFunc(func(cmd *cobra.Command) error { printUsage(cmd.OutOrStderr(), cmd); return nil })
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		p.demoCommand(), p.listCommand(), p.watchCommand(), p.inspectCommand(), p.whoCommand(), p.contentionCommand(), p.releaseCommand(), p.doctorCommand(),
		p.recordCommand(), p.replayCommand(), p.explainCommand(), p.exportCommand(), p.formatsCommand(), p.configCommand(),
		p.loadCommand(), p.agentCommand(), p.scenariosCommand(),
		p.versionCommand(), p.monitorCommand(),
	)
	scheme := regexp.MustCompile(`^(rediss?|unix)://`)
	for _, c := range append(root.Commands(), root) {
		if takes := c.Args; takes != nil && c.Flags().Lookup("url") != nil {
			c.Args = func(cmd *cobra.Command, args []string) error {
				if cmd.ArgsLenAtDash() < 0 && slices.ContainsFunc(args, scheme.MatchString) { // it may have a password: do not quote it
					return usageErrorf("put --url before it", "the address of a server is a flag, not an argument")
				}
				return takes(cmd, args)
			}
		}
	}
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

// oneOrNone returns an error if there are two arguments or more.
func oneOrNone(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes one argument at most", cmd.CommandPath())
}

func (o output) versionCommand() *cobra.Command {
	var asJSON bool
	set := flagSection("Output")
	set.BoolVar(&asJSON, "json", false, "print one JSON document; errors are JSON, too")
	return withFlags(&cobra.Command{
		Use:   "version [flags]",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			v := jsonVersion{build(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			return o.printedText("the version", asJSON, v, fmt.Sprintf("locktop %s, %s, %s/%s\n", v.Version, v.Go, v.OS, v.Arch))
		},
	}, set)
}

// jsonVersion is the output of `version --json`.
type jsonVersion struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// version is the version of this source; CHANGELOG.md says what it has.
const version = "0.1.0"

// build returns the version, and the commit if the build has one.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
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
