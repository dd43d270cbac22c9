package tui

import (
	"fmt"
	"strings"
	"time"

	"locktop/loadgen"
	"locktop/tui/widget"
)

// account tells what a fault led to, in sentences: who was struck, who came in
// after it, and what became of the work of the one that did not know. It is made
// from the events of the load.
type account struct {
	lines []line             // the newest last
	holds map[string]hold    // who has which key, by the key
	ill   map[int]affliction // what is wrong with a client, by its number
	down  map[string]bool    // nodes that are down
}

// line is one sentence of an account.
type line struct {
	at   time.Time // our clock
	kind loadgen.EventKind
	text string
}

// hold is a client's possession of a key, as the account follows it.
type hold struct {
	client int
	token  string
	fence  int64
	left   time.Time         // when its holder went or stopped, without releasing; zero: it is there
	how    loadgen.FaultKind // what happened to it then
}

// affliction is a fault that goes on.
type affliction struct {
	kind  loadgen.FaultKind
	since time.Time
}

// linesKept is how many sentences an account has at most.
const linesKept = 64

// tell takes in what has happened. quorum is the number of servers of the
// load's Redlock.
func (a *account) tell(events []loadgen.Event, anew bool, quorum int) {
	if anew || a.holds == nil {
		*a = account{holds: map[string]hold{}, ill: map[int]affliction{}, down: map[string]bool{}}
	}
	for i := range events {
		a.happened(&events[i], quorum)
	}
}

func (a *account) happened(e *loadgen.Event, quorum int) {
	switch e.Kind {
	case loadgen.Acquired:
		a.acquired(e)
	case loadgen.Released, loadgen.Expired, loadgen.Lost:
		if h := a.holds[e.Key]; h.token == e.Token {
			delete(a.holds, e.Key)
		}
	case loadgen.Abandoned:
		a.abandoned(e)
	case loadgen.Struck:
		a.struck(e, quorum)
	case loadgen.Healed:
		a.healed(e, quorum)
	case loadgen.WriteFenced:
		a.say(e, fmt.Sprintf("%s writes to %s: refused, its number %d is older than what was seen", late(e), e.Key, e.Fence))
	case loadgen.WriteAccepted:
		a.say(e, fmt.Sprintf("%s writes to %s over what others wrote since: nothing checks numbers, the data is corrupt", late(e), e.Key))
	case loadgen.ForeignUnlock:
		a.say(e, fmt.Sprintf("%s releases %s, which was somebody else's by then", e.Owner(), e.Key))
	case loadgen.WasStuck:
		a.say(e, fmt.Sprintf("%s cannot be taken by anybody: its holder is gone and nothing ends it", e.Key))
	case loadgen.WorkOverlapped:
		a.say(e, fmt.Sprintf("two work on %s at once, for %s: the lease of the first is over", e.Key, span(e.Took)))
	case loadgen.WasUntold:
		a.say(e, fmt.Sprintf("the lease of %s on %s is over, and nothing tells it", e.Owner(), e.Key))
	case loadgen.LostAlone:
		a.say(e, fmt.Sprintf("%s loses %s, which is renewed, and no fault explains it", e.Owner(), e.Key))
	case loadgen.WasOvertaken:
		a.say(e, fmt.Sprintf("%s waits for %s, and others that came later are served", e.Owner(), e.Key))
	case loadgen.NumberFell:
		a.say(e, fmt.Sprintf("the number of %s for %s, %d, is not larger than the one before", e.Owner(), e.Key, e.Fence))
	case loadgen.Overlapped:
		a.say(e, fmt.Sprintf("two are inside %s at once, for %s", e.Key, span(e.Took)))
	}
}

// late is a client that works past its lease: a fault kept it, or the work did.
func late(e *loadgen.Event) string {
	if e.Text == string(loadgen.Freeze) {
		return e.Owner() + " wakes and"
	}
	return e.Owner() + " works past its lease and"
}

// acquired notes who has a key now and, where the one before never gave it back,
// says so.
func (a *account) acquired(e *loadgen.Event) {
	before := a.holds[e.Key]
	if e.Shared {
		return
	}
	a.holds[e.Key] = hold{client: e.Client, token: e.Token, fence: e.Fence}
	if before.left.IsZero() || before.client == e.Client {
		return
	}
	number := ""
	if e.Fence > 0 && before.fence > 0 {
		number = fmt.Sprintf(", its number is %d after %d", e.Fence, before.fence)
	}
	after := span(e.At.Sub(before.left))
	if before.how == loadgen.Crash {
		a.say(e, fmt.Sprintf("the lease of client-%d on %s has run out: %s comes in, %s after the crash%s", before.client, e.Key, e.Owner(), after, number))
		return
	}
	a.say(e, fmt.Sprintf("client-%d still believes it has %s, but its lease has run out: %s comes in, too%s", before.client, e.Key, e.Owner(), number))
}

