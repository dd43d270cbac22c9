package tui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// state is the state that all pages share. Only Update changes it; views read it.
type state struct {
	config  Config
	formats map[string]keyspace.Format // of the configuration, by name
	screen
	keymap keymap
	now    time.Time

	live      *viewModel  // newest view model; nil before the first
	paused    *pausedView // nil unless paused
	history   keyspace.History
	log       eventLog
	timeline  timeline
	refresher refresher
	playback  *PlaybackState // nil in a live view
	privacy   privacy

	run     loadState
	raw     rawValue
	clients holderClients
	snoozes snoozes

	expired keyspace.Event // a hold that expired, until another client has its lock

	dialog dialog
	notice notice
	next   func(*app) tea.Cmd // what a key causes besides, done before the next key; or nil
}

// screen is what a page must know of the terminal.
type screen struct {
	w, h     int
	renderer *lipgloss.Renderer // writes the styles of the theme
	theme    theme
	glyphs   widget.Glyphs
}

// notice is the message of the last key in the last line.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

// current returns the view model on the screen: the paused one or the newest. It is empty
// before the first snapshot.
func (s *state) current() *viewModel {
	switch {
	case s.paused != nil:
		return s.paused.model
	case s.live != nil:
		return s.live
	default:
		return &viewModel{review: new(keyspace.Review)}
	}
}

// clock returns the server's time of the view. It stops while the view is paused or stale.
func (s *state) clock() time.Time {
	switch {
	case s.playback != nil:
		return s.playback.At
	case s.paused != nil:
		return s.paused.clock
	case s.refresher.stale():
		return s.refresher.answered.Add(s.current().offset)
	default:
		return s.now.Add(s.current().offset)
	}
}

// readsPromptly reports whether a watch reads a change shortly after it happens.
func readsPromptly(w keyspace.WatchStatus) bool {
	return (w.Mode == keyspace.Push || w.Mode == keyspace.Notifications) && w.Lag < 100*time.Millisecond
}

// openLock opens the page of a lock after the key.
func (s *state) openLock(l keyspace.Lock) {
	s.next = func(a *app) tea.Cmd { a.showLock(l); return nil }
}

// leave opens the page before after the key. why is the reason why the first page has nothing to leave.
func (s *state) leave(why string) {
	s.next = func(a *app) tea.Cmd { a.leavePage(why); return nil }
}

// notify shows a message in the last line for up to 4 s. It returns nil: no command follows.
func (s *state) notify(text string) tea.Cmd {
	s.notice = notice{text, false, s.now.Add(4 * time.Second)}
	return nil
}

// reject shows for up to 4 s why a key has no effect. It returns nil: no command follows.
func (s *state) reject(why string) tea.Cmd {
	s.notice = notice{why, true, s.now.Add(4 * time.Second)}
	return nil
}

// rejectStart shows why the clients did not start: completely on the Load page, and with its
// beginning in the last line.
func (s *state) rejectStart(why string) {
	s.run.failed = why
	s.reject(why)
}

const (
	retryAfter   = time.Second     // from a failed request to the next
	checkTimeout = 3 * time.Second // from a request without an answer to a stale view
	slowAfter    = time.Second     // from a request without an answer to a notice about the delay
)

// refresher schedules snapshot requests. Only one request is active at a time, so answers
// arrive in order and a slow server never gets a second request.
type refresher struct {
	every    time.Duration // between two requests
	busy     bool          // a request is active
	asked    time.Time     // start of the request
	next     time.Time     // earliest time of the next request
	answered time.Time     // last successful answer
	silent   bool          // a request is active for longer than checkTimeout
	failed   bool          // the last request failed
	reason   string        // that error in plain words
	refused  bool          // that error is a reply of the server
}

func (k *refresher) end(at time.Time, err error) {
	k.busy, k.silent = false, false
	k.failed = err != nil
	if err != nil {
		k.reason = shortError(err)
		_, k.refused = errors.AsType[interface {
			error
			RedisError()
		}](err)
		k.next = at.Add(retryAfter)
		return
	}
	k.answered = at
}

// stale reports whether the last snapshot is out of date.
func (k *refresher) stale() bool { return k.failed || k.silent }

