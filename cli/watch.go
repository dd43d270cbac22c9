package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/keyspace"
	"locktop/tui"
	"locktop/tui/widget"
)

// watchEvery is the time between two looks. What begins and ends in between is
// not seen.
const watchEvery = 100 * time.Millisecond

// retryEvery is the time between two attempts to reach a server that is gone.
const retryEvery = 500 * time.Millisecond

// watching is what watch prints, and for how long.
type watching struct {
	json     bool
	events   []string
	duration time.Duration
}

func (o *watching) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Output", pflag.ContinueOnError)
	set.SortFlags = false
	set.BoolVar(&o.json, "json", false, "one JSON object a line; errors are JSON, too")
	set.StringSliceVar(&o.events, "events", nil, "only these `kinds`: "+strings.Join(eventNames(), ", "))
	set.DurationVar(&o.duration, "for", 0, "stop after this `time` (default: never)")
	return set
}

func (p *program) watchCommand() *cobra.Command {
	var c connection
	var s selection
	var o watching
	cmd := &cobra.Command{
		Use:   "watch [flags]",
		Short: "What happens to the locks, as it happens",
		Long: `Prints what happens to the locks, one event a line, until it is interrupted.
It looks 10 times a second: a hold that is shorter may not be seen.`,
		Example: `  locktop watch --match 'lock:orders:*'
  locktop watch --events expired,stolen
  locktop watch --for 10s --json | jq -r .event | sort | uniq -c`,
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.watch(cmd.Context(), &c, &s, o)
		},
	}
	cmdFlags(cmd, c.flags(), s.flags(), o.flags())
	return cmd
}

func (p *program) watch(ctx context.Context, c *connection, s *selection, o watching) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	t, err := p.dial(ctx, c)
	if err != nil {
		return err
	}
	defer t.close()

	watchCtx, stop := ctx, context.CancelFunc(func() {})
	if o.duration > 0 {
		watchCtx, stop = context.WithTimeout(ctx, o.duration)
	}
	defer stop()
	w := &watcher{
		source: keyspace.NewFollower(s.scanner(t.rdb, t.db)),
		wants:  func(e keyspace.Event, found []keyspace.Finding) bool { return o.wants(e) && s.wants(e.Lock, found) },
		print:  p.eventPrinter(o.json),
		notes:  p.notes,
		title:  t.title,
	}
	if err := w.run(watchCtx); err != nil {
		return err
	}
	return ctx.Err() // not watchCtx's: to stop after --for is what was asked for
}

// watcher turns pictures into events.
type watcher struct {
	source tui.Source
	wants  func(keyspace.Event, []keyspace.Finding) bool
	print  func(keyspace.Event) error
	notes  notes
	title  string

	last picture
	lost time.Time // since when the server has not answered; zero: it does
}

// run watches until ctx ends, which is no error. A server that goes away is
// waited for; one that no longer lets us in is not.
func (w *watcher) run(ctx context.Context) error {
	for {
		pause := watchEvery
		snap, err := w.source.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case redis.IsAuthError(err):
			return &fault{code: exitNoConnect, err: fmt.Errorf("watch %s: %w", w.title, err)}
		case err != nil:
			w.disconnected(err)
			pause = retryEvery
		default:
			w.reconnected()
			if err := w.look(snap); err != nil {
				return fmt.Errorf("print events: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// look prints what changed since the last picture.
func (w *watcher) look(snap keyspace.Snapshot) error {
	now := picture{snap, findingsByLock(snap)}
	before := w.last
	w.last = now
	for _, e := range keyspace.Diff(before.Snapshot, snap) {
		id := e.Lock.ID()
		if !w.wants(e, slices.Concat(before.findings[id], now.findings[id])) {
			continue
		}
		if err := w.print(e); err != nil {
			return err
		}
	}
	return nil
}

// disconnected says once that the server is gone.
func (w *watcher) disconnected(err error) {
	if w.lost.IsZero() {
		w.lost = time.Now()
		w.notes.note("lost %s: %v; trying again until it is back", w.title, err)
	}
}

// reconnected says that it is back. What happened in between shows up as
// events, as far as it has left traces.
func (w *watcher) reconnected() {
	if !w.lost.IsZero() {
		w.notes.note("back on %s after %s", w.title, span(time.Since(w.lost)))
		w.lost = time.Time{}
	}
}

// eventPrinter prints an event a line.
func (p *program) eventPrinter(json bool) func(keyspace.Event) error {
	if json {
		return func(e keyspace.Event) error { return writeJSON(p.out, eventOf(e)) }
	}
	return func(e keyspace.Event) error {
		_, err := fmt.Fprintln(p.out, eventSentence(e))
		return err
	}
}

// eventSentence says in words what happened.
func eventSentence(e keyspace.Event) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s %s", e.At.Local().Format("15:04:05.000"), e.Kind, widget.Plain(e.Lock.Key))
	if e.Holder.ID != "" {
		fmt.Fprintf(&s, " by %s", widget.Plain(e.Holder.Name()))
	}
	if e.Waiter.ID != "" {
		fmt.Fprintf(&s, " waiter %s", widget.Plain(e.Waiter.ID))
	}
	if e.Holder.Count > 1 {
		fmt.Fprintf(&s, " %d times", e.Holder.Count)
	}
	if e.Held > 0 {
		fmt.Fprintf(&s, ", held for %s", span(e.Held))
	}
	if !over(e.Kind) {
		fmt.Fprintf(&s, ", %s", deadline(e.Lock, e.At))
	}
	fmt.Fprintf(&s, ", %s", e.Lock.Format)
	return s.String()
}

// over reports whether an event ends a hold, so that its deadline says nothing
// any more.
func over(k keyspace.EventKind) bool {
	return k == keyspace.Released || k == keyspace.Expired
}

func (o *watching) wants(e keyspace.Event) bool {
	return len(o.events) == 0 || slices.Contains(o.events, string(e.Kind))
}

func (o *watching) check() error {
	for _, name := range o.events {
		if !slices.Contains(eventNames(), name) {
			return misuse("there are "+strings.Join(eventNames(), ", "), "unknown event %q", name)
		}
	}
	if o.duration < 0 {
		return misuse("", "--for: a time that is over")
	}
	return nil
}

func eventNames() []string {
	kinds := []keyspace.EventKind{
		keyspace.Appeared, keyspace.Acquired, keyspace.Reentered, keyspace.Left, keyspace.Renewed, keyspace.Released,
		keyspace.Expired, keyspace.Stolen, keyspace.ModeChanged, keyspace.WaiterCame, keyspace.WaiterWent, keyspace.TTLLost,
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return names
}
