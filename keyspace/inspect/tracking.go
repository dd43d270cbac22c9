package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace"
)

// Timing of the invalidation connections.
const (
	prefixDebounce = 200 * time.Millisecond // between two connections, while new prefixes are found
	minReconnect   = 500 * time.Millisecond // before the next attempt to connect, then doubled,
	maxReconnect   = 15 * time.Second       // up to this
	pushSlack      = 10 * time.Millisecond
	maxReportDelay = 100 * time.Millisecond // largest delay between a change and its report
)

// tracking maintains the invalidation connection, makes its prefixes cover all known
// locks, and determines the watch mode.
type tracking struct {
	options   *redis.Options // of the client; nil = no connection of its own is possible
	releases  []subscription
	keyEvents subscription

	conn             *invalidationConn // the connection in use; nil = none
	nextConn         *invalidationConn // a connection that is not ready yet
	lastConn         *invalidationConn // the one that conn has replaced, until all that it was sent is received; nil = none
	lastMark         int               // comes back on lastConn after that
	wake             chan struct{}     // ready when the connections have something to read
	dialedAt         time.Time
	backoff          time.Duration
	pending          changes         // changes that were received and not read
	resync           bool            // a report may have been lost: all locks must be read
	unreported       map[string]bool // locks that conn covers and the connection before it did not: they must be read
	disconnected     bool            // a connection was lost: the server may be another process
	verifiedDials    uint32          // dials of the pool when the server was checked last
	trackErr         error           // why the server does not report changes
	useNotifications bool            // keyspace notifications are used in place of tracking

	coverage coverage
	marks    marks
}

// marks are pings whose replies show that all earlier messages have been received.
type marks struct {
	sent     int  // number of the last mark
	pending  bool // a mark was sent since the last takeChanges
	received int  // the last mark that came back
}

// newTracking returns the tracking of the server of s.
func newTracking(s *Scanner) tracking {
	o, _ := optionsOf(s.rdb)
	return tracking{
		options: o, wake: make(chan struct{}, 1), coverage: newCoverage(), trackErr: errors.New("client tracking is not requested yet"),
		releases: releaseSubscriptions(s.opts.Formats, s.opts.DB), keyEvents: keyspaceEvents(s.opts.DB),
	}
}

// maintain replaces a connection that was lost, lacks prefixes or has old credentials.
func (t *tracking) maintain(known lockSet) {
	if t.options == nil {
		t.trackErr = errors.New("the client does not allow a separate connection")
		return
	}
	t.reap()
	t.promote(known)
	t.coverage.updateAllKeys(known, time.Now())
	if at, due := t.nextDial(); due && !time.Now().Before(at) {
		t.dialedAt, t.coverage.stale = time.Now(), false
		wanted := t.releases
		if t.useNotifications {
			wanted = append(slices.Clone(wanted), t.keyEvents)
		}
		asked := withoutCovered(slices.Collect(maps.Values(t.coverage.prefixes)))
		if t.coverage.allKeys {
			asked = []string{""}
		}
		t.nextConn = dialInvalidations(t.options, asked, wanted, t.wake)
	}
}

// nextDial returns when the next connection is due; false if none is needed, or one is not ready
// yet.
func (t *tracking) nextDial() (at time.Time, due bool) {
	needed := t.conn == nil || t.conn.current().outdated || t.coverage.stale && (t.coverage.allKeys || len(t.coverage.prefixes) > 0)
	return t.dialedAt.Add(max(t.backoff, prefixDebounce)), needed && t.nextConn == nil && t.lastConn == nil && t.options != nil
}

// reap removes a lost connection.
func (t *tracking) reap() {
	if t.conn == nil {
		return
	}
	if err, closed := t.conn.closedWith(); closed {
		t.retire(t.conn)
		t.disconnected = true
		t.conn, t.trackErr = nil, fmt.Errorf("the connection for client tracking is lost: %w", err)
		t.delayRetry()
	}
}

// promote takes the next connection into use when it is ready. The server then reports the changes of what
// both connections cover to both, so only the other locks must be read.
func (t *tracking) promote(known lockSet) {
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
	if err, closed := next.closedWith(); closed {
		t.retire(next)
		t.trackErr = err
		t.delayRetry()
		return
	}
	was, state := t.conn, next.current()
	if was == nil || was.current().trackErr != nil || state.trackErr != nil {
		if t.resync = true; was != nil {
			t.retire(was)
		}
	} else {
		t.marks.sent++
		t.lastConn, t.lastMark = was, t.marks.sent
		_ = was.ps.Ping(context.Background(), strconv.Itoa(t.lastMark)) // an error means that the connection is lost, which is detected elsewhere
		t.unreported = make(map[string]bool)
		for key, l := range known {
			if !was.covers(key) || slices.ContainsFunc(l.companions, func(beside keyspace.Companion) bool { return !was.covers(beside.Key) }) {
				t.unreported[key] = true
			}
		}
	}
	t.conn, t.backoff = next, 0
	t.trackErr = state.trackErr
	if notify := t.trackErr != nil && state.canNotify; notify != t.useNotifications {
		t.useNotifications, t.coverage.stale = notify, true // the next connection subscribes to notifications if this one has to, and vice versa
	}
}

// delayRetry doubles the time until the next attempt.
func (t *tracking) delayRetry() { t.backoff = min(max(minReconnect, 2*t.backoff), maxReconnect) }

// retire closes a connection and keeps its changes.
func (t *tracking) retire(conn *invalidationConn) {
	conn.close()
	t.requeue(conn.drain())
	t.resync = true
}