// setPace changes the refresh interval.
func (s *state) setPace(every time.Duration) {
	if every < tickInterval || every > time.Hour {
		s.reject("already at the limit: refresh every " + humanize.Setting(s.refresher.every))
		return
	}
	s.refresher.every = every
	s.notify("refresh every " + humanize.Setting(every))
}

// askRescan scans all keys again; on a production server after a question.
func (a *app) askRescan() {
	scan := func(*state) (dialog, tea.Cmd) {
		a.config.Rescan()
		return nil, a.notify("scanning all keys, without the limit of --budget")
	}
	switch {
	case a.config.Rescan == nil:
		a.reject("only a server can be scanned again")
	case a.config.Production:
		a.dialog = &menu{title: "scan all keys of " + a.address() + " now?", about: []string{"Without the limit of --budget, the scan takes as much of the server's time as it can get."},
			choices: []choice{{key: "y", label: "scan now", pick: scan}}}
	default:
		_, _ = scan(&a.state)
	}
}

// shortError returns a short text for the error of a request.
func shortError(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "no such host " + widget.Plain(dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EPIPE):
		return "the server closed the connection"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	default:
		return widget.Plain(err.Error())
	}
}

// pausedView is the view model on a paused screen, and when the pause began.
type pausedView struct {
	model   *viewModel
	clock   time.Time // server's time of the view
	since   time.Time // local start of the pause
	events  int       // number of events before the pause
	rewound bool      // the view is older than the pause
}

// pause toggles the pause.
func (s *state) pause() {
	switch {
	case s.paused != nil:
		s.paused = nil
	case s.live == nil:
		s.reject("nothing to pause yet")
	default:
		s.paused = &pausedView{model: s.live, clock: s.clock(), since: s.now, events: s.log.total}
	}
}

// rewind moves the paused view by a duration within the history. It pauses a live view first.
func (s *state) rewind(by time.Duration) {
	if s.paused == nil {
		if by > 0 {
			s.reject("this is now")
			return
		}
		s.pause()
	}
	if s.paused != nil {
		s.rewindTo(s.paused.clock.Add(by))
	}
}

// rewindTo shows the recorded snapshot of a moment of the server's time. A moment after the
// newest snapshot ends the pause.
func (s *state) rewindTo(at time.Time) {
	oldest, newest := s.history.Span()
	switch {
	case oldest.IsZero():
		s.reject("there is no past yet")
		return
	case !at.Before(newest):
		s.paused = nil
		s.notify("this is now")
		return
	case at.Before(oldest):
		s.notify("no older snapshot is kept: this one is " + humanize.Duration(newest.Sub(oldest)) + " old")
		at = oldest
	}
	if s.paused == nil {
		s.pause()
	}
	snap, _ := s.history.At(at)
	held := *s.paused
	held.model, held.clock, held.rewound = newViewModel(snap, s.now, nil).withSnoozes(s), at, true
	s.paused = &held
}

// past returns the events up to the shown moment.
func (s *state) past() []loggedEvent {
	if s.paused == nil {
		return s.log.events
	}
	n := len(s.log.events)
	for n > 0 && s.log.events[n-1].at.After(s.paused.clock) {
		n--
	}
	return s.log.events[:n]
}

// rewindStep is the distance of one rewind key press in a live view.
const rewindStep = time.Second

// Below is what differs for a recording: the Player controls time.

// seekStep is the distance of one rewind or forward key press in a recording.
const seekStep = 5 * time.Second

// speeds lists the playback speeds.
var speeds = []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32}

// replayKey handles pause, rewind, forward and live.
func (a *app) replayKey(act action) {
	p := a.config.Player
	now := p.Playing()
	switch act {
	case pause:
		p.Pause(!now.Paused)
	case rewind:
		a.seek(now.At.Add(-seekStep))
	case forward:
		a.seek(now.At.Add(seekStep))
	case live:
		a.seek(now.Last)
	}
	a.syncPlayer()
}

// seek goes to a moment of the recording. The next snapshot resets everything derived from
// earlier ones.
func (a *app) seek(to time.Time) {
	a.config.Player.Seek(to)
	a.seekCount++
	a.refresher.next = a.now
	a.syncPlayer()
}

