package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// faultLog describes the effects of faults in sentences, from the events of the load: the
// client with the fault, the next holder, and the late work of the client.
type faultLog struct {
	lines     []logEntry // newest last
	lock      loadgen.Lock
	holds     map[string]clientHold // current holds, see slot
	faulted   map[int]activeFault   // active faults by client number
	downNodes map[string]bool       // nodes that are down
	readers   map[string]bool       // tokens of the holds for reading
	reading   []string              // clients that have read since the last writer
	writes    int                   // number of writers so far
	lost      bool                  // a client has died with a key that has no TTL
	calm      bool                  // the holds last long enough for a sentence each, also without a fault
	unaware   map[string]bool       // tokens of holds that their clients do not know of
}

// logEntry is one sentence of a faultLog.
type logEntry struct {
	at      time.Time // local time
	kind    loadgen.EventKind
	text    string
	key     string        // of the repeated events
	n       int           // number of the repeated events
	longest time.Duration // longest duration of them
}

// clientHold is a client's hold on a key.
type clientHold struct {
	key      string
	client   int
	token    string
	began    time.Time
	counts   string // of a reentrant hold so far: 1, 2
	fence    int64
	overlaps int         // client whose hold had not ended, or 0
	stopped  time.Time   // when the holder stopped without a release; zero while it works
	fault    activeFault // at that time
}

// activeFault is a fault that has not ended.
type activeFault struct {
	kind  loadgen.FaultKind
	where string // between which commands it happened, "" if anywhere
}

// linesKept is the number of sentences that a faultLog keeps when it discards old ones.
const linesKept = 64

// apply processes events of one key each. newRun starts a new log. lock is the lock of the load,
// quorum the number of its servers if there are several.
func (a *faultLog) apply(events []loadgen.Event, newRun bool, lock loadgen.Lock, quorum int) {
	a.lock = lock
	if newRun || a.holds == nil {
		*a = faultLog{lock: lock, holds: map[string]clientHold{}, faulted: map[int]activeFault{}, downNodes: map[string]bool{}, readers: map[string]bool{}, calm: a.calm, unaware: map[string]bool{}}
	}
	for i := range events {
		a.onEvent(&events[i], quorum)
	}
}

func (a *faultLog) onEvent(e *loadgen.Event, quorum int) {
	if a.calm {
		a.onCalm(e)
	}
	switch e.Kind {
	case loadgen.Acquired:
		a.onAcquired(e)
	case loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Failed:
		if h := a.holds[a.slot(e)]; h.token == e.Token {
			delete(a.holds, a.slot(e))
		}
	case loadgen.Abandoned:
		a.onAbandoned(e)
	case loadgen.FaultBegan:
		a.onFault(e, quorum)
	case loadgen.FaultEnded:
		a.onHealed(e, quorum)
	case loadgen.Incomplete:
		a.add(e, e.Text)
	default:
		a.onViolation(e)
	}
}

// onCalm tells of a lease that is renewed, of a count, and of readers and writers.
func (a *faultLog) onCalm(e *loadgen.Event) {
	h := a.holds[a.slot(e)]
	mine := h.token == e.Token
	switch {
	case e.Kind == loadgen.Renewed && mine && e.At.Sub(h.began) > a.lock.TTL:
		a.retell(e, e.Token, fmt.Sprintf("%s renews its lease of %s: it has had {key} for %s", e.Owner(), humanize.Setting(a.lock.TTL), humanize.Duration(e.At.Sub(h.began))))
	case e.Kind == loadgen.Counted && mine:
		h.counts = cmp.Or(h.counts, "1") + ", " + strconv.Itoa(e.Depth)
		a.holds[a.slot(e)] = h
		a.retell(e, e.Token, fmt.Sprintf("%s is inside {key} %s times", e.Owner(), h.counts))
	case e.Kind == loadgen.Released && mine && h.counts != "":
		a.retell(e, e.Token, fmt.Sprintf("%s was inside {key} %s times; now it is free", e.Owner(), h.counts))
	case a.lock.Kind != loadgen.RW || e.Key == "":
	case e.Kind == loadgen.Arrived && !e.Shared && len(a.readers) > 0:
		a.add(e, fmt.Sprintf("%s wants to write: readers that come now wait behind it", e.Owner()))
	case e.Kind == loadgen.Acquired && !e.Shared:
		a.add(e, e.Owner()+" writes, alone")
		a.reading, a.writes = nil, a.writes+1
	case e.Kind == loadgen.Acquired:
		a.readers[e.Token] = true
		if !slices.Contains(a.reading, e.Owner()) {
			a.reading = append(a.reading, e.Owner())
		}
		a.retell(e, fmt.Sprint("readers ", a.writes), strings.Join(a.reading, ", ")+map[bool]string{true: " reads", false: " read together"}[len(a.reading) == 1])
	case e.Shared:
		delete(a.readers, e.Token)
	}
}

