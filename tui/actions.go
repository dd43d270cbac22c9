package tui

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// This file holds the only keys that change a lock: x, then a menu of actions, then a question
// that Enter answers with no.

// openActionMenu opens the menu of actions on the tagged locks, or on the selected one.
func (a *app) openActionMenu() {
	locks := slices.SortedFunc(maps.Values(a.locks().tags), func(x, y keyspace.Lock) int { return x.ID().Compare(y.ID()) })
	if len(locks) == 0 || a.place() != onLocks {
		l, ok := a.selected()
		if !ok {
			a.reject("no lock to act on")
			return
		}
		locks = []keyspace.Lock{l}
	}
	switch {
	case a.config.Executor == nil && a.playback != nil:
		a.reject(a.keymap.named("a recording cannot be changed; {copy} copies an exact command"))
	case a.config.Executor == nil:
		how := map[bool]string{true: ":write", false: "--write"}[a.config.Writer != nil]
		a.reject(a.keymap.named("this screen only reads: " + how + " lets it act, {copy} copies an exact command"))
	case a.whyNotAct() != "":
		a.reject(a.whyNotAct())
	case a.paused != nil && a.paused.rewound:
		a.reject(a.keymap.named("this is the past; {live} goes back to now"))
	default:
		a.dialog = a.actionMenu(locks)
	}
}

// whyNotAct returns why the server would refuse an action; "" if that is not known.
func (a *app) whyNotAct() string {
	if server := a.current().snap.Server; server.Role == "slave" {
		return "this is a replica: start locktop on its master, " + widget.Plain(server.Master) + ", to act"
	}
	return a.cannotAct
}

// pendingAction is an action on locks, as the screen showed them when the user chose it.
type pendingAction struct {
	act   keyspace.Action
	locks []keyspace.Lock
	ttl   time.Duration // given by Expire; added to the deadline by Extend, 0 = as long as the lease of each lock
}

// lockAction is an action on a lock, with its key in the menu.
type lockAction struct {
	act                      keyspace.Action
	key, label, detail, verb string
	noUndo                   string // why it cannot be undone
}

// lockActions are all actions on a lock, the least dangerous first.
var lockActions = []lockAction{
	{keyspace.Expire, "d", "set a deadline",
		"it ends in " + humanize.Setting(defaultTTL) + ", or another time that you choose, even while its holder works", "set a deadline for", "no command removes it; {release} e moves it later"},
	{keyspace.Extend, "e", "extend it", "its deadline is later by its lease, or a time that you choose", "extend", "it ends at its new deadline, or when its holder releases it"},
	{keyspace.ForceRelease, "r", "release it", "end the hold now: waiters acquire it while its holder may still be working", "release", "another client may have the lock by now"},
}

// actionMenu returns the menu of actions, the least dangerous first.
func (a *app) actionMenu(locks []keyspace.Lock) *menu {
	m := &menu{title: "act on " + a.describe(locks)}
	if len(locks) == 1 && a.locks().tagged(locks[0].ID().OnAnyNode()) {
		m.title += ", which is tagged"
	}
	for _, c := range lockActions {
		able, why := a.allowed(c.act, locks)
		d := pendingAction{act: c.act, locks: able}
		if c.act == keyspace.Expire {
			d.ttl = defaultTTL
		}
		next := choice{key: c.key, label: c.label, detail: c.detail, pick: func(*state) (dialog, tea.Cmd) { return a.confirm(d), nil }}
		if c.act == keyspace.ForceRelease && len(locks) == 1 && len(locks[0].Holders) > 1 {
			next.detail = "end one hold or all " + humanize.Count(len(locks[0].Holders)) + " now, while their holders may still be working"
			next.pick = func(*state) (dialog, tea.Cmd) { return a.holderMenu(locks[0]), nil }
		}
		switch {
		case len(able) == 0:
			next.disabled = why
		case why != "":
			next.detail = fmt.Sprintf("%d of %d; %s", len(able), len(locks), why)
		}
		m.choices = append(m.choices, next)
	}
	return m
}

// holderKeys are the keys of the holders in the menu. They exclude the keys of the other choices of a menu.
const holderKeys = "bcdefghilmnoprstuvwxyz"

