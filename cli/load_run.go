package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/agents"
	"locktop/loadgen/oracle"
	"locktop/loadgen/report"
	"locktop/tui/widget"
)

// runner is a run in this process, or a load by agents.
type runner interface {
	Scenario() loadgen.Scenario
	Metrics() loadgen.Metrics
	Start() error
	Stop() error
	Close() error
	Done() <-chan struct{}
}

// variant is one run of a load. A load that compares locks has several.
type variant struct {
	run     runner
	seconds report.SecondsRecorder
	history oracle.History // empty with agents
	files   *openFiles
	agents  *agents.Load // nil: the clients run in this process
	stopErr error
}

// runVariants runs all variants at the same time, until they end or ctx ends, and reports.
func (p *program) runVariants(ctx context.Context, on *loadServers, o *loadOptions, scenarios []loadgen.Scenario) error {
	var variants []*variant
	defer func() {
		for _, s := range variants {
			_ = s.run.Close()
		}
	}()
	for i, scenario := range scenarios {
		s, err := o.openVariant(on, scenario, i)
		if err != nil {
			return err
		}
		variants = append(variants, s)
	}
	p.announce(on, variants[0].run.Scenario())
	return p.drive(ctx, o, variants)
}

// drive starts the variants, waits until they end or ctx ends, and reports.
func (p *program) drive(ctx context.Context, o *loadOptions, variants []*variant) error {
	for _, s := range variants {
		if err := s.run.Start(); err != nil {
			return err
		}
	}
	p.await(ctx, variants)
	return p.report(ctx, o, variants)
}

// openVariant creates a variant: a run with its files and its history.
func (o *loadOptions) openVariant(on *loadServers, scenario loadgen.Scenario, number int) (*variant, error) {
	run, err := loadgen.New(on.Servers, scenario)
	if err != nil {
		return nil, usageErrorf("", "%v", strings.TrimPrefix(err.Error(), "scenario: "))
	}
	s := &variant{run: run}
	run.Record(&s.history)
	s.files, err = o.files.open(number)
	if err != nil {
		return nil, err
	}
	if tell := s.files.listener(); tell != nil {
		run.Listen(tell)
	}
	return s, nil
}

// announce tells which run begins.
func (p *program) announce(on *loadServers, s loadgen.Scenario) {
	end := "until it is interrupted"
	if s.Duration > 0 {
		end = "for " + humanize.Setting(s.Duration)
	}
	p.notes.note("%s on %s, %s, keys %s*, seed %d", s.Lock, on.title, end, s.Keys.Prefix, s.Seed)
	if s.Watch != "" {
		p.notes.note("watch: %s", s.Watch)
	}
}