// abandoned notes that a holder has gone without releasing.
func (a *account) abandoned(e *loadgen.Event) {
	h := a.holds[e.Key]
	if h.token != e.Token {
		return
	}
	x := a.ill[e.Client]
	if x.kind == "" {
		return
	}
	h.left, h.how = e.At, x.kind
	a.holds[e.Key] = h
	verb := "dies"
	if x.kind == loadgen.Forget {
		verb = "forgets what it holds"
	}
	a.say(e, fmt.Sprintf("%s %s without releasing %s: nobody gets in before the lease runs out", e.Owner(), verb, e.Key))
}

// struck says what a fault strikes.
func (a *account) struck(e *loadgen.Event, quorum int) {
	switch e.Fault {
	case loadgen.NodeDown, loadgen.RestartEmpty:
		a.down[e.Text] = true
		a.say(e, fmt.Sprintf("%s goes down: %s", e.Text, a.majority(quorum)))
		return
	case loadgen.Steal, loadgen.Flush, loadgen.Greedy, loadgen.Slow:
		a.say(e, strings.TrimSpace(fmt.Sprintf("%s %s", e.Fault, e.Owner())))
		return
	}
	a.ill[e.Client] = affliction{e.Fault, e.At}
	for key, h := range a.holds {
		if h.client == e.Client && stops(e.Fault) {
			h.left, h.how = e.At, e.Fault
			a.holds[key] = h
			a.say(e, fmt.Sprintf("%s is struck by a %s while it holds %s; nothing renews its lease", e.Owner(), e.Fault, key))
		}
	}
}

// stops reports whether a client struck by a fault cannot renew what it holds,
// and does not know.
func stops(k loadgen.FaultKind) bool { return k == loadgen.Freeze || k == loadgen.Cut }

// healed says what is as it was before.
func (a *account) healed(e *loadgen.Event, quorum int) {
	switch e.Fault {
	case loadgen.NodeDown, loadgen.RestartEmpty:
		delete(a.down, e.Text)
		a.say(e, fmt.Sprintf("%s is back: %s", e.Text, a.majority(quorum)))
	default:
		delete(a.ill, e.Client)
	}
}

// majority says how many servers are left, and whether that is enough.
func (a *account) majority(quorum int) string {
	up := quorum - len(a.down)
	if up > quorum/2 {
		return fmt.Sprintf("%d of %d are left, and %d are a majority", up, quorum, quorum/2+1)
	}
	return fmt.Sprintf("%d of %d are left, too few: nobody gets a lock before %d answer", up, quorum, quorum/2+1)
}

func (a *account) say(e *loadgen.Event, text string) {
	a.lines = append(a.lines, line{e.At, e.Kind, text})
	if len(a.lines) > 2*linesKept {
		a.lines = append([]line(nil), a.lines[len(a.lines)-linesKept:]...)
	}
}

// weight is the glyph and the style of a sentence.
func (s *state) weight(k loadgen.EventKind) (string, widget.Style) {
	g, t := s.glyphs, s.theme
	switch k {
	case loadgen.Struck, loadgen.Abandoned:
		return g.Alert, t.warn
	case loadgen.WriteFenced:
		return g.Check, t.good
	case loadgen.WorkOverlapped:
		return g.Alert, t.warn
	case loadgen.WriteAccepted, loadgen.Overlapped, loadgen.ForeignUnlock, loadgen.WasStuck,
		loadgen.WasUntold, loadgen.LostAlone, loadgen.WasOvertaken, loadgen.NumberFell:
		return g.Cross, t.bad
	default:
		return g.Point, t.text
	}
}

// accountBlock draws the newest sentences of the account in h lines at most, the
// newest first.
func (s *state) accountBlock(w, h int) []string {
	if len(s.account.lines) == 0 || h < 3 {
		return nil
	}
	all := []string{s.ruleOf(w, "what happened", "newest first")}
	for i := len(s.account.lines) - 1; i >= 0 && len(all) < h; i-- {
		said := &s.account.lines[i]
		glyph, st := s.weight(said.kind)
		for n, text := range wrap(s.glyphs, s.loadSays(said.text), w-14, 3) {
			l := widget.NewLine(w).Skip(widget.Style{}, 1)
			if n == 0 {
				l.Put(s.theme.dim, said.at.Local().Format("15:04:05")).Skip(widget.Style{}, 1).Put(st, glyph)
			}
			all = append(all, l.To(widget.Style{}, 12).Put(st, text).String())
		}
	}
	return all[:min(h, len(all))]
}

// loadSays is a sentence about the load as it may be shown.
func (s *state) loadSays(text string) string {
	if s.veil.drawn {
		return s.glyphs.Ellipsis
	}
	return widget.Plain(text)
}
