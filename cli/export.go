package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/keyspace/metrics"
	"locktop/keyspace/metrics/web"
	"locktop/keyspace/recording"
	"locktop/tui"
)

// exportOptions configures an export.
type exportOptions struct {
	urls, contexts []string
	listen         []string
	webConfig      string
	textfile       string
	locks          []string
	classes        bool
	every          time.Duration
	record         exportRecording
}

func (o *exportOptions) flags() *pflag.FlagSet {
	set := flagSection("Export")
	set.StringSliceVar(&o.listen, "web.listen-address", []string{"127.0.0.1:15625"}, "`address` for /metrics, /healthz and /readyz; may be repeated; none: do not listen")
	set.StringVar(&o.webConfig, "web.config.file", "", "`file` with TLS certificates and users, in the format of the Prometheus exporter-toolkit")
	set.StringVar(&o.textfile, "textfile", "", "`file` for the textfile collector of node_exporter, replaced every 15 s")
	set.StringArrayVar(&o.locks, "lock-metric", nil, fmt.Sprintf("`key` of a lock with metrics of its own; may be repeated, up to %d times", metrics.MaxLocks))
	set.BoolVar(&o.classes, "classes", false, "count locks and findings by the pattern of the key, with * for IDs: at most 200 patterns")
	set.DurationVar(&o.every, "every", time.Second, "`time` between two updates of the metrics; scrapes read nothing from Redis")
	return set
}

// connectionFlags returns the connection flags with --url and --context for several
// targets.
func (o *exportOptions) connectionFlags(c *connect.Flags) *pflag.FlagSet {
	set := flagSection("Connection")
	c.FlagSet().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "url":
			set.StringArrayVarP(&o.urls, "url", "u", nil, f.Usage+"; may be repeated")
		case "context":
			set.StringArrayVar(&o.contexts, "context", nil, f.Usage+"; may be repeated")
		default:
			set.AddFlag(f)
		}
	})
	return set
}

func (p *program) exportCommand() *cobra.Command {
	var c connect.Flags
	var s selection
	var o exportOptions
	return withFlags(&cobra.Command{
		Use:   "export [flags]",
		Short: "Serve metrics of the locks to Prometheus",
		Long: `Watches the locks as locktop watch does, and serves their metrics to Prometheus until it
is interrupted. A scrape sends no command to Redis: it returns the last numbers.

With several --url or --context, each is a target, and all other flags apply to each of
them. A target that does not answer has locktop_up 0; locktop tries again until it is
back.

/healthz answers while the process runs. /readyz answers with 503 until the first scan of
each target has ended, except of targets that do not answer. SIGHUP reads
--web.config.file again; changed certificates are read by themselves.

--record keeps a recording of the last hours, one frame per second and target. locktop
replay DIRECTORY --at 03:12 shows it, also while it is written. It contains the names of
keys and owners, but no tokens; only its owner can read it.

Keys, owners and tokens are no labels, except the keys in --lock-metric and the patterns
of --classes.`,
		Example: `  locktop export -u redis://db.internal:6379
  locktop export --context orders --context billing --web.config.file web.yml
  locktop export --lock-metric lock:nightly-report --classes
  locktop export --record /var/lib/locktop/recording --keep 48h --keep-size 2GiB
  locktop export --web.listen-address none --textfile /var/lib/node_exporter/locktop.prom`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.export(cmd.Context(), &c, s, o)
		},
	}, o.connectionFlags(&c), subset(s.flags(), func(name string) bool { return name != "stuck" }), o.flags(), o.record.flags())
}

