package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/witness"
	"locktop/tui/widget"
)

// agentsState is what the screen knows of a load by agents.
type agentsState struct {
	all        []loadgen.AgentState // by number
	incomplete []string             // reasons why the figures are not complete
	witness    *witness.Results     // nil: there is none
}

// refuses returns why the load cannot run a scenario, "" if it can.
func (f *loadState) refuses(s loadgen.Scenario) string {
	if f.load == nil {
		return ""
	}
	if err := f.load.Check(s); err != nil {
		return widget.Plain(strings.TrimPrefix(err.Error(), "scenario: "))
	}
	return ""
}

// awaitsAgents reports whether a start waits for agents.
func (f *loadState) awaitsAgents() bool {
	return (f.launching || f.changing) && slices.ContainsFunc(f.agents.all, func(a loadgen.AgentState) bool { return !a.Ready })
}

// arrivals says how many agents have come.
func (f *loadState) arrivals() string {
	n := count(f.agents.all, func(a *loadgen.AgentState) bool { return a.Ready })
	came := cmp.Or(map[int]string{0: "none is", 1: "1 is"}[n], humanize.Count(n)+" are")
	return fmt.Sprintf("waiting for %s: %s there", humanize.Plural(len(f.agents.all), "agent"), came)
}

// clientCount returns the number of clients, without those of lost agents.
func (f *loadState) clientCount() string {
	lost := 0
	for _, a := range f.agents.all {
		if a.Lost {
			lost += cmp.Or(a.Metrics.Clients.Total, a.Clients)
		}
	}
	if lost == 0 {
		return humanize.Plural(f.scenario.Clients, "client")
	}
	return fmt.Sprintf("%s of %s", humanize.Count(max(0, f.scenario.Clients-lost)), humanize.Plural(f.scenario.Clients, "client"))
}

// phase is what an agent does.
type phase int

// Phases, those that need attention first.
const (
	lostAgent phase = iota
	awaitedAgent
	stoppedAgent
	readyAgent
	runningAgent
)

func (p phase) String() string {
	return [...]string{"lost", "awaited", "stopped", "ready", "running"}[p]
}

func phaseOf(a loadgen.AgentState) phase {
	switch {
	case a.Lost:
		return lostAgent
	case !a.Ready:
		return awaitedAgent
	case a.Stopped:
		return stoppedAgent
	case a.Metrics.Began.IsZero():
		return readyAgent
	}
	return runningAgent
}

// phaseCounts counts the agents in each phase, like "3 running, 1 lost".
func phaseCounts(all []loadgen.AgentState) string {
	counts := map[phase]int{}
	for _, a := range all {
		counts[phaseOf(a)]++
	}
	var parts []string
	for p := runningAgent; p >= lostAgent; p-- {
		if counts[p] > 0 {
			parts = append(parts, humanize.Count(counts[p])+" "+p.String())
		}
	}
	return strings.Join(parts, ", ")
}

// agentColumns are the columns of the agents after their names, each with its width.
var agentColumns = []struct {
	name  string
	width int
}{{"clients", 9}, {"holds/s", 9}, {"wait p99", 10}, {"clock", 11}, {"last seen", 11}}

// agentsBlock draws one line for each agent, at most rows of them, and what is known of all:
// the result of the witness, and why the figures are not complete.
func (p *loadPage) agentsBlock(s *state, w, rows int) []string {
	t, g, all := s.screen.theme, s.screen.glyphs, s.run.agents.all
	if len(all) == 0 {
		return nil
	}
	name := w - 3
	head := widget.NewLine(w).Pad(widget.Style{}, 1)
	for _, c := range agentColumns {
		name -= c.width
	}
	name = max(8, min(40, name-10))
	head.Put(t.dim, g.Fit("agents", name+2))
	for _, c := range agentColumns {
		head.Put(t.dim, g.FitRight(c.name, c.width))
	}
	lines := []string{head.Put(t.dim, "  state").String()}
	shown, rest := agentsToShow(all, rows)
	for _, a := range shown {
		lines = append(lines, p.agentLine(s, w, name, a))
	}
	if len(rest) > 0 {
		lines = append(lines, s.fitted(w, 3, t.dim, fmt.Sprintf("and %d more: %s", len(rest), phaseCounts(rest))))
	}
	if s.run.awaitsAgents() {
		lines = append(lines, s.fitted(w, 1, t.warn, s.run.arrivals()+s.keymap.named("; {start-stop} ends the wait")))
	}
	if r := s.run.agents.witness; r != nil { // it sees the clients of all agents
		st := t.text
		if s.provenOverlaps() > 0 {
			st = t.bad
		}
		l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.dim, "witness ")
		lines = append(lines, l.Put(st, g.FitEnd(s.redactLoad(r.String()), l.Rest()-1)).String())
	}
	return append(lines, s.incompleteLines(w)...)
}

