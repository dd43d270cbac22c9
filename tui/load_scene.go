package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// tellExpiry says in the last line whose lease has expired, and who has its lock now.
func (s *state) tellExpiry(events []keyspace.Event) {
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == keyspace.Expired && len(e.Possible) == 0:
			s.expired = *e
		case e.Kind == keyspace.Acquired && e.Lock.ID() == s.expired.Lock.ID():
			if s.notice.until.IsZero() && s.run.scene < 0 {
				s.notify(fmt.Sprintf("The lease of %s on %s expired; %s has it now.", s.privacy.owner(s.expired.Holder.Name()), s.privacy.key(e.Lock.Key), s.privacy.owner(e.Holder.Name())))
			}
			s.expired = keyspace.Event{}
		}
	}
}

// folded reports whether the page shows the story of a scene instead of the form and the charts.
func (p *loadPage) folded(s *state) bool {
	return s.run.scene >= 0 && p.opened != s.run.scene+1 && len(s.run.agents.all) == 0
}

// sceneView draws a scene in h lines: what it shows, the figure to look for, who has the lock, the past of each
// client, what happened, and the verdict. Lanes and sentences take the lines that the others leave.
func (p *loadPage) sceneView(s *state, w, h int) []string {
	all := append(p.captionBlock(s, w, 3), p.keyLines(s, w, max(1, h/16))...)
	all = append(all, p.votesLine(s, w)...)
	below := p.comparedBlock(s, w)
	figures, errors := p.figureLines(s, w), 1
	if h < roomForAgents {
		figures, errors = figures[:min(len(figures), max(0, 1-len(below)))], 0
	}
	below = append(append(below, figures...), p.errorLines(s, w, errors)...)
	below = append(append(below, p.settingsLine(s, w)), p.verdictBlock(s, w)...)
	middle := h - len(all) - len(below)
	if s.run.scenario.Clients > lanesUpTo {
		all = append(all, p.rightColumn(s, w, middle-min(len(s.run.faultLog.lines)+1, middle/2))...)
	} else {
		all = append(all, p.lanesBlock(s, w, min(len(p.laneKeys(s))*(s.run.scenario.Clients+1)+1, middle-4))...)
	}
	all = append(all, s.faultLogBlock(w, h-len(all)-len(below))...)
	return append(filled(all, w, h-len(below)), below...)
}

// lanesUpTo is the greatest number of clients whose pasts say more than charts.
const lanesUpTo = 20

// lookFor draws what to look for. Each figure in it has its value.
func (p *loadPage) lookFor(s *state, w int) string {
	t, figures := s.screen.theme, s.run.metrics.Figures()
	l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.key, "look for: ")
	for words, figure := range loadgen.InText(widget.Plain(s.run.scenario.Watch)) {
		if l.Put(t.text, words); figure != "" {
			l.Put(t.strong, loadgen.Label(figure)+" "+figures.Text(figure))
		}
	}
	return l.String()
}

// settingsLine draws the settings of a scene in one line.
func (p *loadPage) settingsLine(s *state, w int) string {
	t, n := s.screen.theme, s.run.scenario
	words := []string{string(n.Lock.Kind), humanize.Plural(n.Clients, "client"), humanize.Plural(n.Keys.N, "key"), "lease " + humanize.Setting(n.Lock.TTL), "hold " + dist(n.Hold), "think " + dist(n.Think)}
	l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.dim, "settings ")
	key := s.keymap.named("{field-down} opens them")
	l.Put(t.text, s.screen.glyphs.FitEnd(strings.Join(words, " "+s.screen.glyphs.Between+" "), l.Rest()-len(key)-3))
	return l.Pad(widget.Style{}, 2).Put(t.dim, key).String()
}