// holderMenu returns the menu of the holders of a lock, to release one of them or all.
func (a *app) holderMenu(l keyspace.Lock) *menu {
	release := func(l keyspace.Lock) (dialog, tea.Cmd) {
		return a.confirm(pendingAction{act: keyspace.ForceRelease, locks: []keyspace.Lock{l}}), nil
	}
	m := a.perHolder("release which hold of "+a.privacy.key(l.Key), l, release)
	m.choices = slices.Insert(m.choices, 0, choice{
		key: "a", label: "all", detail: humanize.Count(len(l.Holders)) + " holds", pick: func(*state) (dialog, tea.Cmd) { return release(l) },
	})
	return m
}

// perHolder returns a menu of the holders of a lock. pick receives the lock with the chosen
// holder alone.
func (a *app) perHolder(title string, l keyspace.Lock, pick func(keyspace.Lock) (dialog, tea.Cmd)) *menu {
	m := &menu{title: title}
	for i := range l.Holders {
		one, _ := l.Still(l.Holders[i : i+1])
		key := ""
		if i < len(holderKeys) {
			key = holderKeys[i : i+1]
		}
		m.choices = append(m.choices, choice{
			key: key, label: fmt.Sprintf("hold %d", i+1), detail: a.viewOf(&one).holder(&one.Holders[0]),
			pick: func(*state) (dialog, tea.Cmd) { return pick(one) },
		})
	}
	return m
}

// allowed returns the locks that allow an action. why is the reason of the first lock that does
// not, "" if all do.
func (a *app) allowed(act keyspace.Action, locks []keyspace.Lock) (able []keyspace.Lock, why string) {
	for _, l := range locks {
		reason := a.config.disabledReason(act, l)
		switch {
		case reason == "":
			able = append(able, l)
		case why != "":
		case len(locks) == 1:
			why = reason
		default:
			why = a.privacy.key(l.Key) + ": " + reason
		}
	}
	return able, why
}

// disabledReason returns why an action on a lock is impossible, "" if it is possible.
func (w *Config) disabledReason(act keyspace.Action, l keyspace.Lock) string {
	switch {
	case act == keyspace.Expire && !l.Endless():
		return "it has a TTL already; e extends it"
	case act == keyspace.Extend && l.Endless():
		return "it has no deadline; d sets one"
	}
	_, why := w.exactCommand(act, l, defaultTTL)
	return why
}

// describe returns the key of a single lock, or the number of locks.
func (s *state) describe(locks []keyspace.Lock) string {
	if len(locks) == 1 {
		return s.privacy.key(locks[0].Key)
	}
	return humanize.Plural(len(locks), "tagged lock")
}

// confirm returns the question before an action, above the locks of now. On a production server, the
// user must type the lock's key first.
func (a *app) confirm(d pendingAction) dialog {
	a.paused = nil
	a.page().arrange(&a.state)
	q := &confirmDialog{app: a, pending: d}
	if !a.config.Production {
		return q
	}
	name := widget.Plain(d.locks[0].Key)
	if len(d.locks) > 1 {
		name = fmt.Sprint(len(d.locks))
	}
	p := newPrompt(fmt.Sprintf("%s %s on %s: type %s to confirm: ", d.named().verb, a.describe(d.locks), a.address(), name), "")
	p.note = func(text string) (string, bool) {
		if text == name {
			return "Enter goes on to the question", false
		}
		return "Esc leaves everything as it is", true
	}
	p.finish = func(text string) (dialog, tea.Cmd) {
		if text == name {
			return q, nil
		}
		return nil, a.reject("nothing was changed: the name typed is not " + name)
	}
	return p
}

// confirmDialog shows the consequences of an action on the locks as they are now. Only y confirms it.
type confirmDialog struct {
	app     *app
	pending pendingAction
	top     int // first visible line
}

func (q *confirmDialog) update(s *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	switch k.String() {
	case "y":
	case "up", "down":
		q.top = scrolled(q.top+map[string]int{"up": -1, "down": 1}[k.String()], len(q.text(s)), q.room(s))
		return q, nil
	case "+", "=", "-":
		if q.pending.act != keyspace.ForceRelease {
			direction := map[string]int{"+": 1, "=": 1, "-": -1}[k.String()]
			q.pending.ttl = neighbour(ttlChoices, cmp.Or(q.pending.ttl, leaseOf(q.pending.locks[0], s.clock())), direction)
		}
		return q, nil
	default:
		return nil, s.notify("nothing was changed")
	}
	for i := range q.pending.locks {
		delete(q.app.locks().tags, q.pending.locks[i].ID().OnAnyNode())
	}
	d, ended := q.now(s)
	if len(d.locks) == 0 {
		return nil, s.reject("nothing was changed: " + ended[0])
	}
	s.notify("working " + s.screen.glyphs.Ellipsis)
	ttls := mapped(d.locks, func(l keyspace.Lock) time.Duration { return d.ttlOf(l, s.clock()) })
	return nil, q.app.act(q.app.config.Executor, d, ttls)
}