// syncPlayer updates the playback state from the Player.
func (a *app) syncPlayer() {
	if a.config.Player != nil {
		now := a.config.Player.Playing()
		a.playback = &now
	}
}

// resetReplay discards history, events and timeline after a seek.
func (a *app) resetReplay() {
	a.seekSeen = a.seekCount
	a.live, a.paused = nil, nil
	a.history, a.log, a.timeline = keyspace.History{}, eventLog{}, timeline{}
}

// setSpeed sets the playback speed.
func (a *app) setSpeed(factor float64) {
	a.config.Player.SetSpeed(factor)
	a.syncPlayer()
	a.notify(fmt.Sprintf("playback %g%s", factor, a.screen.glyphs.Times))
}

// position describes the position in the recording.
func (p *PlaybackState) position(s *state) string {
	sign := s.screen.glyphs.Play
	if p.Paused {
		sign = s.screen.glyphs.Paused
	}
	text := fmt.Sprintf(" %s %s / %s ", sign, humanize.Clock(p.At.Sub(p.First)), humanize.Clock(p.Last.Sub(p.First)))
	if p.Speed != 1 {
		text += fmt.Sprintf("%g%s ", p.Speed, s.screen.glyphs.Times)
	}
	return text
}

// privacy replaces keys, owners and addresses by hashes, so that the user can show the screen
// to others. The salt is random for each run, because hashes of short names could be guessed.
type privacy struct {
	on   bool
	salt [16]byte
}

// hash returns a name for display: escaped, or in privacy mode its hash after a prefix.
func (p *privacy) hash(prefix, name string) string {
	if !p.on || name == "" {
		return widget.Plain(name)
	}
	sum := sha256.Sum256(append(p.salt[:], name...))
	return prefix + hex.EncodeToString(sum[:4])
}

// key returns a key for display.
func (p *privacy) key(key string) string { return p.hash("key-", key) }

// owner returns the name of an owner or a waiter for display.
func (p *privacy) owner(name string) string { return p.hash("owner-", name) }

// addr returns an address for display.
func (p *privacy) addr(addr string) string { return p.hash("node-", addr) }

// redactText returns a sentence about a lock, or about the servers, for display. If the lock is
// unknown in privacy mode, it returns an ellipsis.
func (s *state) redactText(about keyspace.ID, text string) string {
	if !s.privacy.on {
		return widget.Plain(text)
	}
	p, model, hidden := &s.privacy, s.current(), redactions{}
	switch l, ok := model.lock(about); {
	case about == (keyspace.ID{}):
		hidden[model.snap.Server.Addr] = p.addr(model.snap.Server.Addr)
		for i := range model.snap.Nodes {
			hidden[model.snap.Nodes[i].Addr] = p.addr(model.snap.Nodes[i].Addr)
		}
	case !ok:
		return s.screen.glyphs.Ellipsis
	default:
		hidden.add(p, &l)
		for _, d := range model.review.Deadlocks { // the finding names the other locks too
			if slices.ContainsFunc(d.Waits, func(w keyspace.Wait) bool { return w.Lock.ID() == about }) {
				for _, w := range d.Waits {
					hidden.add(p, w.Lock)
				}
			}
		}
	}
	return widget.Plain(hidden.apply(text))
}

// redactions has the replacements of names.
type redactions map[string]string

// add adds the names of a lock.
func (m redactions) add(p *privacy, l *keyspace.Lock) {
	m[l.Key], m[l.Node] = p.key(l.Key), p.addr(l.Node)
	for i := range l.Holders {
		id, label := l.Holders[i].ID, l.Holders[i].Label
		m[id], m[label] = p.owner(id), p.owner(label)
	}
	for i := range l.Waiters {
		m[l.Waiters[i].ID] = p.owner(l.Waiters[i].ID)
	}
}

// apply replaces all names in a text. Longer names have priority: replacing a prefix would
// reveal the rest.
func (m redactions) apply(text string) string {
	delete(m, "")
	var pairs []string
	for _, name := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, name, m[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
