package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// nodesPage shows the servers, and for a Redlock the token on each of them.
type nodesPage struct {
	list[string] // by address
	rows         []keyspace.Node
	redlock      []string // servers of a Redlock, in the order of their columns
}

func (p *nodesPage) act(s *state, a action) tea.Cmd {
	if p.navigate(a) {
		return nil
	}
	switch a {
	case nodeDown:
		return p.inject(s, loadgen.Fault{Kind: loadgen.NodeDown, For: downFor})
	case nodeEmpty:
		return p.inject(s, loadgen.Fault{Kind: loadgen.RestartEmpty, For: time.Second})
	case back:
		s.leave("")
	}
	return nil
}

// downFor is how long a key takes a node down.
const downFor = 10 * time.Second

// inject injects a fault into the selected node.
func (p *nodesPage) inject(s *state, f loadgen.Fault) tea.Cmd {
	if s.run.load == nil {
		return s.reject(noLoad)
	}
	f.Node = slices.Index(s.run.quorum, p.chosen) + 1
	if f.Node == 0 {
		return s.reject(s.keymap.named("only the five servers of a redlock can be switched off: {scenes} leads to the scenes that have one"))
	}
	return inject(s.run.load, f)
}

// arrange lists the nodes of the snapshot, or its only server.
func (p *nodesPage) arrange(s *state) {
	snap := s.current().snap
	p.rows = slices.Clone(snap.Nodes)
	if len(p.rows) == 0 && snap.Server.Addr != "" {
		p.rows = []keyspace.Node{{Server: snap.Server, Up: true, Keys: snap.Cost.Keys, Locks: len(snap.Locks)}}
	}
	if s.run.playsRedlock() {
		p.redlock = s.run.quorum
	} else if locks := redlocks(s.current()); len(locks) > 0 { // its servers stay while no lock is held
		p.redlock = mapped(locks[0].Votes, func(v keyspace.Vote) string { return v.Node })
	}
	slices.SortStableFunc(p.rows, func(a, b keyspace.Node) int { return p.number(a) - p.number(b) })
	p.set(mapped(p.rows, func(n keyspace.Node) string { return n.Addr }), p.height(s))
}

// number returns the number of the column of a server, from 1; 0 if it is none of a Redlock.
func (p *nodesPage) number(n keyspace.Node) int { return slices.Index(p.redlock, n.Addr) + 1 }

// playsRedlock reports whether the load uses a Redlock.
func (f *loadState) playsRedlock() bool {
	return len(f.quorum) > 0 && f.load != nil && f.scenario.Lock.Kind.Quorum()
}

// height returns the number of visible nodes: all, or those that the matrix leaves room for.
func (p *nodesPage) height(s *state) int {
	h := s.frame().body - 1
	if len(redlocks(s.current())) > 0 || s.run.playsRedlock() || len(s.current().snap.Problems) > 0 {
		h = min(max(1, h/2), len(p.rows))
	}
	return max(0, h)
}

func (p *nodesPage) summary(s *state, l *widget.Line) {
	snap, t, g := s.current().snap, s.screen.theme, s.screen.glyphs
	down := count(p.rows, func(n *keyspace.Node) bool { return !n.Up })
	health := segment{style: t.good, text: g.Check + " all answer"}
	if down > 0 {
		health = segment{style: t.bad, text: g.Cross + " " + humanize.Count(down) + " down"}
	}
	follow := ""
	if snap.Watch.Mode != "" {
		follow = "updates: " + string(snap.Watch.Mode)
	}
	keys := humanize.Plural(snap.Cost.Keys, "key")
	if slices.ContainsFunc(p.rows, func(n keyspace.Node) bool { return n.Up && !n.KeysKnown() }) {
		keys = ""
	}
	layoutLine(l, g, []segment{
		{style: t.strong, text: humanize.Plural(len(p.rows), "node")},
		health,
		{style: t.text, text: widget.Plain(snap.Server.Mode), priority: 1},
		{style: t.dim, text: follow, priority: 3},
		{style: t.dim, text: keys, priority: 2},
	}, nil)
}

// columns returns the columns of the table, without role and version if no node says them: embedded servers do not.
func (p *nodesPage) columns() []widget.Column {
	silent := !slices.ContainsFunc(p.rows, func(n keyspace.Node) bool { return n.Role != "" || n.Version != "" })
	return []widget.Column{
		{Title: "NODE", Min: 16, Max: 32},
		{Title: "STATE", Min: 7},
		{Title: "ROLE", Min: 7, Priority: 3, Off: silent},
		{Title: "VERSION", Min: 12, Priority: 4, Off: silent},
		{Title: "PING", Min: 7, Priority: 2, Right: true},
		{Title: "KEYS", Min: 8, Priority: 5, Right: true},
		{Title: "LOCKS", Min: 6, Right: true},
		{Title: "SHARE", Min: 6, Max: 24, Priority: 1},
	}
}

