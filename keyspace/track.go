package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/humanize"
)

// How a tracker goes about its connections.
const (
	settle    = 200 * time.Millisecond // between two connections, while prefixes are being learnt
	earFirst  = 500 * time.Millisecond // before the next attempt to get one, then doubled …
	earLast   = 15 * time.Second       // … up to this
	pushSlack = 10 * time.Millisecond
	everyMost = 2000                   // changes a second of all keys, above which we hear of prefixes only …
	everyRest = time.Minute            // … for so long
	toldLate  = 100 * time.Millisecond // the latest that we take in a message about a change
)

// tracker sees to it that there is an ear, that it hears of all known locks, and
// tells in which mode that is.
type tracker struct {
	options  *redis.Options // nil: there is no way to make a connection of its own
	wanted   []subscription
	events   subscription
	prefixes prefixes

	ear     *ear // that hears; nil if none does
	coming  *ear // that is not ready yet
	tried   time.Time
	pause   time.Duration
	kept    heard // that was heard, and could not be looked at
	resync  bool  // something may not have been heard: look at everything
	hungUp  bool  // an ear has ended by itself: who knows what the server is now
	outgrew bool  // the ear has not been told all prefixes
	why     error // why the server does not tell of changes
	notify  bool  // keyspace notifications come instead

	strays map[string]bool // known locks that no prefix covers
	shapes patterns        // of names that no prefixes cover
	every  bool            // the ear hears of all keys, for the sake of such names
	quiet  time.Time       // until then it does not
	second time.Time       // in which …
	heardN int             // … so many changes were heard
	marks  int             // that were sent to ears
	marked bool            // since the last news
	passed int             // the last that was among the news
}

// newTracker returns a tracker for the server of s.
func newTracker(s *Scanner) tracker {
	t := tracker{prefixes: make(prefixes), strays: make(map[string]bool), why: errors.New("nobody has asked for it yet")}
	if c, ok := s.rdb.(interface{ Options() *redis.Options }); ok {
		t.options = c.Options()
	}
	t.wanted = announcements(s.opts.Formats, s.opts.DB)
	t.events = keyspaceEvents(s.opts.DB)
	return t
}

// learn makes the next ear hear of a lock and of what it keeps beside it.
func (t *tracker) learn(l found) {
	changed := t.learnName(l.lock.Key)
	for _, c := range l.claims {
		changed = t.learnName(c.Key) || changed
	}
	t.outgrew = t.outgrew || changed
	delete(t.strays, l.lock.Key)
	if !t.covers(l.lock.Key) || slices.ContainsFunc(l.claims, func(c Companion) bool { return !t.covers(c.Key) }) {
		t.strays[l.lock.Key] = true
	}
}

// learnName makes the next ear hear of a key, and reports whether it hears of more
// than this one then. A name whose pattern is known takes no prefix.
func (t *tracker) learnName(key string) bool {
	for first := range t.shapes.learn(key) {
		delete(t.prefixes, first) // which leaves room for others
	}
	return !t.shapes.cover(key) && t.prefixes.learn(key)
}

// covers reports whether a key is one that the next ear hears of: by its prefix, or by its
// pattern while it hears of all keys.
func (t *tracker) covers(key string) bool {
	return t.prefixes.cover(key) || t.every && t.shapes.cover(key)
}

// listenToAll decides whether the next ear is to hear of all keys: where names have a
// pattern that no prefixes cover, as long as not too much is written.
func (t *tracker) listenToAll(known picture, now time.Time) {
	if now.Sub(t.second) > time.Second {
		if t.every && !t.second.IsZero() && float64(t.heardN) > everyMost*now.Sub(t.second).Seconds() {
			t.quiet = now.Add(everyRest)
		}
		t.second, t.heardN = now, 0
	}
	if every := len(t.shapes.learnt) > 0 && now.After(t.quiet); every != t.every {
		t.every, t.outgrew = every, true
		t.second, t.heardN = now, 0
		clear(t.strays)
		for _, l := range known {
			t.learn(l)
		}
	}
}

// attend replaces an ear that is over, or that has to hear of more.
func (t *tracker) attend(known picture) {
	if t.options == nil {
		t.why = errors.New("the client cannot be asked for a connection of its own")
		return
	}
	t.bury()
	t.welcome()
	t.listenToAll(known, time.Now())
	if t.coming != nil || time.Since(t.tried) < max(t.pause, settle) {
		return
	}
	if t.ear == nil || t.outgrew && (t.every || len(t.prefixes) > 0) {
		t.tried, t.outgrew = time.Now(), false
		wanted := t.wanted
		if t.notify {
			wanted = append(slices.Clone(wanted), t.events)
		}
		asked := t.prefixes.disjoint()
		if t.every {
			asked = []string{""}
		}
		t.coming = listen(t.options, asked, wanted)
	}
}

// bury takes leave of an ear that hears no more.
func (t *tracker) bury() {
	if t.ear == nil {
		return
	}
	if err, over := t.ear.over(); over {
		t.retire(t.ear)
		t.hungUp = true
		t.ear, t.why = nil, fmt.Errorf("the connection that told of changes is lost: %w", err)
		t.later()
	}
}

