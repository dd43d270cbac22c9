package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// watchOptions configures a run of watch.
type watchOptions struct {
	json, plain bool
	events      []string
	duration    time.Duration
}

func (o *watchOptions) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Output", pflag.ContinueOnError)
	set.SortFlags = false
	set.BoolVar(&o.json, "json", false, "one JSON object a line; errors and notes are JSON, too")
	set.BoolVar(&o.plain, "plain", false, "one sentence a line, for screen readers and grep: the default")
	set.StringSliceVar(&o.events, "events", nil, "only these `kinds`: "+strings.Join(eventNames(), ", "))
	set.DurationVar(&o.duration, "for", 0, "stop after this `time` (default: never)")
	return set
}

func (p *program) watchCommand() *cobra.Command {
	var c connect.Flags
	var s selection
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch [flags]",
		Short: "Print changes of locks as they happen",
		Long: `Prints what happens to the locks, one event a line, until it is interrupted. Of
a lock that changes several times within a few milliseconds only the last change
may be printed.

The server tells which keys have changed, where it can (Redis 6 and later); an
event is printed some milliseconds after it happens. Where it cannot, locktop
looks 10 times a second, and a hold that is shorter may not be seen: locktop
doctor says which it is, and why. The first locks under a new prefix, or of a new
shape such as RANDOM:lock, are found by a pass over all keys, about once a second
and less often where there are millions; later ones as soon as they come. A server that goes away is waited for; if it
does not answer when --for is over, the exit code is 1.

"stolen" is told only where it is proved: another holder has the same deadline, or
the library announces its releases and did not. With other libraries a DEL and a
SET by a stranger look like a release and the next hold, and are told as these.

What becomes wrong as time goes by, or endangers all locks, is told once: as a
finding, with what to do.`,
		Example: `  locktop watch --match 'lock:orders:*'
  locktop watch --events expired,deleted,stolen
  locktop watch --events finding --json
  locktop watch --for 10s --json | jq -r .event | sort | uniq -c`,
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.watch(cmd.Context(), &c, &s, o)
		},
	}
	cmdFlags(cmd, c.FlagSet(), s.flags(), o.flags())
	return cmd
}

func (p *program) watch(ctx context.Context, c *connect.Flags, s *selection, o watchOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	t, err := p.connectReadOnly(ctx, c, s)
	if err != nil {
		return err
	}
	defer t.Close()

	watchCtx, stop := ctx, context.CancelFunc(func() {})
	if o.duration > 0 {
		watchCtx, stop = context.WithTimeout(ctx, o.duration)
	}
	defer stop()
	source, end := eventsOf(t, s)
	defer end()
	w := &watcher{
		source: source,
		wants:  o,
		picks:  s,
		teller: eventPrinter{p.out, o.json, s.databases},
		notes:  p.notes,
		title:  t.Title,
		told:   make(map[findingKey]bool),
	}
	if err := w.run(watchCtx); err != nil {
		return err
	}
	if ctx.Err() != nil { // not watchCtx: the end of --for is not an error
		return ctx.Err()
	}
	return w.lacks()
}

// eventPrinter prints one event or finding per line.
type eventPrinter struct {
	out       io.Writer
	json      bool
	databases bool // name the database
}

// event prints an event, in text with the findings of its lock.
func (t eventPrinter) event(e keyspace.Event, found []keyspace.Finding) error {
	if t.json {
		return render.JSON(t.out, render.EventOf(e))
	}
	_, err := fmt.Fprintln(t.out, render.EventSentence(e, found, t.databases))
	return err
}

// finding prints a finding about a lock or the servers.
func (t eventPrinter) finding(f keyspace.Finding, at time.Time) error {
	if t.json {
		return render.JSON(t.out, render.FindingEvent{At: render.Timestamp(at), Event: findingName, KeyedFinding: render.KeyedFindingOf(f)})
	}
	about := "server"
	if f.Lock != (keyspace.ID{}) {
		about = render.LockName(f.Lock, t.databases)
	}
	_, err := fmt.Fprintf(t.out, "%s %s %s, %s: %s %s\n", at.Local().Format("15:04:05.000"), findingName, about, f.Severity, widget.Plain(f.Text), widget.Plain(f.Remedy))
	return err
}

func (o *watchOptions) event(e keyspace.Event) bool { return o.named(string(e.Kind)) }
func (o *watchOptions) findings() bool              { return o.named(findingName) }

func (o *watchOptions) named(kind string) bool {
	return len(o.events) == 0 || slices.Contains(o.events, kind)
}

func (o *watchOptions) check() error {
	for _, name := range o.events {
		if !slices.Contains(eventNames(), name) {
			return usageErrorf("there are "+strings.Join(eventNames(), ", "), "unknown event %q", name)
		}
	}
	if o.json && o.plain {
		return usageErrorf("", "--json and --plain exclude each other")
	}
	if o.duration < 0 {
		return usageErrorf("", "--for must not be negative")
	}
	return nil
}

func eventNames() []string {
	var names []string
	for _, k := range keyspace.EventKinds() {
		names = append(names, string(k))
	}
	return append(names, findingName)
}

// findingName is the name of findings among the kinds of events.
const findingName = "finding"
