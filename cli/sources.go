package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/keyspace/order"
	"locktop/keyspace/release"
	"locktop/tui"
)

// connect connects by the flags. It asks for the password and warns of what is unsafe.
func (p *program) connect(ctx context.Context, c *connect.Flags) (*connect.Target, error) {
	return p.session.Open(ctx, c, p.prompt())
}

// prompt returns the prompt for a connection. It warns once of what is the same for several
// servers.
func (p *program) prompt() connect.Prompt {
	return connect.Prompt{In: p.in, Out: p.notes.to, Note: p.notes.note, Warn: func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if slices.Contains(p.warned, text) {
			return
		}
		p.warned = append(p.warned, text)
		p.notes.warning("%s", text)
	}}
}

// reading is a run of a command that connects: its connection and its selection.
type reading struct {
	flags connect.Flags
	selection
	may    *writeFlags // nil: the command only reads
	target *connect.Target
}

// readCommand completes a command that connects, only reads and runs. Its flags are those of the
// connection, of the selection and of sets. check looks at the flags before the connection.
func (p *program) readCommand(cmd *cobra.Command, check func() error, run func(context.Context, *reading, []string) error, sets ...*pflag.FlagSet) *cobra.Command {
	return p.complete(cmd, new(reading), check, run, sets...)
}

// complete is readCommand for a run that may write, too.
func (p *program) complete(cmd *cobra.Command, r *reading, check func() error, run func(context.Context, *reading, []string) error, sets ...*pflag.FlagSet) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if _, err := applyContext(&r.flags, &r.selection, nil, r.may); err != nil {
			return err
		}
		if err := cmp.Or(check(), r.selection.check()); err != nil {
			return err
		}
		r.databases = r.flags.AllDatabases()
		if r.target, err = p.connect(cmd.Context(), &r.flags); err != nil {
			return err
		}
		defer r.target.Close()
		return run(cmd.Context(), r, args)
	}
	if strings.Contains(cmd.Use, "KEY") {
		cmd.ValidArgsFunction = completeKeys(&r.flags, &r.selection)
	}
	return withFlags(cmd, append([]*pflag.FlagSet{r.flags.FlagSet(), r.selection.flags()}, sets...)...)
}

// applyContext applies the context of the flags, if they name one, and returns it. Its theme applies
// only without a flag; its locks and limits add to those of the flags. look and may may
// be nil.
func applyContext(c *connect.Flags, s *selection, look *screenFlags, may *writeFlags) (connect.Context, error) {
	of, err := c.Context()
	if err != nil {
		return of, err
	}
	s.lock = append(s.lock, of.Locks...)
	s.snoozedOrders = of.Orders
	for _, text := range of.Overdue {
		if err := s.limits.Set(text); err != nil {
			return of, usageErrorf("", "%w", overdueError(of, err))
		}
	}
	if look != nil && look.theme == "" {
		look.theme = of.Theme
	}
	if may == nil {
		return of, nil
	}
	if of.ReadOnly {
		may.readOnly = of.Name
	}
	may.production = may.production || of.Production
	may.auditLog = cmp.Or(may.auditLog, of.AuditLog)
	return of, nil
}

// overdueError returns the error for a limit of a context.
func overdueError(of connect.Context, err error) error {
	return fmt.Errorf("overdue of context %s: one of them is %w", of.Name, err)
}

// sourceFunc is a function as a source.
type sourceFunc func(context.Context) (keyspace.Snapshot, error)

// Snapshot calls f.
func (f sourceFunc) Snapshot(ctx context.Context) (keyspace.Snapshot, error) { return f(ctx) }

// scanOf returns a source that scans all servers of t at each Snapshot. It reports its
// progress to g, which may be nil.
func (s *selection) scanOf(t *connect.Target, g *scanProgress) *inspect.MultiSource {
	options := s.optionsOf(t)
	return inspect.NewMultiSource(t.Sources(func(rdb inspect.Client, addr string, db int) inspect.Source {
		o := options(addr, db)
		o.RetryTimeout = t.Timeout
		o.Progress = g.of(keyspace.ID{Node: addr, DB: db})
		scanner := inspect.NewScanner(rdb, o)
		return sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
			if err := t.Answers(ctx, rdb); err != nil {
				return keyspace.Snapshot{}, err
			}
			return scanner.Scan(ctx)
		})
	}), s.multi(t))
}

// watchOf watches all servers of t, with the options of optionsOf, until t is closed.
func (s *selection) watchOf(t *connect.Target, options scanOptionsOf) tui.Source {
	start := func(rdb inspect.Client, addr string, db int) inspect.Source {
		return inspect.StartWatcher(inspect.NewWatcher(inspect.NewScanner(rdb, options(addr, db))))
	}
	if !t.Many {
		return t.Source(start)
	}
	return inspect.NewMultiSource(t.Sources(start), s.multi(t))
}

// scanOptionsOf returns the options of a scan of one database of a server.
type scanOptionsOf func(addr string, db int) inspect.ScanOptions

