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
	prefixDebounce = 200 * time.Millisecond // between two connections, while prefixes are being learnt
	minReconnect   = 500 * time.Millisecond // before the next attempt to get one, then doubled …
	maxReconnect   = 15 * time.Second       // … up to this
	pushSlack      = 10 * time.Millisecond
	maxAllKeysRate = 2000                   // changes a second of all keys, above which we hear of prefixes only …
	allKeysPause   = time.Minute            // … for so long
	maxReportDelay = 100 * time.Millisecond // the latest that we take in a message about a change
)

// tracking sees to it that there is an ear, that it hears of all known locks, and
// tells in which mode that is.
type tracking struct {
	options   *redis.Options // nil: there is no way to make a connection of its own
	releases  []subscription
	keyEvents subscription
	prefixes  prefixes

	conn             *invalidationConn // that hears; nil if none does
	nextConn         *invalidationConn // that is not ready yet
	dialedAt         time.Time
	backoff          time.Duration
	pending          changes // that was heard, and could not be looked at
	resync           bool    // something may not have been heard: look at everything
	disconnected     bool    // an ear has ended by itself: who knows what the server is now
	prefixesStale    bool    // the ear has not been told all prefixes
	trackErr         error   // why the server does not tell of changes
	useNotifications bool    // keyspace notifications come instead

	uncovered    map[string]bool // known locks that no prefix covers
	patterns     patterns        // of names that no prefixes cover
	allKeys      bool            // the ear hears of all keys, for the sake of such names
	allKeysFrom  time.Time       // until then it does not
	rateStart    time.Time       // in which …
	rateCount    int             // … so many changes were heard
	marksSent    int             // that were sent to ears
	markPending  bool            // since the last news
	markReceived int             // the last that was among the news
}

// newTracking returns a tracker for the server of s.
func newTracking(s *Scanner) tracking {
	t := tracking{prefixes: make(prefixes), uncovered: make(map[string]bool), trackErr: errors.New("nobody has asked for it yet")}
	if c, ok := s.rdb.(interface{ Options() *redis.Options }); ok {
		t.options = c.Options()
	}
	t.releases = releaseSubscriptions(s.opts.Formats, s.opts.DB)
	t.keyEvents = keyspaceEvents(s.opts.DB)
	return t
}

// learn makes the next ear hear of a lock and of what it keeps beside it.
func (t *tracking) learn(l detection) {
	changed := t.learnName(l.lock.Key)
	for _, c := range l.companions {
		changed = t.learnName(c.Key) || changed
	}
	t.prefixesStale = t.prefixesStale || changed
	delete(t.uncovered, l.lock.Key)
	if !t.covers(l.lock.Key) || slices.ContainsFunc(l.companions, func(c Companion) bool { return !t.covers(c.Key) }) {
		t.uncovered[l.lock.Key] = true
	}
}

// learnName makes the next ear hear of a key, and reports whether it hears of more
// than this one then. A name whose pattern is known takes no prefix.
func (t *tracking) learnName(key string) bool {
	for first := range t.patterns.learn(key) {
		delete(t.prefixes, first) // which leaves room for others
	}
	return !t.patterns.cover(key) && t.prefixes.learn(key)
}

// covers reports whether a key is one that the next ear hears of: by its prefix, or by its
// pattern while it hears of all keys.
func (t *tracking) covers(key string) bool {
	return t.prefixes.cover(key) || t.allKeys && t.patterns.cover(key)
}

// updateAllKeys decides whether the next ear is to hear of all keys: where names have a
// pattern that no prefixes cover, as long as not too much is written.
func (t *tracking) updateAllKeys(known lockSet, now time.Time) {
	if now.Sub(t.rateStart) > time.Second {
		if t.allKeys && !t.rateStart.IsZero() && float64(t.rateCount) > maxAllKeysRate*now.Sub(t.rateStart).Seconds() {
			t.allKeysFrom = now.Add(allKeysPause)
		}
		t.rateStart, t.rateCount = now, 0
	}
	if every := len(t.patterns.learnt) > 0 && now.After(t.allKeysFrom); every != t.allKeys {
		t.allKeys, t.prefixesStale = every, true
		t.rateStart, t.rateCount = now, 0
		clear(t.uncovered)
		for _, l := range known {
			t.learn(l)
		}
	}
}

// maintain replaces an ear that is over, or that has to hear of more.
func (t *tracking) maintain(known lockSet) {
	if t.options == nil {
		t.trackErr = errors.New("the client cannot be asked for a connection of its own")
		return
	}
	t.reap()
	t.promote()
	t.updateAllKeys(known, time.Now())
	if t.nextConn != nil || time.Since(t.dialedAt) < max(t.backoff, prefixDebounce) {
		return
	}
	if t.conn == nil || t.prefixesStale && (t.allKeys || len(t.prefixes) > 0) {
		t.dialedAt, t.prefixesStale = time.Now(), false
		wanted := t.releases
		if t.useNotifications {
			wanted = append(slices.Clone(wanted), t.keyEvents)
		}
		asked := t.prefixes.disjoint()
		if t.allKeys {
			asked = []string{""}
		}
		t.nextConn = dialInvalidations(t.options, asked, wanted)
	}
}

// reap takes leave of an ear that hears no more.
func (t *tracking) reap() {
	if t.conn == nil {
		return
	}
	if err, over := t.conn.closedWith(); over {
		t.retire(t.conn)
		t.disconnected = true
		t.conn, t.trackErr = nil, fmt.Errorf("the connection that told of changes is lost: %w", err)
		t.delayRetry()
	}
}