// retell replaces the sentence with an ID, or adds it.
func (a *faultLog) retell(e *loadgen.Event, id, text string) {
	text = strings.ReplaceAll(text, "{key}", e.Key)
	i := slices.IndexFunc(a.lines, func(l logEntry) bool { return l.key == id })
	if i < 0 {
		a.add(e, text).key = id
		return
	}
	a.lines[i].text = text
}

// onViolation adds the sentence about a violation. Each can happen many times per second.
func (a *faultLog) onViolation(e *loadgen.Event) {
	kind, _ := oracle.Violation(e.Kind).Kind()
	if kind.Once == "" {
		return
	}
	h, pair := a.holds[a.slot(e)], a.lock.TooMany()
	switch {
	case kind.ID == oracle.Overlap && h.token == e.Token && h.overlaps > 0:
		pair = fmt.Sprintf("client-%d and %s", h.overlaps, e.Owner())
	case kind.ID == oracle.StuckKey && h.fault.kind == loadgen.Crash && h.fault.where != "":
		kind.Once = fmt.Sprintf("{key} can never be acquired again: client-%d died %s, so the key has no TTL", h.client, h.fault.where)
		kind.Often = kind.Once
	}
	a.fold(e, strings.ReplaceAll(kind.Once, "{pair}", pair), strings.ReplaceAll(kind.Often, "{clients}", a.lock.TooMany()))
}

// slot returns the index of a hold in holds: that of its key, and for a semaphore also of its
// client, because another client does not take its place.
func (a *faultLog) slot(e *loadgen.Event) string {
	if a.lock.Limit() > 1 {
		return e.Key + " " + e.Owner()
	}
	return e.Key
}

// fold adds a sentence about an event that can happen many times per second. Until the next
// fault, it combines repetitions in one sentence, so that they do not displace the others.
func (a *faultLog) fold(e *loadgen.Event, once, many string) {
	for i := len(a.lines) - 1; i >= 0 && a.lines[i].kind != loadgen.FaultBegan; i-- {
		l := &a.lines[i]
		if l.kind != e.Kind || l.key != e.Key {
			continue
		}
		l.n++
		l.longest = max(l.longest, e.Took)
		l.text = strings.NewReplacer("{key}", e.Key, "{n}", fmt.Sprint(l.n), "{longest}", humanize.Duration(l.longest)).Replace(many)
		return
	}
	late := e.Owner() + " works past its lease and" // by itself
	if e.Text == string(loadgen.Freeze) {
		late = e.Owner() + " wakes and"
	}
	l := a.add(e, strings.NewReplacer("{client}", e.Owner(), "{late}", late, "{key}", e.Key, "{fence}", fmt.Sprint(e.Fence),
		"{took}", humanize.Duration(e.Took)).Replace(once))
	l.key, l.n, l.longest = e.Key, 1, e.Took
}

// onAcquired records the holder of a key. It adds a sentence if the previous holder did not
// release it.
func (a *faultLog) onAcquired(e *loadgen.Event) {
	before := a.holds[a.slot(e)]
	if e.Shared {
		return
	}
	a.holds[a.slot(e)] = clientHold{key: e.Key, client: e.Client, token: e.Token, began: e.At, fence: e.Fence, overlaps: before.client}
	if before.stopped.IsZero() || before.client == e.Client {
		return
	}
	number := ""
	if e.Fence > 0 && before.fence > 0 {
		number = fmt.Sprintf(", with fencing token %d after %d", e.Fence, before.fence)
	}
	after := humanize.Duration(e.At.Sub(before.stopped))
	if before.fault.kind == loadgen.Crash {
		a.add(e, fmt.Sprintf("the lease of client-%d on %s has run out: %s acquires it, %s after the crash%s", before.client, e.Key, e.Owner(), after, number))
		return
	}
	a.add(e, fmt.Sprintf("client-%d still believes it has %s, but its lease has run out: %s acquires it as well%s", before.client, e.Key, e.Owner(), number))
}

