package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/loadgen"
	"locktop/tui/widget"
)

// loadPage drives the load generator and shows what its clients do.
type loadPage struct{}

func (p *loadPage) title() string { return "3 Load" }
func (p *loadPage) place() place  { return onLoad }

func (p *loadPage) update(s *state, msg tea.Msg) tea.Cmd {
	act, ok := msg.(action)
	if !ok {
		return nil
	}
	if s.load == nil {
		s.refuse(noLoad)
		return nil
	}
	switch act {
	case startStop:
		if s.metrics.Running {
			s.tell("stopping the clients " + s.glyphs.Ellipsis)
			return stopLoad(s.load)
		}
		return startLoad(s.load)
	case more:
		return p.resize(s, step(s.scenario.Clients, 1))
	case fewer:
		return p.resize(s, step(s.scenario.Clients, -1))
	}
	return nil
}

const noLoad = "this server is only looked at; `locktop demo` comes with clients"

// resize asks for another number of clients.
func (p *loadPage) resize(s *state, n int) tea.Cmd {
	if n == s.scenario.Clients {
		s.refuse("at least one client, at most " + count(loadgen.MaxClients))
		return nil
	}
	s.tell(several(n, "client"))
	return s.resize(n)
}

// step is the next number of clients in a direction: by ones below ten, by tens
// below a hundred, and so on.
func step(n, direction int) int {
	size := 1
	for n >= 10*size && (direction > 0 || n > 10*size) {
		size *= 10
	}
	next := (n/size + direction) * size
	if direction < 0 && n%size != 0 {
		next = n / size * size
	}
	return max(1, min(next, loadgen.MaxClients))
}

// summary draws the figures of this moment.
func (p *loadPage) summary(s *state, l *widget.Line) {
	t, g, m := s.theme, s.glyphs, s.metrics
	if s.load == nil {
		l.Put(t.dim, "no load")
		return
	}
	running := part{style: t.dim, text: g.Ring + " stopped"}
	if m.Running {
		running = part{style: t.good, text: g.Dot + " running"}
	}
	overlaps := part{style: t.good, text: g.Check + " no overlaps", rank: 1}
	if m.Overlap.Count > 0 {
		overlaps = part{style: t.alarm, text: " " + g.Alert + " " + several(m.Overlap.Count, "overlap") + " "}
	}
	spread(l, g, []part{
		running,
		{style: t.text, text: stopwatch(m.Elapsed), rank: 3},
		{style: t.strong, text: several(s.scenario.Clients, "client")},
		{style: t.strong, text: count(rate(m)) + "/s", rank: 2},
		{style: t.text, text: "p99 " + span(m.Wait.P99), rank: 4},
	}, []part{overlaps})
}

// rate is the number of acquisitions in the last full second.
func rate(m loadgen.Metrics) int64 {
	past := fullSeconds(m)
	if len(past) == 0 || !m.Running {
		return 0
	}
	return past[len(past)-1].Acquired
}

// fullSeconds are the seconds that are over.
func fullSeconds(m loadgen.Metrics) []loadgen.Second {
	return m.Seconds[:max(0, len(m.Seconds)-1)]
}