// now returns the action on those of its holds that go on, as the latest snapshot has them. ended has a
// sentence for each lock without such a hold.
func (q *confirmDialog) now(s *state) (d pendingAction, ended []string) {
	d = q.pending
	d.locks = nil
	for i := range q.pending.locks {
		was := &q.pending.locks[i]
		l, known := s.current().lock(was.ID())
		held, goesOn := l.Still(was.Holders)
		switch {
		case goesOn:
			d.locks = append(d.locks, held)
		case known:
			holders := (&keyspace.ChangedError{Now: &l}).Holders()
			ended = append(ended, s.privacy.key(was.Key)+": the hold has ended, the lock is "+s.redactText(was.ID(), holders))
		default:
			ended = append(ended, s.privacy.key(was.Key)+": locktop does not see the hold any more")
		}
	}
	return d, ended
}

func (q *confirmDialog) draw(s *state, lines []string) []string {
	text, room, verb := q.text(s), q.room(s), q.pending.named().verb
	top := scrolled(q.top, len(text), room) // the window may be taller now
	note := ""
	if room < len(text) {
		note = fmt.Sprintf("lines %d to %d of %d", top+1, top+room, len(text))
	}
	panel := []string{s.ruleOf(s.screen.w, verb+" "+s.describe(q.pending.locks)+"?", note)}
	panel = append(panel, text[top:min(top+room, len(text))]...)
	l := widget.NewLine(s.screen.w).Pad(widget.Style{}, margin)
	l.Put(s.screen.theme.row, " Enter  leave it ").Pad(widget.Style{}, 2).Put(s.screen.theme.key, "y").Put(s.screen.theme.text, "  "+verb+" it")
	hints := []hint{{"y", verb + " it"}, {"any other key", "leaves it as it is"}}
	if q.pending.act != keyspace.ForceRelease {
		hints = append(hints, hint{"+ -", "longer, shorter"})
	}
	if note != "" {
		hints = append(hints, hint{"↑ ↓", "scroll"})
	}
	return s.hints(overlay(s, lines, append(panel, l.String())), hints...)
}

// ttlChoices are the TTLs that the user can choose.
var ttlChoices = []time.Duration{
	5 * time.Second, 10 * time.Second, defaultTTL, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 30 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
}

// leaseOf returns the lease of a lock with a deadline, rounded up: its length if it is known,
// otherwise the time that is left.
func leaseOf(l keyspace.Lock, now time.Time) time.Duration {
	lease, watched := l.FullTTL()
	if left, ok := l.TTL(now); ok && !watched {
		lease = left
	}
	unit := time.Second
	if lease >= 10*time.Minute {
		unit = time.Minute
	}
	return (max(lease, unit) + unit - 1).Truncate(unit)
}

// extended returns the deadline of a lock after an Extend: added later, 0 = by its lease.
func extended(l keyspace.Lock, added time.Duration, now time.Time) time.Time {
	if added == 0 {
		added = leaseOf(l, now)
	}
	if l.Expires.Before(now) {
		return now.Add(added)
	}
	return l.Expires.Add(added)
}

// room returns the number of lines for the text of the question: the window without the header
// lines, the title, the answers and the footer.
func (q *confirmDialog) room(s *state) int {
	return max(1, s.screen.h-s.frame().top()-4)
}

// text returns the consequences of the action and its complete command, so that the user knows
// everything that will run.
func (q *confirmDialog) text(s *state) []string {
	t := s.screen.theme
	var panel []string
	line := func(st widget.Style, text string) {
		panel = append(panel, s.wrapped(s.screen.w, margin, st, text, 8)...)
	}
	d, ended := q.now(s)
	for _, text := range ended {
		line(t.bad, text+". The action does nothing to it.")
	}
	for i := range d.locks {
		if i == 5 {
			line(t.dim, fmt.Sprintf("and %s more", humanize.Count(len(d.locks)-i)))
			break
		}
		line(t.warn, d.consequence(s.viewOf(&d.locks[i])))
		if votes := d.locks[i].VotesText(); votes != "" {
			line(t.warn, s.redactText(d.locks[i].ID(), votes))
		}
	}
	if len(d.locks) == 1 && !s.privacy.on {
		command, _ := q.app.config.exactCommand(d.act, d.locks[0], d.ttlOf(d.locks[0], s.clock()))
		panel = append(panel, s.wrapAnywhere(s.screen.w, margin, t.dim, command)...)
	}
	line(t.text, "It is done only if the lock is still as it is shown here, and it is logged first.")
	return panel
}

