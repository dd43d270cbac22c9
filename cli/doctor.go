package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui"
	"locktop/tui/widget"
)

// doctorOptions configures a run of doctor.
type doctorOptions struct {
	json     bool
	duration time.Duration
}

func (o *doctorOptions) flags() *pflag.FlagSet {
	set := flagSection("Output")
	set.BoolVar(&o.json, "json", false, "print one JSON document; errors are JSON, too")
	set.DurationVar(&o.duration, "for", 3*time.Second, "`time` to observe the server after the first scan; some problems need a while to show")
	return set
}

func (p *program) doctorCommand() *cobra.Command {
	var o doctorOptions
	return p.readCommand(&cobra.Command{
		Use:   "doctor [flags]",
		Short: "Diagnose problems and blind spots",
		Long: `Observes the server for a while and reports findings about single locks, risks for
all locks, missing permissions of this user, and blind spots with their reasons.
The exit code is 3 if there is a finding. A server that does not answer is one, and so
are keys that this user may not read although they may be locks.

The findings:
` + meanings(keyspace.FindingProblems()),
		Example: `  locktop doctor
  locktop doctor --for 1m --json | jq '.findings[].id'`,
		Args: noArguments,
	}, func() error { return checkFor(o.duration) }, func(ctx context.Context, r *reading, _ []string) error {
		return p.doctor(ctx, r.target, &r.selection, o)
	}, o.flags())
}

func (p output) doctor(ctx context.Context, t *connect.Target, s *selection, o doctorOptions) error {
	snap, err := observed(ctx, s.watchOf(t, s.optionsOf(t)), o.duration)
	if err != nil && (ctx.Err() != nil || len(snap.Nodes) < 2) {
		return scanFailed(fmt.Errorf("read %s: %w", t.Title, err))
	}
	d := diagnosisOf(t.Title, s.filter(snap), snap)
	if err := p.printed("the diagnosis", o.json, d.json(), func(w io.Writer) error { return d.write(w, isTerminal(w) && os.Getenv("NO_COLOR") == "") }); err != nil {
		return err
	}
	if n := d.wrong(); n > 0 {
		text := humanize.Plural(n, "finding")
		if m := unreachable(snap.Nodes); m != "" {
			text += "; " + m
		}
		return &exitError{code: exitFindings, err: errors.New(text)}
	}
	if !snap.Complete {
		return incomplete(snap)
	}
	return nil
}