// keyState draws who has a key of the load, and for how long.
func (s *state) keyState(l *widget.Line, n *lane, found *keyspace.Lock) {
	t, limit, sound := s.screen.theme, s.run.scenario.Lock.Limit(), s.run.scenario.Lock.Kind.Sound()
	holder, dead, readers := "", "", []string(nil)
	if n != nil {
		holder, dead, readers = n.holder(), n.deadHolder(), mapped(n.readers(), s.privacy.owner)
	}
	left, leased := time.Duration(0), false
	if found != nil {
		left, leased = found.TTL(s.clock())
	}
	if holder != "" && s.stateOf(holder) == loadgen.Dead { // during its acquire
		dead = holder
	}
	stored := ""
	if found != nil && len(found.Holders) > 0 {
		stored = found.Holders[0].Label
	}
	switch {
	case !sound || stored == "": // the stored token does not name its client
	case holder != "" && stored != holder:
		found = nil // older than the report of the client
	case holder == "" && stored != dead:
		dead = "" // newer
	}
	verb := map[bool]string{true: "written by ", false: "held by "}[s.run.scenario.Lock.Kind == loadgen.RW]
	switch {
	case !s.run.metrics.Running && s.run.metrics.Acquired > 0:
		l.Put(t.dim, "the clients have stopped, and their keys are deleted")
	case len(readers) > 0 && limit > 1:
		l.Put(t.text, "held by ").Put(t.strong, humanize.Plural(len(readers), "client")).Put(t.text, fmt.Sprintf(" of at most %d", limit))
	case len(readers) > 0:
		l.Put(t.text, "read by ").Put(t.strong, listed(readers, 3, len(readers)))
	case dead != "" && (found != nil || dead == holder):
		until := "without a TTL: locked for ever"
		if leased {
			until = "locked for " + humanize.Duration(left) + " more"
		}
		l.Put(t.bad, s.screen.glyphs.Dead+" "+s.privacy.owner(dead)+" is dead, "+until)
	case n != nil && holder == "" && !sound:
		l.Put(t.dim, "free") // a stored token that is left names no client
	case holder == "" && s.run.playsRedlock() && len(s.run.quorum)-len(s.run.faultLog.downNodes) < keyspace.Quorum(len(s.run.quorum)):
		l.Put(t.bad, "no majority of the servers is up: nobody can get it")
	case found != nil && len(found.Holders) > 0 && holder == "" && len(found.Votes) > 0 && found.HolderVotes() < keyspace.Quorum(len(found.Votes)):
		l.Put(t.strong, "nobody holds it").Put(t.text, fmt.Sprintf(": %s left over, %d needed", humanize.Plural(found.HolderVotes(), "vote"), keyspace.Quorum(len(found.Votes))))
	case found != nil && len(found.Holders) > 0:
		name := s.holders(found)
		if holder != "" && !sound { // the stored token does not name its client
			name = s.privacy.owner(holder)
		}
		l.Put(t.text, verb).Put(t.strong, name)
		if state := s.stateOf(holder); state == loadgen.Frozen || state == loadgen.Partitioned {
			l.Put(t.bad, ", which is "+state.String())
		}
		if leased {
			l.Put(t.text, "  TTL "+humanize.Duration(left))
		} else {
			l.Put(t.bad, "  no TTL")
		}
		if votes := found.HolderVotes(); votes > 0 {
			l.Put(t.text, fmt.Sprintf("  on %d of %d servers", votes, len(found.Votes)))
		}
	case holder != "":
		l.Put(t.text, verb).Put(t.strong, s.privacy.owner(holder))
	default:
		l.Put(t.dim, "free")
	}
}

// waitersOf says how many clients wait for a lock, and as what.
func (s *state) waitersOf(n *lane) string {
	if s.run.scenario.Lock.Kind != loadgen.RW {
		return humanize.Count(n.waiters()) + " waiting"
	}
	toRead, toWrite := 0, 0
	for w := range n.Waits {
		switch {
		case !w.Lasts():
		case s.timeline.reads[w.Waiter]:
			toRead++
		default:
			toWrite++
		}
	}
	return fmt.Sprintf("%d wait to write, %d to read", toWrite, toRead)
}

// deadHolder returns the client that has died as the last holder of the lock, "" if another client has it.
func (n *lane) deadHolder() string {
	if k := len(n.Holds) - 1; k >= 0 && n.holder() == "" && diedIn(n.Holds[k]) {
		return n.Holds[k].Holder.Name()
	}
	return ""
}

// diedIn reports whether a client of the load has ended a hold without a release.
func diedIn(h *holds.Hold) bool {
	return h.End.Kind == keyspace.Vanished && h.End.Proof == holds.ByReport
}

// stateOf returns what a client of the load does.
func (s *state) stateOf(client string) loadgen.ClientState {
	for i, state := range s.run.metrics.Clients.States {
		if client == oracle.ClientLabel(i+1) {
			return state
		}
	}
	return loadgen.Thinking
}

// votesLine draws the servers of a Redlock and their votes for its first key.
func (p *loadPage) votesLine(s *state, w int) []string {
	if !s.run.scenario.Lock.Kind.Quorum() || len(s.run.quorum) == 0 {
		return nil
	}
	t, g := s.screen.theme, s.screen.glyphs
	found := cmp.Or(s.loadLock(s.run.scenario.Keys.Prefix+"1"), new(keyspace.Lock))
	l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.dim, "votes ")
	for i, addr := range s.run.quorum {
		l.Pad(widget.Style{}, 1).Put(t.dim, fmt.Sprintf("%d ", i+1))
		name := ""
		for _, v := range found.Votes {
			if v.Node == addr {
				name, _, _ = strings.Cut(v.Token, "~") // the load's own tokens begin with the client
			}
		}
		switch {
		case s.run.faultLog.downNodes[fmt.Sprintf("node %d", i+1)]:
			l.Put(t.bad, g.Fit(g.Cross+" down", 10))
		case name == "":
			l.Put(t.dim, g.Fit(g.Ring, 10))
		default:
			l.Put(t.good, g.Fit(g.Dot+" "+s.privacy.owner(name), 10))
		}
	}
	return []string{l.Pad(widget.Style{}, 1).Put(t.dim, fmt.Sprintf("needs %d", keyspace.Quorum(len(s.run.quorum)))).String()}
}