// onAbandoned records that a holder ended without a release.
func (a *faultLog) onAbandoned(e *loadgen.Event) {
	h, x := a.holds[a.slot(e)], a.faulted[e.Client]
	if h.token != e.Token || x.kind == "" {
		return
	}
	h.client, h.stopped, h.fault = e.Client, e.At, x
	a.holds[a.slot(e)] = h
	switch {
	case x.kind == loadgen.Leak && a.lock.Limit() > 1:
		a.add(e, fmt.Sprintf("%s forgets its permit of %s and goes on renewing it: nobody else gets it", e.Owner(), e.Key))
	case x.kind == loadgen.Leak:
		a.add(e, fmt.Sprintf("%s forgets %s and goes on renewing it: nobody else gets it", e.Owner(), e.Key))
	case x.where != "":
		a.lost = true
		a.add(e, fmt.Sprintf("%s dies %s: %s has no TTL, so nothing will ever free it", e.Owner(), x.where, e.Key))
	case a.lock.Limit() > 1:
		a.add(e, fmt.Sprintf("%s dies without releasing %s: nobody gets its permit before the lease runs out", e.Owner(), e.Key))
	default:
		a.add(e, fmt.Sprintf("%s dies without releasing %s: nobody gets it before the lease runs out", e.Owner(), e.Key))
	}
}

// onFault records a fault and adds its effect on the holds of the client.
func (a *faultLog) onFault(e *loadgen.Event, quorum int) {
	switch e.Fault {
	case loadgen.NodeDown, loadgen.RestartEmpty:
		a.downNodes[e.Text] = true
		a.add(e, fmt.Sprintf("%s goes down: %s", e.Text, a.majority(quorum)))
		return
	}
	if e.Client > 0 {
		a.faulted[e.Client] = activeFault{e.Fault, e.Text}
	}
	if text := injected(e); text != "" {
		a.add(e, text)
		return
	}
	verb := strikes(e)
	if e.Key != "" { // from an agent, which does not send the holds
		a.add(e, fmt.Sprintf("%s %s while holding %s", e.Owner(), verb, e.Key))
		return
	}
	for slot, h := range a.holds {
		key := h.key
		if h.client == e.Client && (e.Fault == loadgen.Freeze || e.Fault == loadgen.Partition) { // no renewals, and the client does not know
			h.stopped, h.fault.kind = e.At, e.Fault
			a.holds[slot] = h
			text := fmt.Sprintf("%s %s while holding %s", e.Owner(), verb, key)
			if e.Text == "" { // a lock with several commands or servers may still be renewed
				text += " and does not renew its lease"
			}
			a.add(e, text)
		}
	}
}

// strikes says what a fault does to a holder.
func strikes(e *loadgen.Event) string {
	if e.Fault == loadgen.Partition {
		return "is cut off from " + cmp.Or(e.Text, "the server")
	}
	verb := cmp.Or(map[loadgen.FaultKind]string{
		loadgen.Freeze: "freezes", loadgen.Crash: "crashes", loadgen.Leak: "begins to renew without end",
	}[e.Fault], "has the fault "+string(e.Fault))
	return strings.TrimSpace(verb + " " + e.Text) // like before EXPIRE
}

// injected returns a sentence about a fault without an immediate effect on a hold, else "".
func injected(e *loadgen.Event) string {
	return map[loadgen.FaultKind]string{
		loadgen.ExternalDelete: "fault injected: another program deletes a lock that is held",
		loadgen.Flush:          "fault injected: all locks of the load are deleted",
		loadgen.ScriptFlush:    "fault injected: the server forgets its scripts",
		loadgen.Greedy:         "fault injected: " + e.Owner() + " comes back at once after every release",
		loadgen.Slow:           "fault injected: every packet of " + e.Owner() + " is delayed",
		loadgen.Skew:           "fault injected: the clock of " + e.Owner() + " is wrong from now on",
		loadgen.DropReplies:    "fault injected: requests of " + e.Owner() + " arrive, the replies to it are lost",
	}[e.Fault]
}