// agentsToShow returns at most n agents by number, and the others. If there are more, those that
// need attention come first.
func agentsToShow(all []loadgen.AgentState, n int) (shown, rest []loadgen.AgentState) {
	if len(all) <= n {
		return all, nil
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b loadgen.AgentState) int { return cmp.Compare(phaseOf(a), phaseOf(b)) })
	shown, rest = sorted[:n-1], sorted[n-1:]
	slices.SortFunc(shown, func(a, b loadgen.AgentState) int { return cmp.Compare(a.Number, b.Number) })
	return shown, rest
}

func (p *loadPage) agentLine(s *state, w, name int, a loadgen.AgentState) string {
	t, g, m, now := s.screen.theme, s.screen.glyphs, a.Metrics, phaseOf(a)
	chosen := widget.Style{}
	if a.Number == p.agent {
		chosen = t.strong
	}
	number := fmt.Sprintf("%d ", a.Number)
	l := widget.NewLine(w).Put(t.key, s.cursor(a.Number == p.agent)).Put(t.key, number)
	if now == awaitedAgent {
		return l.Put(t.dim, "not there yet").String()
	}
	l.Put(chosen, g.Fit(s.redactLoad(a.Name), name+2-widget.Width(number)))
	clients, holds, wait, seen := cmp.Or(m.Clients.Total, a.Clients), "0", g.None, g.None
	if n := len(m.Seconds); n > 0 && now == runningAgent {
		holds = humanize.Count(m.Seconds[n-1].Acquired)
	}
	if m.Acquired > 0 {
		wait = humanize.Duration(m.Latency.Wait.P99)
	}
	if now != stoppedAgent {
		seen = humanize.Duration(a.Seen)
	}
	for i, text := range []string{humanize.Count(clients), holds, wait, a.Offset(), seen} {
		l.Put(t.text, g.FitRight(text, agentColumns[i].width))
	}
	st := map[phase]widget.Style{lostAgent: t.bad, stoppedAgent: t.dim, readyAgent: t.warn, runningAgent: t.good}[now]
	return l.Put(st, "  "+now.String()).String()
}

// provenOverlaps returns the number of overlaps that the witness has found, without those after a
// fault that deletes locks.
func (s *state) provenOverlaps() int64 {
	if r := s.run.agents.witness; r != nil {
		return r.Overlaps - r.Excused
	}
	return 0
}

// incompleteShown is the number of reasons shown for incomplete figures.
const incompleteShown = 2

// incompleteLines draws why the figures are not complete, the newest reasons last.
func (s *state) incompleteLines(w int) []string {
	reasons := s.run.agents.incomplete
	if r := s.run.agents.witness; r != nil && r.Err != nil {
		reasons = append(slices.Clone(reasons), fmt.Sprintf("The holds were not all judged: %v.", r.Err))
	} else if r != nil && r.Unseen > 0 {
		reasons = append(slices.Clone(reasons), fmt.Sprintf("The witness did not answer %s.", humanize.Times(r.Unseen)))
	}
	var all []string
	for _, why := range reasons[max(0, len(reasons)-incompleteShown):] {
		all = append(all, s.wrapped(w, 1, s.screen.theme.bad, s.redactLoad(why), 2)...)
	}
	return all
}