// welcome takes the new ear into service as soon as it is ready.
func (t *tracker) welcome() {
	if t.coming == nil {
		return
	}
	select {
	case <-t.coming.ready:
	default:
		return
	}
	next := t.coming
	t.coming = nil
	if err, over := next.over(); over {
		t.retire(next)
		t.why = err
		t.later()
		return
	}
	if t.ear != nil {
		t.retire(t.ear)
	}
	t.ear, t.pause, t.resync = next, 0, true
	t.why = next.tracking()
	if notify := t.why != nil && next.notified(); notify != t.notify {
		t.notify, t.outgrew = notify, true // the next ear listens to what this one need not, or the other way round
	}
}

// later puts the next attempt off.
func (t *tracker) later() { t.pause = min(max(earFirst, 2*t.pause), earLast) }

// retire closes an ear and keeps what it has heard.
func (t *tracker) retire(e *ear) {
	e.close()
	t.put(e.news())
	t.resync = true
}

// close closes everything.
func (t *tracker) close() {
	for _, e := range []*ear{t.ear, t.coming} {
		if e != nil {
			e.close()
		}
	}
	t.ear, t.coming = nil, nil
}

// put gives back what was heard and could not be looked at.
func (t *tracker) put(h heard) {
	for _, key := range h.keys {
		t.kept.note(key, h.since[key])
		if h.again[key] {
			mark(&t.kept.again, key)
		}
	}
	for key := range h.released {
		mark(&t.kept.released, key)
	}
	for key := range h.toWaiter {
		mark(&t.kept.toWaiter, key)
	}
	for key := range h.evicted {
		mark(&t.kept.evicted, key)
	}
	t.kept.flushed = t.kept.flushed || h.flushed
	t.kept.mark = max(t.kept.mark, h.mark)
}

// mark has the server send a mark back to the ear, behind all that it has said to it
// so far. Between two calls of news it is the same one.
func (t *tracker) mark(ctx context.Context) int {
	if !t.marked {
		t.marks++
		t.marked = true
		_ = t.ear.ps.Ping(ctx, strconv.Itoa(t.marks)) // it fails if the ear is over, which is noticed
	}
	return t.marks
}

// news takes what was heard since the last call.
func (t *tracker) news() heard {
	t.marked = false
	if t.ear != nil {
		t.put(t.ear.news())
	}
	t.heardN += len(t.kept.keys)
	h := t.kept
	t.kept = heard{}
	t.passed = max(t.passed, h.mark)
	return h
}

// wake is ready when something was heard.
func (t *tracker) wake() <-chan struct{} {
	switch {
	case t.coming != nil && t.ear == nil:
		return t.coming.ready
	case t.ear != nil:
		return t.ear.wake
	default:
		return nil
	}
}

// mode says how changes are learnt of at the moment.
func (t *tracker) mode() WatchMode {
	switch {
	case t.ear != nil && t.why == nil:
		return Push
	case t.ear != nil && t.notify:
		return Notifications
	default:
		return Polling
	}
}

// slack is how long before its deadline a lock may be gone and still have
// expired. Where the server tells of changes, looks are close to what they show.
func (t *tracker) slack() time.Duration {
	if t.mode() == Push {
		return pushSlack
	}
	return slack
}

// uncovered lists the locks that have to be looked at because nobody tells of
// their changes.
func (t *tracker) uncovered(known picture) []string {
	if t.mode() == Polling || len(t.strays) == 0 {
		return nil
	}
	var keys []string
	for key := range t.strays {
		if _, still := known[key]; still {
			keys = append(keys, key)
		} else {
			delete(t.strays, key)
		}
	}
	return keys
}

// blind lists what cannot be seen, and why.
func (t *tracker) blind(formats catalogue) []string {
	var all []string
	switch t.mode() {
	case Polling:
		all = append(all, fmt.Sprintf("holds shorter than %s may not be seen, because the server does not tell of changes: %v", humanize.Setting(pollEvery), t.why))
	case Notifications:
		all = append(all, fmt.Sprintf("what happens while notifications are lost is seen up to %s late", humanize.Setting(checkEvery)))
	}
	if t.ear == nil {
		return all
	}
	if n := len(t.strays); n > 0 && t.mode() == Push {
		all = append(all, fmt.Sprintf("%s locks are looked at every %s only: their names have too little in common, or too much else is written", humanize.Count(n), humanize.Setting(pollEvery)))
	}
	for _, name := range t.ear.silent() {
		for _, f := range formats {
			if f.ReleaseChannel != nil && f.ReleaseChannel.Pattern == name {
				all = append(all, fmt.Sprintf("deleted locks of %s count as released: this user may not listen to %s", f.Library, name))
			}
		}
	}
	return all
}

// hears reports whether announcements of a format would be heard.
func (t *tracker) hears(f *Format) bool {
	return f != nil && f.ReleaseChannel != nil && t.ear != nil && !slices.Contains(t.ear.silent(), f.ReleaseChannel.Pattern)
}

// lag is how late changes were read.
type lag struct {
	worst time.Duration
	since time.Time
	past  time.Duration // the worst of the second before
}

// read books what was told of and has been read now.
func (l *lag) read(h heard) {
	now := time.Now()
	if now.Sub(l.since) > time.Second {
		l.past, l.worst, l.since = l.worst, 0, now
	}
	for _, told := range h.since {
		l.worst = max(l.worst, now.Sub(told))
	}
}

// of is the worst of the last one to two seconds.
func (l *lag) of() time.Duration { return max(l.worst, l.past) }
