package tui

import (
	"fmt"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/tui/widget"
)

// stuckBlock answers whether the lock is stuck: the connections of its holders, whom they block,
// what they wait for, and what the user can do.
func (p *lockPage) stuckBlock(v lockView, w int) []string {
	s := v.state
	if p.gone || len(v.Holders) == 0 {
		return nil
	}
	note := ""
	if of := s.clients.servers[v.HeldOn(v.Holders[0])]; s.findsClients() && !of.asked.IsZero() && of.err == nil {
		note = "clients listed " + humanize.Left(s.now.Sub(of.asked)) + " ago"
	}
	lines := []string{s.ruleOf(w, "is it stuck?", note)}
	of := v.ownerships()
	for i := range of.holds {
		name := s.privacy.owner(v.Holders[i].Name())
		if text := v.connection(&v.Holders[i]); text != "" {
			lines = append(lines, s.items(w, "holder", s.screen.theme.text, s.sentence(name, text), 3)...)
		}
		if held := of.holds[i]; len(held) > 0 {
			keys := mapped(held, func(l *keyspace.Lock) string { return s.privacy.key(l.Key) })
			lines = append(lines, s.items(w, "holder", s.screen.theme.text, name+" also holds "+listed(keys, namesListed, len(held)), 2)...)
		}
	}
	if more := len(v.Holders) - len(of.holds); more > 0 {
		lines = append(lines, s.item(w, "", s.screen.theme.dim, "and "+humanize.Plural(more, "more holder")))
	}
	lines = append(lines, v.blockedLines(&of.chain, w)...)
	lines = append(lines, v.waitLines(&of.chain, w)...)
	lines = append(lines, s.items(w, "you can", s.screen.theme.text, v.possibilities(), 3)...)
	return append(lines, v.treeLines(&of.chain, w)...)
}

// blockedLines says how many clients wait for the lock, also behind other locks.
func (v lockView) blockedLines(c *keyspace.Chain, w int) []string {
	s := v.state
	if c.Waiters == 0 {
		text, style := "nobody", s.screen.theme.dim
		switch {
		case v.Asked(v.now):
			text, style = "at least 1 client; waiters are "+v.waiters(), s.screen.theme.warn
		case v.hidesWaiters():
			text = "not known: " + v.waiters()
		}
		return s.items(w, "blocks", style, text, 2)
	}
	text := blocks(c.Waiters, c.Direct)
	if c.Longest.Duration > 0 {
		text += ", the longest for " + s.ageText(c.Longest)
	}
	return s.items(w, "blocks", s.screen.theme.warn, text, 2)
}

// blocks says how many clients wait for a lock, at any depth.
func blocks(all, direct int) string {
	text := humanize.Plural(all, "client")
	if direct < all {
		text += ", " + humanize.Count(direct) + " directly"
	}
	return text
}

// branchesShown is the maximum number of locks of a wait-for tree that are shown.
const branchesShown = 12

// treeLines draws the wait-for tree, root first, unless it has one lock only.
func (v lockView) treeLines(c *keyspace.Chain, w int) (lines []string) {
	s := v.state
	if len(c.Tree) < 2 {
		return nil
	}
	for i, b := range c.Tree[:min(len(c.Tree), branchesShown)] {
		label := ""
		if i == 0 {
			label = "tree"
		}
		style := s.screen.theme.text
		if b.Lock.ID() == v.ID() {
			style = s.screen.theme.strong
		}
		text := strings.Repeat("  ", min(b.Depth, branchesShown)) + s.privacy.key(b.Lock.Key)
		if b.Owner != "" {
			text += ", which " + s.privacy.owner(b.Owner) + " holds"
		}
		if b.Waiters > 0 {
			text += ", blocks " + blocks(b.Waiters, b.Direct)
		}
		lines = append(lines, s.item(w, label, style, text))
	}
	if more := len(c.Tree) - branchesShown; more > 0 {
		lines = append(lines, s.item(w, "", s.screen.theme.dim, "and "+humanize.Plural(more, "more lock")))
	}
	return lines
}

// waitLines says what the holders wait for, to the end of the chain.
func (v lockView) waitLines(c *keyspace.Chain, w int) []string {
	s := v.state
	if len(c.Paths) == 0 {
		text := "no other lock, as far as locktop sees"
		if c.Waiters > 0 {
			text += ": it is the root of the chain"
		}
		return []string{s.item(w, "waits for", s.screen.theme.text, text)}
	}
	var lines []string
	for _, path := range c.Paths[:min(len(c.Paths), ownersShown)] {
		var waits []string
		owner := s.privacy.owner(path[0].Owner)
		for _, one := range path[:min(len(path), namesListed)] {
			waits = append(waits, fmt.Sprintf("%s waits for %s, which %s holds", owner, s.privacy.key(one.Lock.Key), s.privacy.owner(one.For)))
			owner = "that owner"
		}
		style := s.screen.theme.warn
		switch more := len(path) - len(waits); {
		case keyspace.Cycle(path):
			style, waits = s.screen.theme.bad, append(waits, "this is a cycle")
		case more > 0:
			waits = append(waits, "and so on")
		default:
			waits = append(waits, s.privacy.owner(path[len(path)-1].For)+" is the root")
		}
		lines = append(lines, s.items(w, "waits for", style, strings.Join(waits, "; "), 4)...)
	}
	return lines
}

// possibilities lists the keys that help with a held lock.
func (v lockView) possibilities() string {
	s := v.state
	var keys []string
	if s.findsClients() && s.clients.lock == v.ID().OnAnyNode() {
		keys = append(keys, s.keymap.key(findClient)+" find the client")
	}
	now := s.paused == nil || !s.paused.rewound
	for _, c := range lockActions {
		if s.config.Executor != nil && now && s.config.disabledReason(c.act, *v.Lock) == "" {
			keys = append(keys, s.keymap.key(actOn)+" "+c.key+" "+c.label)
		}
	}
	act, copied := keyspace.ForceRelease, " r copy an exact release, only of this hold"
	if v.Endless() && !v.NoExtend {
		act, copied = keyspace.Expire, " d copy a command for a deadline"
	}
	if _, why := s.config.exactCommand(act, *v.Lock, defaultTTL); why == "" {
		keys = append(keys, s.keymap.key(copyIt)+copied)
	}
	if len(keys) == 0 {
		return "only watch it here"
	}
	return s.sentence(keys...)
}

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