// onSnapshot adds a sentence for each holder on the server that does not know of its hold, because
// the reply was lost. locks come from the newest snapshot.
func (a *faultLog) onSnapshot(at time.Time, locks []*keyspace.Lock) {
	if len(a.faulted) == 0 {
		return
	}
	for i := range locks {
		l := locks[i]
		for _, h := range l.Holders {
			if !a.unaware[h.ID] && a.isUnaware(h.Label, l.Key, h.ID) {
				a.unaware[h.ID] = true
				a.add(&loadgen.Event{At: at, Kind: loadgen.Abandoned}, fmt.Sprintf("the server granted %s to %s, which still waits for the reply: nobody else gets it", l.Key, h.Label))
			}
		}
	}
}

// isUnaware reports whether owner holds key on the server with a token that the client does not
// know, because it gets no replies.
func (a *faultLog) isUnaware(owner, key, token string) bool {
	if !a.lock.Kind.Sound() { // stored tokens do not name the clients
		return false
	}
	for client, x := range a.faulted {
		if x.kind == loadgen.DropReplies && owner == (loadgen.Event{Client: client}).Owner() {
			return a.holds[key].token != token
		}
	}
	return false
}

// onHealed records the end of a fault.
func (a *faultLog) onHealed(e *loadgen.Event, quorum int) {
	switch e.Fault {
	case loadgen.NodeDown, loadgen.RestartEmpty:
		delete(a.downNodes, e.Text)
		a.add(e, fmt.Sprintf("%s is back: %s", e.Text, a.majority(quorum)))
	case loadgen.DropReplies:
		a.add(e, e.Owner()+" gets replies again")
		fallthrough
	default:
		delete(a.faulted, e.Client)
	}
}

// majority describes how many servers are up, and whether they are a majority.
func (a *faultLog) majority(quorum int) string {
	up, most := quorum-len(a.downNodes), keyspace.Quorum(quorum)
	if up >= most {
		return fmt.Sprintf("%d of %d nodes up (majority: %d)", up, quorum, most)
	}
	return fmt.Sprintf("%d of %d nodes up (majority: %d): no lock can be acquired until %d respond", up, quorum, most, most)
}

// add adds a sentence in the order of time: violations are found later than they happen.
func (a *faultLog) add(e *loadgen.Event, text string) *logEntry {
	if n := len(a.lines) - 2*linesKept; n >= 0 {
		a.lines = slices.Clone(a.lines[n+linesKept:])
	}
	at := len(a.lines)
	for at > 0 && a.lines[at-1].at.After(e.At) {
		at--
	}
	a.lines = slices.Insert(a.lines, at, logEntry{at: e.At, kind: e.Kind, text: text})
	return &a.lines[at]
}

// faultLogBlock draws the newest sentences in at most h lines, in the order of time.
func (s *state) faultLogBlock(w, h int) []string {
	if len(s.run.faultLog.lines) == 0 || h < 3 {
		return nil
	}
	var all []string
	for i := len(s.run.faultLog.lines) - 1; i >= 0; i-- {
		entry := &s.run.faultLog.lines[i]
		glyph, st := s.look(entry.kind)
		text := entry.text
		if s.run.scenario.Keys.N == 1 {
			text = strings.ReplaceAll(text, s.run.scenario.Keys.Prefix+"1", "the lock")
		}
		when := entry.at.Local().Format("15:04:05")
		if s.run.scene >= 0 { // as below its lanes
			when = fmt.Sprintf("%5.1f s", max(0, entry.at.Sub(s.run.metrics.Began).Seconds()))
		}
		var lines []string
		edge := len(when) + 4
		for n, text := range s.screen.glyphs.Wrap(s.redactLoad(text), w-edge-1, 3) {
			l := widget.NewLine(w).Pad(widget.Style{}, 1)
			if n == 0 {
				l.Put(s.screen.theme.dim, when).Pad(widget.Style{}, 1).Put(st, glyph)
			}
			lines = append(lines, l.PadTo(widget.Style{}, edge).Put(st, text).String())
		}
		if len(all) > 0 && len(all)+len(lines) >= h {
			break
		}
		all = append(lines, all...)
	}
	all = append([]string{s.ruleOf(w, "what happened", "newest last")}, all...)
	return all[:min(h, len(all))]
}

// redactLoad returns a sentence about the load, hidden in privacy mode.
func (s *state) redactLoad(text string) string {
	if s.privacy.on {
		return s.screen.glyphs.Ellipsis
	}
	return widget.Plain(text)
}