// promote takes the new ear into service as soon as it is ready.
func (t *tracking) promote() {
	if t.nextConn == nil {
		return
	}
	select {
	case <-t.nextConn.ready:
	default:
		return
	}
	next := t.nextConn
	t.nextConn = nil
	if err, over := next.closedWith(); over {
		t.retire(next)
		t.trackErr = err
		t.delayRetry()
		return
	}
	if t.conn != nil {
		t.retire(t.conn)
	}
	t.conn, t.backoff, t.resync = next, 0, true
	t.trackErr = next.trackingError()
	if notify := t.trackErr != nil && next.notificationsUsable(); notify != t.useNotifications {
		t.useNotifications, t.prefixesStale = notify, true // the next ear listens to what this one need not, or the other way round
	}
}

// delayRetry puts the next attempt off.
func (t *tracking) delayRetry() { t.backoff = min(max(minReconnect, 2*t.backoff), maxReconnect) }

// retire closes an ear and keeps what it has heard.
func (t *tracking) retire(e *invalidationConn) {
	e.close()
	t.requeue(e.drain())
	t.resync = true
}

// close closes everything.
func (t *tracking) close() {
	for _, e := range []*invalidationConn{t.conn, t.nextConn} {
		if e != nil {
			e.close()
		}
	}
	t.conn, t.nextConn = nil, nil
}

// requeue gives back what was heard and could not be looked at.
func (t *tracking) requeue(h changes) {
	for _, key := range h.keys {
		t.pending.add(key, h.since[key])
		if h.repeated[key] {
			addTo(&t.pending.repeated, key)
		}
	}
	for key := range h.released {
		addTo(&t.pending.released, key)
	}
	for key := range h.toWaiter {
		addTo(&t.pending.toWaiter, key)
	}
	for key := range h.evicted {
		addTo(&t.pending.evicted, key)
	}
	t.pending.flushed = t.pending.flushed || h.flushed
	t.pending.mark = max(t.pending.mark, h.mark)
}

// sendMark has the server send a mark back to the ear, behind all that it has said to it
// so far. Between two calls of news it is the same one.
func (t *tracking) sendMark(ctx context.Context) int {
	if !t.markPending {
		t.marksSent++
		t.markPending = true
		_ = t.conn.ps.Ping(ctx, strconv.Itoa(t.marksSent)) // it fails if the ear is over, which is noticed
	}
	return t.marksSent
}

// takeChanges takes what was heard since the last call.
func (t *tracking) takeChanges() changes {
	t.markPending = false
	if t.conn != nil {
		t.requeue(t.conn.drain())
	}
	t.rateCount += len(t.pending.keys)
	h := t.pending
	t.pending = changes{}
	t.markReceived = max(t.markReceived, h.mark)
	return h
}

// wake is ready when something was heard.
func (t *tracking) wake() <-chan struct{} {
	switch {
	case t.nextConn != nil && t.conn == nil:
		return t.nextConn.ready
	case t.conn != nil:
		return t.conn.wake
	default:
		return nil
	}
}

// mode says how changes are learnt of at the moment.
func (t *tracking) mode() WatchMode {
	switch {
	case t.conn != nil && t.trackErr == nil:
		return Push
	case t.conn != nil && t.useNotifications:
		return Notifications
	default:
		return Polling
	}
}

// slack is how long before its deadline a lock may be gone and still have
// expired. Where the server tells of changes, looks are close to what they show.
func (t *tracking) slack() time.Duration {
	if t.mode() == Push {
		return pushSlack
	}
	return expirySlack
}

// uncoveredKeys lists the locks that have to be looked at because nobody tells of
// their changes.
func (t *tracking) uncoveredKeys(known lockSet) []string {
	if t.mode() == Polling || len(t.uncovered) == 0 {
		return nil
	}
	var keys []string
	for key := range t.uncovered {
		if _, still := known[key]; still {
			keys = append(keys, key)
		} else {
			delete(t.uncovered, key)
		}
	}
	return keys
}

// limitations lists what cannot be seen, and why.
func (t *tracking) limitations(formats formatSet) []string {
	var all []string
	switch t.mode() {
	case Polling:
		all = append(all, fmt.Sprintf("holds shorter than %s may not be seen, because the server does not tell of changes: %v", humanize.Setting(pollEvery), t.trackErr))
	case Notifications:
		all = append(all, fmt.Sprintf("what happens while notifications are lost is seen up to %s late", humanize.Setting(checkEvery)))
	}
	if t.conn == nil {
		return all
	}
	if n := len(t.uncovered); n > 0 && t.mode() == Push {
		all = append(all, fmt.Sprintf("%s locks are looked at every %s only: their names have too little in common, or too much else is written", humanize.Count(n), humanize.Setting(pollEvery)))
	}
	for _, name := range t.conn.deniedChannels() {
		for _, f := range formats {
			if f.ReleaseChannel != nil && f.ReleaseChannel.Pattern == name {
				all = append(all, fmt.Sprintf("deleted locks of %s count as released: this user may not listen to %s", f.Library, name))
			}
		}
	}
	return all
}

// hearsReleases reports whether announcements of a format would be heard.
func (t *tracking) hearsReleases(f *Format) bool {
	return f != nil && f.ReleaseChannel != nil && t.conn != nil && !slices.Contains(t.conn.deniedChannels(), f.ReleaseChannel.Pattern)
}

// lag is how late changes were read.
type lag struct {
	worst    time.Duration
	since    time.Time
	previous time.Duration // the worst of the second before
}

// record books what was told of and has been read now.
func (l *lag) record(h changes) {
	now := time.Now()
	if now.Sub(l.since) > time.Second {
		l.previous, l.worst, l.since = l.worst, 0, now
	}
	for _, told := range h.since {
		l.worst = max(l.worst, now.Sub(told))
	}
}

// value is the worst of the last one to two seconds.
func (l *lag) value() time.Duration { return max(l.worst, l.previous) }