// optionsOf returns a function with the options of a scan of one database of t. On the
// nodes of a Redlock they include possible locks, because votes may raise the
// confidence. All scanners of one server share its budget, and all watchers what a closed one
// leaves and the orders of locks.
func (s *selection) optionsOf(t *connect.Target) scanOptionsOf {
	var mu sync.Mutex
	budgets, past, orders := make(map[string]*inspect.Budget), new(inspect.Carryover), &order.Graph{Snoozed: s.snoozedOrders}
	return func(addr string, db int) inspect.ScanOptions {
		mu.Lock()
		defer mu.Unlock()
		if budgets[addr] == nil {
			budgets[addr] = s.budget.pace()
		}
		o := s.options(db, budgets[addr])
		o.Cluster, o.Carryover, o.Order = t.Cluster, past, orders
		if t.Multi.Redlock {
			o.MinConfidence, o.KeepAlike = keyspace.Possible, true
		}
		return o
	}
}

// multi returns the options that combine the snapshots of the servers of t.
func (s *selection) multi(t *connect.Target) inspect.MultiOptions {
	o := t.Multi
	o.MinConfidence = keyspace.Likely
	if s.all {
		o.MinConfidence = keyspace.Possible
	}
	return o
}

// selected returns the selected part of a source: all of it without a flag that selects locks.
func (s *selection) selected(source tui.Source) tui.Source {
	if s.format == "" && !s.stuck && s.owner == "" {
		return source
	}
	return sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
		snap, err := source.Snapshot(ctx)
		return s.filter(snap).Snapshot, err
	})
}

// executorOf returns an executor for the locks of the servers of t. It writes its
// actions to log.
func executorOf(t *connect.Target, log *auditLog, s *selection) *release.Executor {
	return release.NewExecutor(t.Clients, s.formats(), log.as(t.User()))
}

// storedOn returns what reads the keys of a lock from every server that may have it. client returns the
// client of a server; nil if there is none.
func (s *selection) storedOn(client func(addr string, db int) inspect.Client) tui.Store {
	return func(ctx context.Context, l keyspace.Lock) (all []tui.RawEntry) {
		addrs := []string{l.Node}
		if len(l.Votes) > 0 {
			addrs = render.Each(l.Votes, func(v keyspace.Vote) string { return v.Node })
		}
		for _, addr := range addrs {
			var sight inspect.Key
			err := errors.New("it is not connected")
			if rdb := client(addr, l.DB); rdb != nil {
				sight, err = inspect.NewScanner(rdb, s.keyOptions(l.DB)).ReadKey(ctx, l.Key)
			}
			if err == nil && (!sight.Complete || len(sight.Entries) == 0 && len(sight.Problems) > 0) { // the key may have moved to another node
				err = errors.New(strings.Join(sight.Problems, "; "))
			}
			for _, e := range sight.Entries {
				all = append(all, tui.RawEntry{Node: addr, Entry: e})
			}
			if err != nil {
				all = append(all, tui.RawEntry{Node: addr, Err: err})
			}
		}
		return all
	}
}

// clientFinder finds the clients of holders for the screen. It is safe for concurrent use.
type clientFinder struct {
	target  *connect.Target
	options scanOptionsOf
	refused sync.Map // errors of servers that refuse CLIENT LIST, by address: they are not asked again
}

// Clients implements [tui.Finder].
func (f *clientFinder) Clients(ctx context.Context, l keyspace.Lock, known []int64) (list []keyspace.Client, all bool, err error) {
	var h keyspace.Holder
	if len(l.Holders) > 0 {
		h = l.Holders[0]
	}
	if err, refused := f.refused.Load(l.HeldOn(h)); refused {
		return nil, false, err.(error)
	}
	scanner, err := f.scanner(ctx, l, h)
	if err != nil {
		return nil, false, err
	}
	list, all, err = scanner.Clients(ctx, known)
	if errors.Is(err, inspect.ErrMayNotList) || errors.Is(err, inspect.ErrNoClientList) {
		f.refused.Store(l.HeldOn(h), err)
	}
	return withoutOwn(list), all, err
}

// WatchHolder implements [tui.Finder].
func (f *clientFinder) WatchHolder(ctx context.Context, l keyspace.Lock, h keyspace.Holder, others []*keyspace.Lock) (keyspace.Suspicion, error) {
	scanner, err := f.scanner(ctx, l, h)
	if err != nil {
		return keyspace.Suspicion{}, err
	}
	seen, err := scanner.WatchHolder(ctx, l, h, others, never, func(inspect.Investigation) {})
	return seen.Suspicion, err
}

// scanner returns a scanner of the server on which a holder has the lock.
func (f *clientFinder) scanner(ctx context.Context, l keyspace.Lock, h keyspace.Holder) (*inspect.Scanner, error) {
	rdb, err := clientOfHolder(ctx, f.target, l, h)
	if err != nil {
		return nil, err
	}
	o := f.options(l.HeldOn(h), l.DB)
	o.Match, o.MinConfidence = nil, keyspace.Possible
	return inspect.NewScanner(rdb, o), nil
}