// observed takes snapshots until a scan has passed through the whole keyspace, and from then
// on for at least the time atLeast, on the server's clock. It returns the last snapshot. During
// atLeast it ignores errors, because a server may answer later.
func observed(ctx context.Context, source tui.Source, atLeast time.Duration) (keyspace.Snapshot, error) {
	began := time.Now()
	var first time.Time // after the scan
	for {
		snap, err := source.Snapshot(ctx)
		if ctx.Err() != nil {
			return snap, ctx.Err()
		}
		switch {
		case err != nil:
			if time.Since(began) >= atLeast {
				return snap, err
			}
		case snap.Scanned():
			first = cmp.Or(first, snap.At)
			if snap.At.Sub(first).Abs() >= atLeast { // a clock may be set back
				return snap, nil
			}
		}
		select {
		case <-ctx.Done():
			return snap, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// diagnosis is the result of doctor.
type diagnosis struct {
	title       string
	snap        keyspace.Snapshot
	findings    []keyspace.Finding // about single locks
	risks       []keyspace.Finding // about the servers
	limitations []string           // what locktop cannot see, and why, besides the problems of snap

	databases bool // the locks are in more than one database
}

func diagnosisOf(title string, found render.View, snap keyspace.Snapshot) diagnosis {
	d := diagnosis{title: title, snap: snap, risks: keyspace.ServerFindings(snap), databases: found.Databases}
	for _, l := range found.Locks {
		d.findings = append(d.findings, found.Findings[l.ID()]...)
	}
	slices.SortStableFunc(d.findings, func(a, b keyspace.Finding) int { return int(b.Severity) - int(a.Severity) })
	d.limitations = slices.Clip(snap.Watch.Limitations)
	if slices.ContainsFunc(snap.Nodes, hasHotKeys) {
		d.limitations = append(d.limitations, "how many clients ask for a lock that stores no waiters: locktop sees whether one does, and does not use the HOTKEYS of this server")
	}
	d.limitations = append(d.limitations,
		"changes of one lock that follow each other within a few milliseconds: only what comes of them is seen",
		"what an application does without Redis: a holder that hangs looks like one that works")
	return d
}

// wrong returns the number of findings that call for an action.
func (d diagnosis) wrong() int {
	n := 0
	for _, f := range slices.Concat(d.findings, d.risks) {
		if f.Severity > keyspace.Info {
			n++
		}
	}
	return n
}

// write prints the diagnosis for people.
func (d diagnosis) write(w io.Writer, coloured bool) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", widget.Plain(d.title), humanize.Plural(len(d.snap.Locks), "lock"))
	for _, n := range d.snap.Nodes {
		fmt.Fprintf(&out, "  %s\n", nodeLine(n))
	}
	lag := ""
	if d.snap.Watch.Lag > 0 {
		lag = ", at most " + humanize.Precise(d.snap.Watch.Lag) + " behind"
	}
	fmt.Fprintf(&out, "  updates: %s%s\n", d.snap.Watch.Mode, lag)
	for _, line := range requestLines(d.snap.Nodes) {
		fmt.Fprintf(&out, "  requests for held locks: %s\n", widget.Plain(line))
	}
	nothing, noRisks := "nothing is wrong with them", "no server-wide risks"
	if !d.snap.Complete {
		nothing = "nothing is wrong with those that were read; others may be missing"
	}
	writeHeading(&out, "Locks", len(d.findings) == 0, nothing)
	for _, group := range grouped(d.findings) {
		d.writeGroup(&out, group)
	}
	if slices.ContainsFunc(d.snap.Nodes, func(n keyspace.Node) bool { return n.Up && n.Version == "" }) {
		noRisks = "the risks for the server are not known: INFO cannot be read"
	}
	writeHeading(&out, "Server", len(d.risks) == 0, noRisks)
	for _, f := range d.risks {
		fmt.Fprintf(&out, "  %s: %s\n    %s\n    %s\n", f.Severity, f.ID, widget.Plain(f.Text), render.Remedy(f))
	}
	writeHeading(&out, "What cannot be seen", false, "")
	for _, b := range slices.Concat(d.snap.Problems, d.limitations) {
		fmt.Fprintf(&out, "  %s\n", widget.Plain(b))
	}
	writeHeading(&out, "Your terminal", false, "")
	out.WriteString(terminalTest(coloured))
	return render.Written(w, out.String())
}

// maxExamples is the number of findings per kind that doctor prints for people.
// JSON has all of them.
const maxExamples = 5

// grouped groups findings by their problem, in the order of their first finding.
func grouped(all []keyspace.Finding) [][]keyspace.Finding {
	var groups [][]keyspace.Finding
	for _, f := range all {
		i := slices.IndexFunc(groups, func(g []keyspace.Finding) bool { return g[0].Problem == f.Problem })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// writeGroup prints findings of one problem: their number, the first of them, and the remedy.
func (d diagnosis) writeGroup(out *strings.Builder, group []keyspace.Finding) {
	first := group[0]
	fmt.Fprintf(out, "  %s: %s: %s\n", first.Severity, first.ID, humanize.Plural(len(group), "lock"))
	for _, f := range group[:min(len(group), maxExamples)] {
		fmt.Fprintf(out, "    %s: %s\n", render.LockName(f.Lock, d.databases), widget.Plain(f.Text))
	}
	if more := len(group) - maxExamples; more > 0 {
		fmt.Fprintf(out, "    and %s more: locktop list --stuck, or locktop doctor --json\n", humanize.Count(more))
	}
	fmt.Fprintf(out, "    %s\n", render.Remedy(first))
}

func writeHeading(out *strings.Builder, title string, empty bool, nothing string) {
	fmt.Fprintf(out, "\n%s\n", title)
	if empty {
		fmt.Fprintf(out, "  %s\n", nothing)
	}
}

// nodeLine describes the state of a server in one line.
func nodeLine(n keyspace.Node) string {
	if !n.Up {
		return fmt.Sprintf("%s cannot be read: %s", n.Addr, widget.Plain(n.Error))
	}
	keys := "keys not counted"
	if n.KeysKnown() {
		keys = humanize.Plural(n.Keys, "key")
	}
	times := ""
	if n.Ping > 0 {
		times = ", answers in " + humanize.Precise(n.Ping) + ", its clock " + skew(n.Skew, n.Ping)
	}
	return fmt.Sprintf("%s: %s, %s, %s, %s%s",
		n.Addr, widget.Plain(cmp.Or(n.Software(), "version not known")), widget.Plain(cmp.Or(n.Role, "role not known")), keys, humanize.Plural(n.Locks, "lock"), times)
}

// skew describes the difference between a server's clock and this machine's clock. It is not known better than the
// round-trip time.
func skew(d, roundTrip time.Duration) string {
	switch d = d.Round(time.Millisecond); {
	case d != 0 && d.Abs() <= roundTrip:
		return "agrees with ours within " + humanize.Precise(roundTrip)
	case d < 0:
		return "is " + humanize.Duration(-d) + " behind ours"
	case d > 0:
		return "is " + humanize.Duration(d) + " ahead of ours"
	}
	return "agrees with ours"
}

// requestLines says for which servers locktop sees whether another client asks for a held lock.
func requestLines(nodes []keyspace.Node) (lines []string) {
	seen := false
	for _, n := range nodes {
		switch {
		case n.Up && n.AskBlind != "":
			lines = append(lines, fmt.Sprintf("not seen on %s: %s", n.Addr, n.AskBlind))
		case n.Up:
			seen = true
		}
	}
	if seen {
		lines = append([]string{"seen, as yes or no within the last second"}, lines...)
	}
	return lines
}

// hasHotKeys reports whether a server has the command HOTKEYS: Redis 8.6 and later.
func hasHotKeys(n keyspace.Node) bool {
	var major, minor int
	_, _ = fmt.Sscanf(n.Version, "%d.%d", &major, &minor)
	return n.Product == "redis" && (major > 8 || major == 8 && minor >= 6)
}

// terminalTest returns the symbols and colours of the screen, so that people see
// whether their terminal shows them.
func terminalTest(coloured bool) string {
	var out strings.Builder
	out.WriteString("  blocks   ▏▎▍▌▋▊▉█ ▁▂▃▄▅▆▇█ ░▒▓\n  lines    ─│┌┐└┘├┤ ▲▼●○◌╳┄\n  wide     日本 é ñ\n")
	if !coloured {
		return out.String() + "  colours  off\n"
	}
	out.WriteString("  colours ")
	terminal := lipgloss.NewRenderer(&out)
	terminal.SetColorProfile(termenv.ANSI)
	for i, name := range []string{"red", "green", "yellow", "blue", "magenta", "cyan"} {
		out.WriteString(" " + terminal.NewStyle().Foreground(lipgloss.ANSIColor(i+1)).Render(name))
	}
	out.WriteString("\n")
	return out.String()
}

// jsonDiagnosis is the output of `doctor --json`.
type jsonDiagnosis struct {
	render.Head
	render.Servers
	LockCount   int                   `json:"lock_count"`
	Watch       jsonWatch             `json:"watch"`
	Findings    []render.KeyedFinding `json:"findings"`
	Limitations []string              `json:"limitations"`
}

// jsonWatch says how changes are detected.
type jsonWatch struct {
	Mode  keyspace.WatchMode `json:"mode,omitzero"`
	LagMS int64              `json:"lag_ms,omitzero"`
}

func (d diagnosis) json() jsonDiagnosis {
	return jsonDiagnosis{
		render.HeadOf(d.snap), render.ServersOf(d.snap), len(d.snap.Locks), jsonWatch{d.snap.Watch.Mode, d.snap.Watch.Lag.Milliseconds()},
		render.Each(slices.Concat(d.findings, d.risks), render.KeyedFindingOf), render.Each(d.limitations, render.Text),
	}
}