func (p *nodesPage) view(s *state, w, h int) []string {
	table := widget.NewTable(s.screen.glyphs, p.columns(), w-margin-1, s.gap())
	head := widget.NewLine(w).Pad(widget.Style{}, margin)
	table.Header(head, s.screen.theme.head, s.screen.theme.sorted, -1, "")
	lines := []string{head.String()}
	all := 0
	for i := range p.rows {
		all += p.rows[i].Locks
	}
	lines = append(lines, p.lines(w, p.height(s), func(l *widget.Line, row int) {
		s.pointer(l, row == p.row)
		table.Row(l, widget.Style{}, func(column, w int) widget.Cell {
			return p.cell(s, &p.rows[row], column, w, all)
		})
	})...)
	if len(p.rows) == 0 {
		lines = append(lines, s.paragraph(w, "", "no server has been read yet")...)
	}
	lines = append(lines, p.errors(s, w)...)
	lines = append(lines, p.unseen(s, w)...)
	lines = append(lines, p.matrix(s, w, h-len(lines))...)
	return lines
}

func (p *nodesPage) cell(s *state, n *keyspace.Node, column, w, all int) widget.Cell {
	t, g := s.screen.theme, s.screen.glyphs
	none, old := widget.Cell{Style: t.dim, Text: g.None}, s.playback == nil && s.refresher.stale()
	switch {
	case column == 0 && p.number(*n) > 0:
		return widget.Cell{Style: t.strong, Text: humanize.Count(p.number(*n)) + "  " + s.privacy.addr(n.Addr)}
	case column == 0:
		return widget.Cell{Style: t.strong, Text: s.privacy.addr(n.Addr)}
	case column == 1 && old:
		return widget.Cell{Style: t.bad, Text: g.Cross + " lost"}
	case column == 1 && n.Up:
		return widget.Cell{Style: t.good, Text: g.Dot + " up"}
	case column == 1:
		return widget.Cell{Style: t.bad, Text: g.Cross + " down"}
	case old, !n.Up:
		return none
	case column == 2 && n.Role != "":
		return widget.Cell{Style: t.text, Text: widget.Plain(n.Role)}
	case column == 3 && n.Version != "":
		return widget.Cell{Style: t.dim, Text: widget.Plain(n.Software())}
	case column == 4 && n.Ping > 0:
		return widget.Cell{Style: t.text, Text: humanize.Duration(n.Ping)}
	case column == 5 && n.KeysKnown():
		return widget.Cell{Style: t.text, Text: humanize.Count(n.Keys)}
	case column == 5:
		return widget.Cell{Style: t.dim, Text: "?"}
	case column == 6:
		return widget.Cell{Style: t.text, Text: humanize.Count(n.Locks)}
	case column == 7:
		return widget.Cell{Style: t.calm, Text: g.Bar(float64(n.Locks)/float64(max(1, all)), w)}
	default:
		return none
	}
}

// errors draws the errors of at most three nodes.
func (p *nodesPage) errors(s *state, w int) []string {
	var lines []string
	for i := range p.rows {
		n := &p.rows[i]
		if n.Error == "" || len(lines) == 3 {
			continue
		}
		text := s.screen.glyphs.Cross + " " + s.privacy.addr(n.Addr) + ": " + widget.Plain(n.Error)
		if s.privacy.on {
			text = s.screen.glyphs.Cross + " " + s.privacy.addr(n.Addr) + " does not answer"
		}
		lines = append(lines, s.fitted(w, margin, s.screen.theme.warn, text))
	}
	return lines
}

// unseen draws what locktop cannot see: at most three problems, in three lines each.
func (p *nodesPage) unseen(s *state, w int) []string {
	problems := s.current().snap.Problems
	if len(problems) == 0 {
		return nil
	}
	lines := []string{s.ruleOf(w, "what locktop does not see", "")}
	for _, text := range problems[:min(len(problems), 3)] {
		if s.privacy.on {
			text = s.screen.glyphs.Ellipsis
		}
		lines = append(lines, s.wrapped(w, margin, s.screen.theme.warn, widget.Plain(text), 3)...)
	}
	return lines
}

