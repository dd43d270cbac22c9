package tui

import (
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/tui/widget"
)

// story is the incidents of a lock at a moment. They are told again when the view changes.
type story struct {
	of      *viewModel
	events  int
	stories []incident.Story
	calm    []string
}

// tell returns the incidents of the lock in the events that the screen keeps, up to the shown moment.
func (p *lockPage) tell(s *state) story {
	b := incident.NewBuilder(func(other keyspace.ID) bool { return other == p.id })
	now := s.current().snap
	now.Events, now.Notices = nil, nil
	past := s.past()
	indexes := s.log.latest(p.id, len(past), len(past))
	for i := len(indexes) - 1; i >= 0; i-- {
		now.Events = append(now.Events, past[indexes[i]])
	}
	b.Add(keyspace.Delta{Snapshot: now})
	return story{s.current(), len(past), b.Stories(), b.Summaries()}
}

// storyBlock draws what happened to the lock, instead of its details.
func (p *lockPage) storyBlock(s *state, w int) []string {
	if s.privacy.on {
		return []string{s.ruleOf(w, "story", "e for the lock"), s.item(w, "", s.screen.theme.dim, "hidden: it names keys and clients; p ends the privacy")}
	}
	if p.told.of != s.current() || p.told.events != len(s.past()) {
		p.told = p.tell(s)
	}
	const most = 6 // lines of a sentence
	t := s.screen.theme
	lines := []string{s.ruleOf(w, "story", "e for the lock")}
	if len(p.told.stories) == 0 {
		lines = append(lines, s.item(w, "", t.good, "no incident since the screen began to watch it"))
		for _, text := range p.told.calm {
			lines = append(lines, s.items(w, "", t.text, widget.Plain(text), most)...)
		}
	}
	for i := range p.told.stories {
		one := &p.told.stories[i]
		if i > 0 {
			lines = append(lines, s.ruleOf(w, "", ""))
		}
		lines = append(lines, s.items(w, "what", t.strong, widget.Plain(one.Headline), most)...)
		for _, l := range one.Lines {
			text := l.Text
			if l.Cost >= time.Second {
				text += " (" + humanize.Duration(l.Cost.Round(time.Second)) + ")"
			}
			if l.Note != "" {
				text += ": " + l.Note
			}
			lines = append(lines, s.items(w, l.At.Local().Format(time.TimeOnly), t.text, widget.Plain(text), most)...)
		}
		for j, text := range one.Unknown {
			lines = append(lines, s.items(w, []string{"not known", ""}[min(j, 1)], t.dim, widget.Plain(text), most)...)
		}
		lines = append(lines, s.items(w, "next", t.text, widget.Plain(one.Next), most)...)
	}
	return lines
}