// close closes all connections.
func (t *tracking) close() {
	for _, conn := range []*invalidationConn{t.conn, t.nextConn, t.lastConn} {
		if conn != nil {
			conn.close()
		}
	}
	t.conn, t.nextConn, t.lastConn = nil, nil, nil
}

// requeue adds changes that were received. What was read after them counts as not read.
func (t *tracking) requeue(c changes) {
	for _, key := range c.keys {
		unread := c.of[key]
		unread.ahead = nil
		t.pending.add(key, unread)
	}
	t.pending.flushed = t.pending.flushed || c.flushed
	t.pending.mark = max(t.pending.mark, c.mark)
}

// receive adds the changes that were received meanwhile to those that were not read.
func (t *tracking) receive() {
	if t.lastConn != nil {
		c := t.lastConn.drain()
		if _, lost := t.lastConn.closedWith(); lost || c.mark >= t.lastMark {
			t.resync = t.resync || c.mark < t.lastMark
			t.lastConn.close()
			t.lastConn = nil
		}
		c.mark = 0 // it says nothing of conn
		t.requeue(c)
	}
	if t.conn != nil {
		t.requeue(t.conn.drain())
	}
}

// takeSome returns the changes of the keys that are wanted, and keeps the others.
func (t *tracking) takeSome(wanted func(key string) bool) (some changes) {
	t.receive()
	kept := changes{flushed: t.pending.flushed, mark: t.pending.mark}
	for _, key := range t.pending.keys {
		if wanted(key) {
			some.add(key, t.pending.of[key])
		} else {
			kept.add(key, t.pending.of[key])
		}
	}
	t.pending = kept
	t.coverage.rateCount += len(some.keys)
	return some
}

// sendMark makes the server send a mark on the connection, after everything that it has
// sent so far. Between two calls of takeChanges it is the same mark.
func (t *tracking) sendMark(ctx context.Context) int {
	if !t.marks.pending {
		t.marks.sent++
		t.marks.pending = true
		_ = t.conn.ps.Ping(ctx, strconv.Itoa(t.marks.sent)) // an error means that the connection is lost, which is detected elsewhere
	}
	return t.marks.sent
}

// takeChanges returns the changes since the last call.
func (t *tracking) takeChanges() changes {
	t.marks.pending = false
	t.receive()
	t.coverage.rateCount += len(t.pending.keys)
	c := t.pending
	t.pending = changes{}
	t.marks.received = max(t.marks.received, c.mark)
	return c
}

// mode returns how changes are detected now.
func (t *tracking) mode() keyspace.WatchMode {
	switch {
	case t.conn != nil && t.trackErr == nil:
		return keyspace.Push
	case t.conn != nil && t.useNotifications:
		return keyspace.Notifications
	default:
		return keyspace.Polling
	}
}

// upToDate reports whether the server reports the changes of all locks that it is asked for,
// and none was lost.
func (t *tracking) upToDate() bool {
	return t.conn != nil && t.nextConn == nil && t.lastConn == nil && !t.coverage.stale && !t.resync && len(t.unreported) == 0
}

// slack returns how long before its deadline a vanished lock counts as expired. It is
// short with Push, which reports changes quickly.
func (t *tracking) slack() time.Duration {
	if t.mode() == keyspace.Push {
		return pushSlack
	}
	return keyspace.ExpirySlack
}

// lag returns by how much a change is reported, or read, late at most.
func (t *tracking) lag() time.Duration {
	if t.mode() == keyspace.Push {
		return maxReportDelay
	}
	return pollEvery
}

// uncoveredKeys lists the locks that must be polled because their changes are not
// reported.
func (t *tracking) uncoveredKeys(known lockSet) []string {
	if t.mode() == keyspace.Polling || len(t.coverage.uncovered) == 0 {
		return nil
	}
	var keys []string
	for key := range t.coverage.uncovered {
		if _, still := known[key]; still {
			keys = append(keys, key)
		} else {
			delete(t.coverage.uncovered, key)
		}
	}
	return keys
}

// limitations lists what cannot be detected and why. lag is the delay of recent changes.
func (t *tracking) limitations(formats []keyspace.Format, lag time.Duration) []string {
	var all []string
	switch t.mode() {
	case keyspace.Polling:
		all = append(all, fmt.Sprintf("holds shorter than %s may be missed, because the server does not report changes: %v", humanize.Setting(lag.Round(50*time.Millisecond)), t.trackErr))
	case keyspace.Notifications:
		all = append(all, fmt.Sprintf("changes may be detected up to %s late, because notifications can be lost", humanize.Setting(checkEvery)))
	}
	if t.conn == nil {
		return all
	}
	if n := len(t.coverage.uncovered); n > 0 && t.mode() == keyspace.Push {
		all = append(all, fmt.Sprintf("%s locks are polled every %s: their names have too little in common, or other keys change too often", humanize.Count(n), humanize.Setting(pollEvery)))
	}
	for _, name := range t.conn.current().denied {
		for _, f := range formats {
			if f.ReleaseChannel != nil && f.ReleaseChannel.Pattern == name {
				all = append(all, fmt.Sprintf("deleted locks of %s count as released: this user may not subscribe to %s", f.Library, name))
			}
		}
	}
	return all
}

// lag is the delay between reports and reads.
type lag struct {
	worst    time.Duration
	since    time.Time
	previous time.Duration // the worst of the previous second
}

// record records changes that have been read now.
func (l *lag) record(c changes) {
	now := time.Now()
	if now.Sub(l.since) > time.Second {
		l.previous, l.worst, l.since = l.worst, 0, now
	}
	for _, reported := range c.of {
		l.worst = max(l.worst, now.Sub(reported.since))
	}
}