// redlocks returns the locks with votes.
func redlocks(p *viewModel) []*keyspace.Lock {
	var all []*keyspace.Lock
	for _, l := range p.locks {
		if len(l.Votes) > 0 {
			all = append(all, l)
		}
	}
	return all
}

// voteWidth is the width of a node's column in the matrix.
const voteWidth = 4

// quorumStatus says whether enough of a Redlock's servers are up.
func (p *nodesPage) quorumStatus(s *state, servers int) (widget.Style, string) {
	up := count(p.rows, func(n *keyspace.Node) bool { return n.Up && p.number(*n) > 0 })
	majority := keyspace.Quorum(servers)
	text := fmt.Sprintf("%d of %d servers answer, a majority is %d: ", up, servers, majority)
	switch {
	case up == servers && slices.ContainsFunc(s.current().all, func(f keyspace.Finding) bool { return f.ID == "restarted-empty" }):
		return s.screen.theme.bad, s.screen.glyphs.Cross + " " + text + "one restarted empty, so two clients may have a lock"
	case up == servers:
		return s.screen.theme.good, s.screen.glyphs.Check + " " + text + "healthy"
	case up >= majority:
		return s.screen.theme.warn, s.screen.glyphs.Half + " " + text + "locks are taken and released as before"
	default:
		return s.screen.theme.bad, s.screen.glyphs.Cross + " " + text + "no lock can be acquired"
	}
}

// matrix draws the tokens on each server of a Redlock, in at most h lines.
func (p *nodesPage) matrix(s *state, w, h int) []string {
	locks := redlocks(s.current())
	servers := len(s.run.quorum)
	if len(locks) > 0 {
		servers = len(locks[0].Votes)
	} else if !s.run.playsRedlock() {
		return nil
	}
	if h < 5 {
		return nil
	}
	names := max(8, min(32, w-margin-voteWidth*servers-30))
	style, verdict := p.quorumStatus(s, servers)
	lines := []string{strings.Repeat(" ", w), s.ruleOf(w, "redlock", ""), s.fitted(w, margin, style, verdict)}
	head := widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.head, s.screen.glyphs.Fit("LOCK", names)).Pad(widget.Style{}, 2)
	for i := range servers {
		head.Put(s.screen.theme.head, s.screen.glyphs.Fit(humanize.Count(i+1), voteWidth))
	}
	lines = append(lines, head.Put(s.screen.theme.head, "  VOTES   VALID FOR").String())
	if len(locks) == 0 {
		return append(lines, s.paragraph(w, "nobody holds a lock at this moment")...)
	}
	for _, l := range locks[:min(len(locks), h-len(lines))] {
		lines = append(lines, p.redlockRow(s, w, names, l))
	}
	return lines
}

// redlockRow draws one lock of the matrix.
func (p *nodesPage) redlockRow(s *state, w, names int, l *keyspace.Lock) string {
	t, g := s.screen.theme, s.screen.glyphs
	v := s.viewOf(l)
	line := widget.NewLine(w).Pad(widget.Style{}, margin).Put(t.strong, g.Fit(s.privacy.key(l.Key), names)).Pad(widget.Style{}, 2)
	for _, vote := range l.Votes {
		text, st := p.vote(s, vote)
		line.Put(st, text).Pad(widget.Style{}, voteWidth-1)
	}
	most := l.HolderVotes()
	st, sign := t.good, g.Check
	if l.State(s.clock()) == keyspace.Partial || most == 0 {
		st, sign = t.warn, g.Half
	}
	line.Pad(widget.Style{}, 2).Put(st, g.Fit(humanize.Count(most)+"/"+humanize.Count(len(l.Votes))+" "+sign, 8))
	if rest, ok := v.TTL(v.now); ok && len(l.Holders) > 0 {
		line.Put(v.urgency(t.text), g.FitRight(humanize.Left(rest), 7)).Pad(widget.Style{}, 1)
		line.Put(v.urgency(t.calm), g.Bar(v.remaining(), max(0, min(16, line.Rest()-1))))
	}
	return line.String()
}

// vote returns the letter of the owner whose token the server has.
func (p *nodesPage) vote(s *state, v keyspace.Vote) (string, widget.Style) {
	switch {
	case v.Unreachable:
		return s.screen.glyphs.Cross, s.screen.theme.bad
	case v.Token == "":
		return s.screen.glyphs.Point, s.screen.theme.dim
	}
	letter, look := s.screen.theme.ofOwner(s.timeline.owners[v.Token])
	return letter, look.letter
}
