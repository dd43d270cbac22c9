package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"locktop/cli/connect"
	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/report"
	"locktop/loadgen/scenarios"
	"locktop/tui/widget"
)

// checkSuite returns an error for flags that do not go with a suite.
func (o *loadOptions) checkSuite() error {
	switch {
	case !o.suite && o.repeat != 1:
		return usageErrorf("", "--repeat goes with --suite")
	case o.repeat < 1:
		return usageErrorf("", "--repeat must be 1 or more, not %d", o.repeat)
	case o.suite && o.exec != "" && o.set.Changed("kind"):
		return usageErrorf("", "--exec and --kind exclude each other")
	case o.suite && (o.control != "" || o.versus != "" || o.baselines != nil || o.files.csv != "" || o.files.events != ""):
		return usageErrorf("", "--suite takes no --control, --versus, --baseline, --csv or --events")
	}
	return nil
}

// suiteRows returns the rows of the suite, or the one with a name.
func suiteRows(args []string) ([]loadgen.Scenario, error) {
	all := scenarios.Suite()
	if len(args) == 0 {
		return all, nil
	}
	var names []string
	for _, row := range all {
		if row.Name == args[0] {
			return []loadgen.Scenario{row}, nil
		}
		names = append(names, row.Name)
	}
	return nil, usageErrorf("there are "+strings.Join(names, ", "), "the suite has no row called %q", args[0])
}

// runSuite runs the rows of the suite one after another, and reports.
func (p *program) runSuite(ctx context.Context, c *connect.Flags, o *loadOptions, args []string) error {
	rows, err := suiteRows(args)
	if err != nil {
		return err
	}
	first, err := o.changed(loadgen.Scenario{})
	if err != nil {
		return err
	}
	on, err := p.openLoadServers(ctx, c, o, first)
	if err != nil {
		return err
	}
	defer on.close()
	files, err := o.files.open(0)
	if err != nil {
		return err
	}
	doc, faults := report.Suite{Lock: first.Lock.String()}, []error(nil)
	if o.exec == "" && !o.set.Changed("kind") {
		doc.Lock = "the kinds of locktop"
	}
	for _, row := range rows {
		result, err := p.suiteRow(ctx, on, o, row)
		if ctx.Err() != nil {
			faults = append(faults, ctx.Err())
			break
		}
		if code := (*exitError)(nil); err != nil && !errors.As(err, &code) {
			return err
		}
		if result.Report != nil {
			doc.Lock = map[bool]string{true: doc.Lock, false: result.Report.Lock()}[o.exec == ""]
		}
		p.notes.note("%s: %s", result.Name, result.Result)
		doc.Rows, faults = append(doc.Rows, result), append(faults, err)
	}
	faults = append(faults, p.printed("the suite", o.json, doc, func(w io.Writer) error { return doc.WriteText(w, widget.Plain) }))
	if files.html != nil {
		faults = append(faults, doc.WriteHTML(files.html), files.html.Close())
	}
	return mostSevere(faults, false)
}

// suiteRow runs a row with one seed or several, and returns the worst outcome. Its error, unless it is an
// [exitError], means that the client does not work at all.
func (p *program) suiteRow(ctx context.Context, on *loadServers, o *loadOptions, row loadgen.Scenario) (report.Row, error) {
	worst := report.Row{Name: row.Name, Result: report.NotJudged}
	s, err := o.changed(row.WithClient(o.exec))
	if err == nil {
		err = s.Validate()
	}
	if err == nil {
		err = on.checkPrefix(ctx, s, o.force)
	}
	if err != nil {
		worst.Why = err.Error()
		return worst, nil
	}
	var fault error
	for i := range o.repeat {
		seeded := s
		if s.Seed > 0 {
			seeded.Seed += uint64(i)
		}
		r, why, err := p.runRow(ctx, on, o, seeded)
		switch {
		case why != "":
			worst.Why = why
			return worst, nil
		case err != nil || ctx.Err() != nil:
			return worst, err
		}
		result, err := judgeRow(r)
		result.Name = row.Name
		if o.repeat > 1 {
			p.notes.note("%s: run %d of %d: %s", row.Name, i+1, o.repeat, result.Result)
		}
		if i == 0 || err != nil && mostSevere([]error{fault, err}, false) == err {
			worst, fault = result, err
		}
		if worst.Result == report.Fail {
			break
		}
	}
	return worst, fault
}

// runRow runs a row once. why says why that is impossible for the lock or its servers.
func (p *program) runRow(ctx context.Context, on *loadServers, o *loadOptions, s loadgen.Scenario) (r report.Result, why string, err error) {
	filed := *o
	filed.files = outputFiles{}
	v, err := filed.openVariant(on, s, 0)
	if err != nil {
		return r, err.Error(), nil
	}
	defer v.run.Close()
	if err := v.run.Start(); errors.Is(err, loadgen.ErrNotOffered) {
		return r, strings.TrimPrefix(err.Error(), "start the load: "), nil
	} else if err != nil {
		return r, "", err
	}
	quiet := *p
	if !isTerminal(p.notes.to) {
		quiet.notes = messages{to: io.Discard} // one line for each row is enough
	}
	quiet.await(ctx, []*variant{v})
	return v.result(nil), "", nil
}

// judgeRow returns the outcome of a run, and its error with the exit code.
func judgeRow(r report.Result) (report.Row, error) {
	v, row := r.Verdict(), report.Row{Result: report.Pass, Why: humanize.Plural(r.Metrics.Acquired, "hold"), Report: &r}
	struck, why := len(r.Metrics.Faults) == 0, ""
	for _, f := range r.Metrics.Faults {
		struck, why = struck || f.Struck > 0, f.Why
	}
	err := verdictError(r)
	if err == nil && r.Metrics.Violations.Broken() > 0 { // a historic form is not expected to keep its promise
		err = &exitError{code: exitUnsafe, err: fmt.Errorf("safety violated by %s: %s", widget.Plain(r.Lock()), v.Text())}
	}
	seed := fmt.Sprintf(" (--seed %d)", r.Scenario.Seed)
	switch code := (*exitError)(nil); {
	case err != nil && r.Metrics.Acquired == 0 && r.Metrics.Violations.Broken() == 0 && (r.Metrics.Errors == 0 || strings.Contains(r.Metrics.LastErr, loadgen.ErrNoHello.Error())):
		row.Result, row.Why = report.NotJudged, err.Error() // the clients got no CPU time
		err = &exitError{code: exitThreshold, err: err}
	case err == nil && r.Metrics.Acquired < 2:
		row.Result, row.Why = report.NotJudged, "one hold shows no exclusion"
	case err == nil && !struck:
		row.Result, row.Why = report.NotJudged, "its fault never struck: "+why
	case err == nil:
	case errors.As(err, &code) && code.code == exitThreshold && len(v.Missed) == 0:
		row.Result, row.Why = report.NotJudged, strings.Join(v.Gaps, " ")
	case errors.As(err, &code) && code.code == exitUnsafe:
		row.Result, row.Why = report.Fail, broken(r)+seed
	default:
		row.Result, row.Why = report.Fail, err.Error()+seed
	}
	return row, err
}

// broken returns the promises that a run broke, in words.
func broken(r report.Result) string {
	var all []string
	for _, k := range oracle.Kinds() {
		if t := k.Of(&r.Metrics.Violations); k.Severity == oracle.Broken && t.Count > t.Excused {
			all = append(all, k.Sentence(t.Count-t.Excused, r.Scenario.Lock.TooMany()))
		}
	}
	return cmp.Or(strings.Join(all, "; "), r.Verdict().Text())
}