// await shows progress until all runs end or ctx ends, and stops them.
func (p *program) await(ctx context.Context, variants []*variant) {
	defer func() {
		for _, s := range variants {
			s.stopErr = s.run.Stop()
			s.seconds.Add(s.run.Metrics())
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	line := p.newProgressLine()
	line.live = line.live && len(variants) == 1
	defer line.clear()
	for _, s := range variants {
		for over := s.run.Done(); over != nil; {
			select {
			case <-over:
				over = nil
			case <-ctx.Done():
				return
			case <-tick.C:
				for _, each := range variants {
					m := each.run.Metrics()
					if m.Began.IsZero() {
						continue // agents get ready
					}
					each.seconds.Add(m)
					line.show(loadProgress(len(variants) > 1, each.run.Scenario(), m))
				}
			}
		}
	}
}

// loadProgress describes the state of a run; compared names its lock.
func loadProgress(compared bool, s loadgen.Scenario, m loadgen.Metrics) string {
	rate := int64(0)
	if n := len(m.Seconds); n > 1 {
		rate = m.Seconds[n-2].Acquired
	}
	var text strings.Builder
	if compared {
		fmt.Fprintf(&text, "%s: ", s.Lock)
	}
	fmt.Fprintf(&text, "%s, %s, %s/s, wait p50 %s p99 %s, %s holding, %s waiting, %s",
		humanize.Duration(m.Elapsed), humanize.Plural(m.Clients.Total, "client"), humanize.Count(rate), humanize.Precise(m.Latency.Wait.P50), humanize.Precise(m.Latency.Wait.P99),
		humanize.Count(m.Clients.Holding), humanize.Count(m.Clients.Waiting), humanize.Plural(m.Violations.Overlap.Count, "overlap"))
	if m.Errors > 0 {
		fmt.Fprintf(&text, ", %s", humanize.Plural(m.Errors, "error"))
	}
	return text.String()
}

// result returns the outcome of a run that is over.
func (s *variant) result(earlier *report.Baseline) report.Result {
	proof := s.history.Prove()
	r := report.Result{Scenario: s.run.Scenario(), Metrics: s.run.Metrics(), Seconds: s.seconds.Seconds(), Proof: &proof, Baseline: earlier}
	if s.stopErr != nil {
		r.Unclean = s.stopErr.Error()
	}
	if s.agents != nil {
		r.Witness, r.Gaps, r.Agents = s.agents.Witness(), s.agents.Incomplete(), s.agents.Agents()
	}
	return r
}

// report prints the results of the runs. Its error has the exit code.
func (p *program) report(ctx context.Context, o *loadOptions, variants []*variant) error {
	var faults []error
	var results []report.Result
	for _, s := range variants {
		r := s.result(o.baseline)
		faults = append(faults, verdictError(r), p.printed("the report", o.json, r, func(w io.Writer) error { return r.WriteText(w, widget.Plain) }), s.files.finish(r))
		results = append(results, r)
	}
	if len(results) > 1 && !o.json {
		if err := report.WriteComparison(p.out, results); err != nil {
			faults = append(faults, fmt.Errorf("print the report: %w", err))
		}
	}
	endless := variants[0].run.Scenario().Duration == 0
	if ctx.Err() != nil {
		faults = append(faults, ctx.Err())
	}
	return mostSevere(faults, endless)
}

// verdictError returns the exitError for a run, or nil.
func verdictError(r report.Result) error {
	v := r.Verdict()
	switch {
	case r.Metrics.Acquired == 0:
		return noLockAcquired(r.Metrics)
	case !v.Safe && !v.Doubtful:
		return &exitError{code: exitUnsafe, err: fmt.Errorf("safety violated by %s: %s", widget.Plain(r.Lock()), v.Text())}
	case len(v.Missed) > 0:
		return &exitError{code: exitThreshold, err: fmt.Errorf("threshold missed: %s", strings.Join(v.Missed, "; "))}
	case len(v.Gaps) > 0:
		return &exitError{code: exitThreshold, err: fmt.Errorf("the run is inconclusive: %s", widget.Plain(strings.Join(v.Gaps, " ")))}
	}
	return nil
}

// noLockAcquired returns the exitError for a run in which no client acquired a lock.
func noLockAcquired(m loadgen.Metrics) error {
	f := &exitError{code: exitFailure, err: fmt.Errorf("no client acquired a lock in %s", humanize.Plural(m.Arrivals, "attempt"))}
	if m.LastErr != "" {
		f.err = fmt.Errorf("%w: %s", f.err, widget.Plain(m.LastErr))
	}
	if strings.Contains(m.LastErr, "MOVED ") {
		f.hint = "the server is a node of a cluster: --cluster loads all of it"
	}
	return f
}

// mostSevere returns the most severe error: a violation, then a failed write, then an
// interrupt, then a run without a lock, then a missed threshold. If endless, a
// threshold is more severe than an interrupt, which ends every such run.
func mostSevere(faults []error, endless bool) error {
	weight := func(err error) int {
		var f *exitError
		switch known := errors.As(err, &f); {
		case err == nil:
			return 0
		case known && f.code == exitUnsafe:
			return 6
		case known && f.code == exitThreshold && endless:
			return 4
		case known && f.code == exitThreshold:
			return 1
		case known: // no client acquired a lock
			return 2
		case errors.Is(err, context.Canceled):
			return 3
		}
		return 5
	}
	var found error
	for _, err := range faults {
		if weight(err) > weight(found) {
			found = err
		}
	}
	return found
}

// outputFiles has the names of the files that a load writes.
type outputFiles struct{ events, csv, html string }

func (o *outputFiles) addTo(set *pflag.FlagSet) {
	set.StringVar(&o.events, "events", "", "`file` for all events, one JSON object per line")
	set.StringVar(&o.html, "html", "", "`file` for the report as one page with charts")
	set.StringVar(&o.csv, "csv", "", "`file` for the figures of each second")
}

// openFiles has the open files of one variant; nil: no file.
type openFiles struct {
	events, csv, html *os.File

	lines  *bufio.Writer // into events
	failed error         // first error of a write
}

// open creates the files of a variant. From the second variant on, the names have
// the variant's number. Errors appear here, before the run.
func (o outputFiles) open(side int) (*openFiles, error) {
	f := &openFiles{}
	for _, out := range []struct {
		name string
		file **os.File
	}{{o.events, &f.events}, {o.csv, &f.csv}, {o.html, &f.html}} {
		if out.name == "" {
			continue
		}
		// Only the owner may read the file, because it may contain tokens.
		file, err := os.OpenFile(numbered(out.name, side), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("write the outcome: %w", err)
		}
		*out.file = file
	}
	if f.events != nil {
		f.lines = bufio.NewWriter(f.events)
	}
	return f, nil
}

// numbered inserts the number of a variant before the extension.
func numbered(name string, side int) string {
	if side == 0 {
		return name
	}
	ext := filepath.Ext(name)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), side+1, ext)
}

// listener returns a function that writes events, or nil if no file needs them.
func (f *openFiles) listener() func(loadgen.Event) {
	if f.lines == nil {
		return nil
	}
	return func(e loadgen.Event) {
		if f.failed == nil {
			f.failed = render.JSON(f.lines, e)
		}
	}
}

// finish writes the remaining files and closes all.
func (f *openFiles) finish(r report.Result) error {
	errs := []error{f.failed}
	for _, out := range []struct {
		file  *os.File
		write func(io.Writer) error
	}{
		{f.events, func(io.Writer) error { return f.lines.Flush() }},
		{f.csv, r.WriteCSV},
		{f.html, r.WriteHTML},
	} {
		if out.file != nil {
			errs = append(errs, out.write(out.file), out.file.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the outcome: %w", err)
	}
	return nil
}