// named returns the action with its names.
func (d pendingAction) named() lockAction {
	return lockActions[slices.IndexFunc(lockActions, func(c lockAction) bool { return c.act == d.act })]
}

// consequence describes the effect of the action on one lock.
func (d pendingAction) consequence(v lockView) string {
	holder := "its holder (" + v.owner() + ")"
	text := v.state.privacy.key(v.Key) + ": "
	switch d.act {
	case keyspace.ForceRelease:
		text += v.waiterText("can acquire it", "can acquire it") + "; "
	case keyspace.Extend:
		till := extended(*v.Lock, d.ttl, v.now)
		added := "as long again as its lease"
		if d.ttl > 0 {
			added = humanize.Setting(d.ttl) + " later"
		}
		now := "ends at " + v.deadline(v.Expires)
		first := v.Expires
		for _, h := range v.Holders {
			first = keyspace.Earliest(first, h.Expires)
		}
		if first.Before(v.Expires) {
			now = fmt.Sprintf("its %d holds end from %s to %s", len(v.Holders), v.deadline(first), v.deadline(v.Expires))
		}
		text += v.state.screen.glyphs.Word(fmt.Sprintf("stays with %s: %s → %s, %s; %s. ",
			holder, now, v.deadline(till), added, v.waiterText("waits longer", "wait longer")))
	}
	return text + v.Consequence(d.act, d.ttl, holder, v.state.current().snap.At, v.now)
}

// deadline returns a time of day with the time until it.
func (v lockView) deadline(at time.Time) string {
	layout := "15:04:05"
	if at.Sub(v.now) > 12*time.Hour {
		layout = "2006-01-02 15:04:05"
	}
	return at.Local().Format(layout) + " (in " + humanize.Left(at.Sub(v.now)) + ")"
}

// ttlOf returns the time to live, from now on, that an action gives to a lock.
func (d pendingAction) ttlOf(l keyspace.Lock, now time.Time) time.Duration {
	if d.act == keyspace.Extend {
		return extended(l, d.ttl, now).Sub(now)
	}
	return d.ttl
}

// waiterText returns the number of waiters with a verb: one for a single waiter, many for several.
func (v lockView) waiterText(one, many string) string {
	switch n := v.WaiterCount(); {
	case n == 0 && v.Asked(v.now):
		return "at least 1 waiter " + one
	case n == 0 && v.hidesWaiters():
		return "waiters are not known"
	case n == 0:
		return "no waiters"
	case n == 1:
		return "1 waiter " + one
	default:
		return humanize.Plural(n, "waiter") + " " + many
	}
}

// acted is the result of an action on a lock.
type acted struct {
	lock   keyspace.Lock
	record keyspace.AuditRecord
	err    error
}

// onActed reports the results of an action, and requests a snapshot immediately. Of the errors it
// reports the first. What is not known stays in the last line until a key.
func (a *app) onActed(by Executor, d pendingAction, results []acted) tea.Cmd {
	a.refresher.next = a.now
	var unknown, failed []acted
	for _, r := range results {
		if r.record.Outcome == keyspace.Unanswered {
			unknown = append(unknown, r)
		} else if r.err != nil {
			failed = append(failed, r)
		}
	}
	bad := slices.Concat(unknown, failed)
	if len(bad) == 0 {
		return a.notify(d.act.Did(d.ttl) + " " + a.describe(d.locks) + "; no undo: " + a.keymap.named(d.named().noUndo))
	}
	text := a.privacy.key(bad[0].lock.Key) + ": " + cmp.Or(bad[0].record.Shortfall(), shortError(bad[0].err))
	if changed, ok := errors.AsType[*keyspace.ChangedError](bad[0].err); ok {
		text = a.redactText(bad[0].lock.ID(), changed.Error())
	}
	if n := len(results); n > 1 {
		text = fmt.Sprintf("%d done, %d failed, %d unknown; %s", n-len(bad), len(failed), len(unknown), text)
	}
	a.reject(text)
	if len(unknown) > 0 {
		a.notice.until = time.Time{}
	}
	return tea.Batch(mapped(unknown, func(r acted) tea.Cmd { return a.recheck(by, r) })...)
}
