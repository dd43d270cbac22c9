package tui

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

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

// openConnected opens a menu of the locks that the holders of the lock hold or wait for, and of those behind it.
func (p *lockPage) openConnected(s *state) {
	m, v := &menu{title: "open, from " + s.privacy.key(p.id.Key)}, p.lock(s)
	add := func(l *keyspace.Lock, detail string) {
		i := len(m.choices)
		if l.ID() != v.ID() && i < len(holderKeys) && !slices.ContainsFunc(m.choices, func(c choice) bool { return c.label == s.privacy.key(l.Key) }) {
			m.choices = append(m.choices, choice{key: holderKeys[i : i+1], label: s.privacy.key(l.Key), detail: detail, pick: func(s *state) (dialog, tea.Cmd) {
				s.openLock(*l)
				return nil, nil
			}})
		}
	}
	if !p.gone {
		of := v.ownerships()
		for _, w := range slices.Concat(of.chain.Paths...) {
			add(w.Lock, "waited for by "+s.privacy.owner(w.Owner))
		}
		for _, b := range of.chain.Tree {
			add(b.Lock, "in the tree of those who wait")
		}
		for i, held := range of.holds {
			for _, l := range held {
				add(l, "also held by "+s.privacy.owner(of.names[i]))
			}
		}
	}
	if len(m.choices) == 0 {
		s.reject(s.keymap.named("no other lock is connected with this one; {who} looks for its client, {copy} copies its process"))
		return
	}
	s.dialog = m
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
	for _, e := range slices.Backward(s.latest(p.id, math.MaxInt)) {
		now.Events = append(now.Events, *e)
	}
	b.Add(keyspace.Delta{Snapshot: now})
	return story{s.current(), len(s.past()), b.Stories(), b.Summaries()}
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

// rawValue is the raw value of the selected lock. It is refreshed every storedFor, and
// sooner if the lock has changed since.
type rawValue struct {
	lock   keyspace.Lock // as it was at the last request
	items  []RawEntry
	asked  time.Time // local time of the last request for this lock; or zero
	read   time.Time // local time of the request that items answers; zero = there is no answer for this lock
	asking bool
}

// storedFor is the minimum time between two requests: short would hide those of other clients,
// which locktop sees by the time for which nobody has read the key.
const storedFor = 10 * time.Second

// request requests the raw value of a lock, unless it is fresh or a request is active.
func (v *rawValue) request(ctx context.Context, store Store, l keyspace.Lock, now time.Time) tea.Cmd {
	if store == nil || v.asking {
		return nil
	}
	if l.ID() != v.lock.ID() {
		*v = rawValue{}
	}
	if !v.asked.IsZero() && now.Sub(v.asked) < v.freshFor(l) {
		return nil
	}
	v.lock, v.asked, v.asking = l, now, true
	return readStored(ctx, store, l)
}

// freshFor returns how long the last answer may be shown: not for long if the lock has changed
// since, or has a holder and no key, because it was read between two holds.
func (v *rawValue) freshFor(l keyspace.Lock) time.Duration {
	if !v.read.IsZero() && (len(v.items) == 0 && len(l.Holders) > 0 || !keyspace.SameLock(&l, &v.lock)) {
		return tickInterval
	}
	return storedFor
}

// onAnswer stores an answer. It discards an answer for another lock.
func (v *rawValue) onAnswer(id keyspace.ID, requested time.Time, items []RawEntry) {
	v.asking = false
	if id == v.lock.ID() {
		v.items, v.read = items, requested
	}
}

// Maximum bytes of a value and elements of a collection on the screen.
const (
	storedBytes   = 512
	storedMembers = 12
)

// block draws the keys of a lock as they are on the servers.
func (v *rawValue) block(s *state, id keyspace.ID, w int) []string {
	if v.lock.ID().OnAnyNode() != id.OnAnyNode() || v.read.IsZero() || s.privacy.on || s.paused != nil && s.paused.rewound {
		return nil
	}
	lines := []string{s.ruleOf(w, "stored as", v.age(s))}
	if len(v.items) == 0 {
		return append(lines, s.item(w, "", s.screen.theme.dim, "nothing: the key is gone"))
	}
	for i := range v.items {
		lines = append(lines, v.items[i].draw(s, w)...)
	}
	return lines
}

// age says when the value was read, compared with the lock on the screen.
func (v *rawValue) age(s *state) string {
	age := s.clock().Sub(v.read.Add(s.current().offset))
	if s.paused != nil && age < 0 {
		return "read " + humanize.Left(-age) + " later"
	}
	return "read " + humanize.Left(age) + " ago"
}

// draw draws a key: type, TTL, node and the beginning of its value.
func (k *RawEntry) draw(s *state, w int) []string {
	if k.Err != nil {
		return s.wrapAnywhere(w, margin, s.screen.theme.warn, s.sentence("not known", shortError(k.Err), s.privacy.addr(k.Node)))
	}
	e := &k.Entry
	ttl := "no TTL"
	if !e.Expires.IsZero() {
		ttl = "TTL " + humanize.Left(e.Expires.Sub(s.clock()))
	}
	lines := s.wrapAnywhere(w, margin, s.screen.theme.strong, s.sentence(widget.Plain(e.Key), widget.Plain(e.Type), ttl, s.privacy.addr(k.Node)))
	if e.Type == "string" {
		lines = append(lines, s.wrapAnywhere(w, margin+2, s.screen.theme.text, truncate(e.Value))...)
		return append(lines, s.moreLine(w, e.Len-int64(min(len(e.Value), storedBytes)), "byte")...)
	}
	shown := min(len(e.Members), storedMembers)
	for _, m := range e.Members[:shown] {
		lines = append(lines, s.wrapAnywhere(w, margin+2, s.screen.theme.text, member(e.Type, m, s.clock()))...)
	}
	return append(lines, s.moreLine(w, e.Len-int64(shown), "element")...)
}

// member formats an element of a collection. A score that is a time is shown as its distance
// from now.
func member(typ string, m keyspace.Member, now time.Time) string {
	switch typ {
	case "hash":
		return truncate(m.Name) + " = " + truncate(m.Value)
	case "zset":
		return fmt.Sprintf("%s at %.0f%s", truncate(m.Name), m.Score, humanize.Score(m.Score, now))
	default:
		return truncate(m.Name)
	}
}

// truncate returns the first storedBytes bytes of s, escaped.
func truncate(s string) string { return widget.Plain(s[:min(len(s), storedBytes)]) }

// moreLine draws the number of hidden bytes or elements.
func (s *screen) moreLine(w int, more int64, what string) []string {
	if more <= 0 {
		return nil
	}
	return []string{widget.NewLine(w).Pad(widget.Style{}, margin+2).Put(s.theme.dim, "and "+humanize.Plural(more, "more "+what)).String()}
}