// check returns an error for options that contradict each other.
func (o *exportOptions) check() error {
	notUTF8 := func(key string) bool { return !utf8.ValidString(key) }
	slices.Sort(o.locks)
	o.locks = slices.Compact(o.locks)
	switch {
	case o.every < 100*time.Millisecond:
		return usageErrorf("", "--every must be at least 100ms")
	case len(o.locks) > metrics.MaxLocks:
		return usageErrorf("--classes counts many locks", "--lock-metric: %d locks; at most %d may have metrics of their own", len(o.locks), metrics.MaxLocks)
	case slices.Contains(o.locks, ""), slices.ContainsFunc(o.locks, notUTF8):
		return usageErrorf("", "--lock-metric: a label must be UTF-8 and not empty")
	case !o.listens() && o.textfile == "":
		return usageErrorf("set --textfile, or an address", "--web.listen-address none: nobody could read the metrics")
	case !o.listens() && o.webConfig != "":
		return usageErrorf("", "--web.config.file without an address to listen on")
	}
	return nil
}

func (o *exportOptions) listens() bool { return !slices.Equal(o.listen, []string{"none"}) }

// export serves metrics until ctx ends.
func (p *program) export(ctx context.Context, c *connect.Flags, s selection, o exportOptions) error {
	if err := errors.Join(s.check(), o.check(), o.record.check()); err != nil {
		return err
	}
	defer collectAt(exportGCPercent)()
	e := &export{program: p, options: o}
	if err := e.addTargets(c, s); err != nil {
		return err
	}
	defer e.close()
	if err := e.record(); err != nil {
		return err
	}
	defer e.closeRecordings()
	server, err := web.New(o.webConfig, func(text string) { e.notes.note("%s", text) })
	if err != nil {
		return usageErrorf("", "--web.config.file: %w", err)
	}
	listeners, err := e.listen(ctx)
	if err != nil {
		return err
	}
	described := render.Each(e.targets, func(t *exportTarget) metrics.Target { return metrics.Target{Name: t.name, Flags: t.line} })
	e.metrics = metrics.New(metrics.Options{Version: build(), Locks: o.locks, Classes: o.classes, Shows: render.ShowsWaiters}, described...)
	if err := e.openTargets(ctx); err != nil {
		return err
	}
	return e.run(ctx, server, listeners)
}

// export is a running export.
type export struct {
	*program
	options exportOptions
	targets []*exportTarget
	metrics *metrics.Exporter
}

// exportTarget is one target of an export.
type exportTarget struct {
	index     int
	name      string
	line      string // flags for other commands
	flags     *connect.Flags
	session   connect.Session // of its own: targets may have passwords of their own
	selection selection
	meter     inspect.Meter
	open      *connect.Target // nil: not connected yet
	source    tui.Source
	recording *recording.DirWriter // nil: it is not recorded
	answered  time.Time            // its last answer; zero = none yet
	lost      time.Time            // since when it does not answer; zero = it answers
}

// addTargets adds a target for each URL and each context of the flags, or the one of the
// environment.
func (e *export) addTargets(c *connect.Flags, s selection) error {
	all := slices.Concat(render.Each(e.options.urls, func(url string) *connect.Flags { return c.WithURL("--url", url) }), render.Each(e.options.contexts, c.WithContext))
	if len(all) == 0 {
		all = append(all, c)
	}
	for i, flags := range all {
		t := &exportTarget{index: i, flags: flags, selection: s}
		t.selection.lock, t.selection.limits = slices.Clip(s.lock), slices.Clip(s.limits)
		if err := t.prepare(); err != nil {
			return err
		}
		if slices.ContainsFunc(e.targets, func(known *exportTarget) bool { return known.name == t.name }) {
			return usageErrorf("", "%s is named twice", t.name)
		}
		e.targets = append(e.targets, t)
	}
	return nil
}

// prepare applies the context of the flags and names the target: by its context, or by
// its address.
func (t *exportTarget) prepare() error {
	of, err := applyContext(t.flags, &t.selection, nil, nil)
	if err != nil {
		return err
	}
	t.selection.databases = t.flags.AllDatabases()
	r, err := t.flags.Resolve()
	if err != nil {
		return err
	}
	t.name, t.line = cmp.Or(of.Name, r.Name()), r.Line()
	return nil
}

