package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
)

// listOptions configures the output of list.
type listOptions struct {
	json, csv, plain bool
	progress         bool
	failIfStuck      bool
	duration         time.Duration
}

func (o *listOptions) flags() *pflag.FlagSet {
	set := flagSection("Output")
	set.BoolVar(&o.json, "json", false, "print one JSON document; errors are JSON, too")
	set.BoolVar(&o.csv, "csv", false, "print comma-separated values, for spreadsheets")
	set.BoolVar(&o.plain, "plain", false, "print one sentence per lock, for screen readers and grep")
	set.BoolVar(&o.progress, "progress", false, "print the progress to stderr, also if stderr is no terminal")
	set.DurationVar(&o.duration, "for", 0, "`time` to observe the locks after the first scan: how long a lock is held often shows only then")
	set.BoolVar(&o.failIfStuck, "fail-if-stuck", false, "exit with code 3 if a lock has a finding")
	return set
}

func (p *program) listCommand() *cobra.Command {
	var o listOptions
	return p.readCommand(&cobra.Command{
		Use:   "list [GLOB...] [flags]",
		Short: "List all locks once",
		Long: `Scans the whole keyspace once and prints every lock: in a table and as sentences the
worst first, in JSON and CSV by key. With GLOB, it prints only locks whose keys match one
of the globs, as with --match.

Most locks do not store when they were acquired. With --for, locktop observes them for
a while, and knows that they have been held for at least that time.

If a server does not answer or its connection breaks, locktop prints the locks of
the other servers and names the missing server on stderr. "complete" in the JSON is
then false, and the exit code is 1: so it is if this user may not read keys that may be
locks, and on a replica that has lost its master.`,
		Example: `  locktop list
  locktop list --json | jq '.locks[] | select(.ttl_ms == -1) | .key'
  locktop list --stuck --for 15s --overdue 10s    # also locks that are held for 10 s
  locktop list 'lock:*' --fail-if-stuck           # for cron: exit code 3`,
		Args: cobra.ArbitraryArgs,
	}, o.check, func(ctx context.Context, r *reading, args []string) error {
		r.scan.Match = append(r.scan.Match, args...)
		return p.list(ctx, r.target, &r.selection, o)
	}, o.flags())
}

func (p output) list(ctx context.Context, t *connect.Target, s *selection, o listOptions) error {
	g := p.newScanProgress(o.progress)
	var snap keyspace.Snapshot
	var err error
	if o.duration > 0 {
		snap, err = observed(ctx, s.watchOf(t, s.optionsOf(t)), o.duration)
	} else {
		snap, err = s.scanOf(t, g).Snapshot(ctx)
	}
	g.done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && len(snap.Locks) == 0 {
		fault := scanFailed(fmt.Errorf("scan %s: %w", t.Title, err))
		if o.json && len(snap.Nodes) > 1 { // the document names the nodes
			return errors.Join(p.print(s.filter(snap), o), fault)
		}
		return fault
	}
	p.notes.problems(snap)
	found := s.filter(snap)
	for _, n := range snap.Nodes {
		if n.AskBlind != "" && !o.json && found.HidesWaiters(n.Addr) {
			p.notes.note("clients that wait for locks on %s without a trace are not seen: %s", n.Addr, n.AskBlind)
		}
	}
	if err := p.print(found, o); err != nil {
		return fmt.Errorf("print the list: %w", err)
	}
	if n := found.WithFindings(); n > 0 && o.failIfStuck {
		if !snap.Complete {
			p.notes.warning("%s", incomplete(snap))
		}
		return &exitError{code: exitFindings, err: fmt.Errorf("%s with findings", humanize.Plural(n, "lock"))}
	}
	if !snap.Complete {
		return incomplete(snap)
	}
	return nil
}

// print prints locks; for people the worst first.
func (p output) print(found render.View, o listOptions) error {
	worst := func(l *keyspace.Lock) (most int) {
		for _, f := range found.Findings[l.ID()] {
			most = max(most, 1+int(f.Severity))
		}
		return most
	}
	if !o.json && !o.csv {
		slices.SortStableFunc(found.Locks, func(a, b *keyspace.Lock) int { return worst(b) - worst(a) })
	}
	switch {
	case o.json:
		return render.JSON(p.out, render.DocumentOf(found))
	case o.csv:
		return render.CSV(p.out, found)
	case o.plain:
		return render.Plain(p.out, found)
	default:
		return render.Table(p.out, found, render.TerminalWidth(p.out))
	}
}

// checkFor checks the value of --for.
func checkFor(d time.Duration) error {
	if d < 0 {
		return usageErrorf("", "--for must not be negative")
	}
	return nil
}

func (o *listOptions) check() error {
	if o.json && o.csv || o.csv && o.plain || o.plain && o.json {
		return usageErrorf("", "--json, --csv and --plain exclude each other")
	}
	return checkFor(o.duration)
}

// scanProgress reports the progress of a scan. It is safe for concurrent use.
type scanProgress struct {
	line  progressLine
	every time.Duration

	mu        sync.Mutex
	startedAt time.Time
	shownAt   time.Time
	costs     map[keyspace.ID]keyspace.Cost // by server and database
	locks     int
}

// newScanProgress returns a scanProgress if stderr is a terminal or wanted is true,
// and nil otherwise.
func (o output) newScanProgress(wanted bool) *scanProgress {
	line := o.newProgressLine()
	if !line.live && !wanted {
		return nil
	}
	now := time.Now()
	g := &scanProgress{line: line, every: time.Second, startedAt: now, shownAt: now, costs: make(map[keyspace.ID]keyspace.Cost)}
	if line.live {
		g.every = 100 * time.Millisecond
	}
	return g
}

// of returns a function that counts the pages of one server and database; nil if g is nil.
func (g *scanProgress) of(from keyspace.ID) func(keyspace.Snapshot) {
	if g == nil {
		return nil
	}
	return func(s keyspace.Snapshot) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.costs[from] = s.Cost
		g.locks += len(s.Locks)
		if now := time.Now(); now.Sub(g.shownAt) >= g.every {
			g.shownAt = now
			g.line.show(g.text(now))
		}
	}
}

// text describes the progress and estimates the remaining time.
func (g *scanProgress) text(now time.Time) string {
	var scanned, keys int64
	var busy time.Duration
	for _, c := range g.costs {
		scanned, keys, busy = scanned+c.Scanned, keys+c.Keys, busy+c.ServerTime
	}
	passed := now.Sub(g.startedAt)
	s := fmt.Sprintf("%s of %s, %s", humanize.Count(scanned), humanize.Plural(keys, "key"), humanize.Plural(g.locks, "lock"))
	if scanned > 0 && keys > scanned {
		s += fmt.Sprintf(", %s to go", humanize.Duration(time.Duration(float64(passed)*float64(keys-scanned)/float64(scanned))))
	}
	return s + fmt.Sprintf(", %.0f%% of the server's time", 100*busy.Seconds()/passed.Seconds())
}

// done erases the line.
func (g *scanProgress) done() {
	if g != nil {
		g.line.clear()
	}
}