// loadState is the state of the load on the screen.
type loadState struct {
	load     Load           // nil if there is none
	begin    func() tea.Cmd // opens a load; nil if that is impossible
	failed   string         // why the clients did not start, until the next change; "" if they did
	metrics  loadgen.Metrics
	compared []loadgen.Compared // runs to compare this one with
	agents   agentsState        // empty if the clients run in this process
	scenario loadgen.Scenario   // as last requested
	seen     uint64             // number of the newest event
	faults   []faultSpan        // recent faults
	faultLog faultLog           // sentences about their effects

	measuring bool // a request for metrics is active
	changing  bool // a change of the scenario is active
	launching bool // a start of the same scenario is active
	changes   int  // number of changes so far
	pending   bool // another change must follow
	starting  bool // that change starts the load

	quorum []string // addresses of the Redlock's servers, in the load's order
	scenes []loadgen.Scenario
	scene  int // index of the current scene; -1 if none
}

// faultSpan is a fault with its start and end.
type faultSpan struct {
	kind     loadgen.FaultKind
	client   int
	from, to time.Time // local time; to is zero while the fault is active
}

// measure requests metrics unless a request is active.
func (f *loadState) measure() tea.Cmd {
	if f.load == nil || f.measuring {
		return nil
	}
	f.measuring = true
	return fetchMetrics(f.load, f.changes, f.metrics.Began, f.seen)
}

// measured stores the metrics. It ignores a scenario from before the last change, so that
// repeated key presses add up.
func (f *loadState) measured(msg metricsMsg) {
	f.measuring = false
	f.metrics, f.compared, f.agents = msg.metrics, msg.compared, msg.agents
	if !f.changing && msg.changes == f.changes {
		f.scenario = msg.scenario
	}
	if msg.newRun {
		f.endFaults(msg.metrics.Began)
	}
	if n := len(msg.events); n > 0 {
		f.seen = msg.events[n-1].Seq
	} else if msg.newRun {
		f.seen = 0
	}
	for i := range msg.events {
		f.onFault(&msg.events[i])
	}
	if !msg.metrics.Running {
		f.endFaults(msg.metrics.Began.Add(msg.metrics.Elapsed))
	}
	f.faultLog.calm = msg.scenario.Hold.Typical() >= 100*time.Millisecond
	f.faultLog.apply(loadgen.EachKey(msg.events), msg.newRun, msg.scenario.Lock, len(f.quorum))
}

// endFaults ends the active faults and discards those older than historyKept.
func (f *loadState) endFaults(at time.Time) {
	for i := range f.faults {
		if f.faults[i].to.IsZero() {
			f.faults[i].to = at
		}
	}
	f.faults = slices.DeleteFunc(f.faults, func(x faultSpan) bool { return at.Sub(x.to) > historyKept })
}

// faultsKept is the number of faults that are drawn.
const faultsKept = 512

// onFault records the start or end of a fault.
func (f *loadState) onFault(e *loadgen.Event) {
	switch e.Kind {
	case loadgen.FaultBegan:
		f.faults = append(f.faults, faultSpan{e.Fault, e.Client, e.At, time.Time{}})
		f.faults = f.faults[max(0, len(f.faults)-faultsKept):]
	case loadgen.FaultEnded:
		for i := len(f.faults) - 1; i >= 0; i-- {
			if x := &f.faults[i]; x.kind == e.Fault && x.client == e.Client && x.to.IsZero() {
				x.to = e.At
				return
			}
		}
	}
}

// request applies another scenario, and starts the load if start is set. Only one change is
// active at a time, because two could finish in the wrong order. The latest scenario that was
// requested during a change follows it, with a start if one of these requests had it.
func (f *loadState) request(s loadgen.Scenario, start bool) tea.Cmd {
	f.scenario, f.failed = s, ""
	if f.changing {
		f.pending, f.starting = true, f.starting || start
		return nil
	}
	f.changing, f.pending = true, false
	f.changes++
	return apply(f.load, s, start)
}

// applied ends a change and starts the pending one.
func (f *loadState) applied() tea.Cmd {
	f.changing = false
	if !f.pending {
		return nil
	}
	start := f.starting
	f.starting = false
	return f.request(f.scenario, start)
}

// startScene starts the scene with the given index, which wraps around.
func (f *loadState) startScene(scene int) tea.Cmd {
	n := len(f.scenes)
	f.scene = (scene + n) % n
	return f.request(f.scenes[f.scene], true)
}
