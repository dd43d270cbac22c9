package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace/order"
	"locktop/tui"
)

// contentionOptions configures a run of contention.
type contentionOptions struct {
	duration time.Duration
	monitor  bool
	force    bool
	classes  int
	json     bool
	folded   bool
	order    bool
}

func (o *contentionOptions) flags() *pflag.FlagSet {
	set := flagSection("Contention")
	set.DurationVar(&o.duration, "for", 20*time.Second, "watch the locks for this `time`")
	set.BoolVar(&o.monitor, "monitor", false, "run MONITOR for this time, at most 1m: it shows clients that only poll, and costs the server 13µs per command")
	set.BoolVar(&o.force, "force", false, "run MONITOR also if it costs more than 5% of a core")
	set.IntVar(&o.classes, "classes", 10, "print at most this `number` of classes, of holders, and of orders")
	set.BoolVar(&o.json, "json", false, "print one JSON document; errors are JSON, too")
	set.BoolVar(&o.folded, "folded", false, "print class;key;holder;waiter and milliseconds, for flame graphs")
	set.BoolVar(&o.order, "order", false, "print in which order owners acquire locks while they hold others, by pattern of keys")
	return set
}

func (p *program) contentionCommand() *cobra.Command {
	var o contentionOptions
	return p.readCommand(&cobra.Command{
		Use:   "contention [GLOB...] [flags]",
		Short: "Show which locks make clients wait, and whose holds cause it",
		Long: `Watches the locks for a while and prints, for each pattern of keys, how long clients
waited, and which holder they waited for. BLOCKED is the time that clients waited per
second: 3 s/s means that three clients wait on average. A wait is blamed on the hold
that was in force, and while the lock is free, on the hold before.

The column KNOWN BY says how the waiting is known:

  stored   the library stores its waiters, or the server lists them
  asked    another client has asked for the held lock: at least one waits; its number
           is not known
  seen     MONITOR has shown the attempts of each client; only with --monitor

Each source is a lower bound, so the largest figure counts. Most libraries
only poll: without --monitor their clients are asked at best. A connection is a client:
clients behind one count as one, unless each keeps a token of its own.

With --monitor, MONITOR runs for the whole time, at most 1m, in a process of its own. It
refuses above 5% of a core, and ends when the server becomes so busy. Then it also finds
deadlocks of clients that only poll.

With --order, it prints in which order owners acquired locks while they held others: two
orders of the same locks can deadlock.`,
		Example: `  locktop contention
  locktop contention --monitor --for 30s 'lock:orders:*'
  locktop contention --json | jq '.classes[] | select(.waiter_count_mean > 1)'
  locktop contention --monitor --folded > waits.folded
  locktop contention --order --for 10m`,
		Args: cobra.ArbitraryArgs,
	}, o.check, func(ctx context.Context, r *reading, args []string) error {
		r.scan.Match = append(r.scan.Match, args...)
		return p.contention(ctx, r, o)
	}, o.flags())
}

func (o *contentionOptions) check() error {
	switch {
	case o.force && !o.monitor:
		return usageErrorf("", "--force needs --monitor")
	case o.folded && (o.json || o.order):
		return usageErrorf("", "--folded excludes --json and --order")
	case o.duration <= 0:
		return usageErrorf("as in --for 1m", "--for: not a positive time")
	case o.monitor && o.duration > maxMonitorTime:
		return usageErrorf("without --monitor it may be longer", "with --monitor, --for is at most %s", humanize.Setting(maxMonitorTime))
	case o.classes < 1:
		return usageErrorf("", "--classes: not a positive number")
	}
	return nil
}

func (p *program) contention(ctx context.Context, r *reading, o contentionOptions) error {
	options := r.optionsOf(r.target)
	c := &contentionRun{program: p, monitoring: newMonitoring(r), options: o, orders: options("", 0).Order}
	c.source = r.selected(r.watchOf(r.target, options))
	line := p.newProgressLine()
	defer line.clear()
	line.show("reading the locks")
	var err error
	c.last, err = observed(ctx, c.source, contentionPause)   // until the server reports changes
	if c.last.Events = nil; err != nil && ctx.Err() == nil { // they are over
		err = scanFailed(fmt.Errorf("watch %s: %w", c.target.Title, err))
	}
	if err != nil {
		return err
	}
	p.notes.problems(c.last)
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.monitor {
		if err := c.start(within, o.duration, o.force); err != nil {
			return err
		}
	}
	c.take(c.last)
	if o.monitor {
		c.watch(ctx, monitorLead, line)
		c.began = time.Now()
	}
	line.show("watching the locks for " + humanize.Setting(o.duration))
	c.watch(ctx, o.duration, line)
	if o.monitor {
		c.nameClients(ctx) // also those that have connected since
	}
	line.clear()
	if err := c.print(); err != nil {
		return fmt.Errorf("print the contention: %w", err)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.err != nil:
		return monitorFailed(c.err)
	case !c.last.Complete:
		return incomplete(c.last)
	}
	return nil
}

// contentionRun is a run of contention.
type contentionRun struct {
	*program
	*monitoring
	options contentionOptions
	source  tui.Source
	orders  *order.Graph
}

const (
	contentionPause = 100 * time.Millisecond // between two reads of what the watch knows
	contentionRest  = 10                     // the reads take at most one in so many parts of the time
	// monitorLead is how long MONITOR runs before its figures count: then it is known who holds the locks,
	// and who has asked before.
	monitorLead = 300 * time.Millisecond
)

// watch takes what the servers do until the time is over, or ctx ends.
func (c *contentionRun) watch(ctx context.Context, duration time.Duration, line progressLine) {
	end := time.Now().Add(duration)
	shown, search := time.Time{}, time.Now().Add(monitorSettled)
	for ctx.Err() == nil && time.Now().Before(end) && c.err == nil {
		if c.options.monitor && time.Now().After(search) {
			search = time.Now().Add(time.Second)
			if found := c.ledger.Deadlocks(); len(found) > 0 { // it may end before the report
				search = end
				line.clear()
				c.notes.note("%s", found[0].Text(c.last.At))
			}
		}
		if now := time.Now(); line.live && now.Sub(shown) > time.Second {
			line.show(fmt.Sprintf("watching the locks for %s", humanize.Left(end.Sub(now))))
			shown = now
		}
		began := time.Now()
		if snap, err := c.source.Snapshot(ctx); err == nil {
			c.take(snap)
		}
		pause := max(contentionPause, contentionRest*time.Since(began))
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, time.Until(end))):
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if snap, err := c.source.Snapshot(last); err == nil {
		c.take(snap)
	}
}

// print prints what was seen.
func (c *contentionRun) print() error {
	report := c.ledger.Report()
	if c.options.order {
		report.Orders = c.orders.Orders()
	}
	switch {
	case c.options.folded:
		return render.Folded(c.out, report)
	case c.options.json:
		return render.JSON(c.out, render.ContentionOf(report, c.last, c.options.classes))
	case c.options.order:
		return render.Orders(c.out, report, c.options.classes, render.TerminalWidth(c.out))
	}
	return render.Contention(c.out, report, c.databases, c.options.classes, render.TerminalWidth(c.out))
}