// openTargets connects to each target. It returns an error only for flags that are wrong,
// or at the end of ctx: a target that does not answer may do so later.
func (e *export) openTargets(ctx context.Context) error {
	for _, t := range e.targets {
		p := e.prompt()
		p.Note = nil // a server that loads its data does not delay the other targets
		err := t.connect(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f, ok := errors.AsType[*connect.Error](err); ok && f.Usage {
			return err
		}
		e.report(t, err)
	}
	return nil
}

// connect connects to the target and starts to watch it.
func (t *exportTarget) connect(ctx context.Context, p connect.Prompt) error {
	open, err := t.session.Open(ctx, t.flags, p)
	if err != nil {
		return err
	}
	t.selection.scan.Meter = &t.meter
	t.open, t.source = open, t.selection.selected(t.selection.watchOf(open, t.selection.optionsOf(open)))
	return nil
}

// report notes when a target stops to answer, and when it answers again. err is why it
// does not answer, or nil.
func (e *export) report(t *exportTarget, err error) {
	switch {
	case err != nil:
		e.metrics.Fail(t.index, downReason(err))
		if t.lost.IsZero() {
			t.lost = cmp.Or(t.answered, time.Now())
			e.notes.note("%s cannot be read: %v; trying again until it can", t.name, err)
		}
	case !t.lost.IsZero():
		e.notes.note("%s answers after %s", t.name, humanize.Duration(time.Since(t.lost)))
		t.lost = time.Time{}
	}
}

// watch updates the metrics of a target until ctx ends.
func (e *export) watch(ctx context.Context, t *exportTarget) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		snap, err := e.read(ctx, t)
		if ctx.Err() == nil {
			e.report(t, err)
		}
		if err != nil {
			timer.Reset(e.options.every)
			continue
		}
		read := time.Now()
		e.observe(t, snap)
		worked := snap.Cost.OwnTime + time.Since(read)
		// Updates begin every `every`. They are rarer only if they would take more than 1/updateShare of a core, and never by
		// more than maxPause: a machine that stops for a minute is not at work for a minute.
		timer.Reset(max(e.options.every-time.Since(began), min(updateShare*worked, maxPause), 0))
	}
}

// Limits of the updates of a target: one of 100,000 locks takes about 0.1 s of work. It
// takes no time of the server, which the watching reads independently of updates.
const (
	updateShare = 20
	maxPause    = 15 * time.Second
)

// Values of GOGC. An export runs for months beside other programs, and allocates little
// once the first scan has ended. With 200,000 locks, the screen takes 630 MB at 100 and
// 465 MB at 30. An explain of 24 hours takes 15 % less time at 200 than at 100, and 270 MB for 190 MB.
const (
	exportGCPercent  = 20
	screenGCPercent  = 30
	explainGCPercent = 200
)

// collectAt sets GOGC unless the user has set it, and returns a function that restores it.
func collectAt(percent int) (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}

// read returns the next snapshot of a target. It waits for a server as long as the
// timeout of the target permits.
func (e *export) read(ctx context.Context, t *exportTarget) (keyspace.Snapshot, error) {
	if t.open == nil {
		if err := t.connect(ctx, connect.Prompt{In: e.in, Out: e.notes.to}); err != nil {
			return keyspace.Snapshot{}, err
		}
	}
	return t.source.Snapshot(ctx)
}

// observe updates the metrics of a target and its recording.
func (e *export) observe(t *exportTarget, snap keyspace.Snapshot) {
	t.answered = answeredAt(snap)
	db := t.open.DB
	if t.selection.databases {
		db = metrics.AllDatabases
	}
	used := t.meter.Usage()
	e.metrics.Observe(t.index, metrics.Reading{Snapshot: snap, DB: db, Commands: used.Commands, ServerTime: used.ServerTime})
	if t.recording != nil {
		if snap.Scanned() && unreachable(snap.Nodes) == "" {
			t.recording.Past().Forget()
		}
		t.recording.Add(snap) // a full state takes long, but there are few
		e.metrics.ObserveRecording(t.index, t.recording.Err() == nil)
	}
}

// close closes the targets.
func (e *export) close() {
	for _, t := range e.targets {
		if t.open != nil {
			t.open.Close()
		}
	}
}
