package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// requests finds out whether other clients ask for held locks. Most libraries store no
// waiters, but a refused SET NX, GET or HEXISTS resets the idle time of its key, and OBJECT
// IDLETIME reports that time and does not reset it.
//
// An idle time has two other causes: the watcher's own reads, and changes by the holder. Each
// change is reported, and the watcher reads the lock again. So a request is what touches a lock
// after its last read, unless a change is reported by the time that everything sent before the
// check has been received.
type requests struct {
	next      time.Time            // local time: no check before
	queue     []*candidate         // locks to check, the longest holds first
	busy      map[string]time.Time // keys with a recent request, and when it was found, on the local clock
	found     []request            // that a change may still explain
	mark      int                  // the mark after which no such change can be reported,
	conn      *invalidationConn    // on this connection
	relevant  bool                 // there are locks to check
	refusedAs string               // the eviction policy under which the server refused to report idle times
	refused   string               // why it refused
	pausing   string               // why the last check was in vain, for now
	refillAt  time.Time            // local: the queue is not filled before
}

// request is a request of another client that a check has found.
type request struct {
	key    string
	second int64     // of the server's clock, in which it was made
	at     time.Time // the end of that second, or the time of the check
	own    int64     // the last own read at the check
	counts bool      // it was made within the last second, all of which the check covers
}

// Bounds of the checks.
const (
	maxChecks   = 1000                   // locks in a check; there is one check a second
	looksInTrip = 250                    // locks in a round trip
	refillPause = 50 * time.Microsecond  // for each known lock, between two fillings of the queue
	busyFor     = 30 * time.Second       // a lock with a request is checked first for so long
	maxAskedAge = 5 * time.Minute        // an older request is not reported
	lookAt      = 500 * time.Millisecond // after the begin of a second: idle times are differences of whole seconds
	// touchGrace is how long after a read or a change a touch is none of a waiter: the holder
	// may read what it has written, and another locktop reads what has changed.
	touchGrace = 300 * time.Millisecond
)

// cmdObject reports idle times. Without it, only requests are unknown.
const cmdObject = "object"

// checkForRequests checks some of the held locks, once a second.
func (w *Watcher) checkForRequests(ctx context.Context) error {
	r := &w.requests
	w.settleRequests()
	now := time.Now()
	if now.Before(r.next) || !w.scan.complete {
		return nil
	}
	if !w.tracking.upToDate() && w.tracking.mode() == keyspace.Push || !w.scanner.opts.Budget.allow(now) || w.keepsEvents(now) {
		r.next = now.Add(pollEvery)
		return nil
	}
	server := w.serverNow()
	r.next = server.Add(-lookAt).Truncate(time.Second).Add(time.Second + lookAt - w.times.clockOffset)
	if r.refusedAs != w.server.info.Policy {
		r.refused = ""
	}
	keys := w.keysToCheck(server)
	if len(keys) == 0 || w.checkBlind() != "" {
		return nil
	}
	r.found = nil
	for some := range slices.Chunk(keys, looksInTrip) {
		if err := w.checkRequests(ctx, some); err != nil {
			return err
		}
		w.scanner.opts.Budget.charge(w.reader.conn.serverTime, w.reader.conn.networkTime, time.Now())
	}
	if err := w.dropReads(ctx); err != nil {
		return err
	}
	if len(r.found) > 0 {
		r.conn, r.mark = w.tracking.conn, w.tracking.sendMark(ctx)
	}
	return nil
}

// dropReads drops the requests that may be reads of another locktop: it has sent a command since. One
// that runs scripts or sets keys makes a load: its clients wait.
func (w *Watcher) dropReads(ctx context.Context) error {
	r, conn := &w.requests, &w.reader.conn
	if len(r.found) == 0 || w.scanner.denied.has(cmdClient) {
		return nil
	}
	list, err := w.listClients(ctx)
	w.scanner.opts.Budget.charge(conn.serverTime, conn.networkTime, time.Now())
	loads := map[string]bool{keyspace.ConnectionName: true}
	for _, c := range list {
		loads[c.Name] = loads[c.Name] || slices.Contains(append(keyspace.ScriptCommands(), "set", "setnx"), c.Command)
	}
	for _, c := range list {
		if c.IsLocktop() && !loads[c.Name] {
			last, n := conn.now.Add(-c.Idle).Unix(), len(r.found)
			r.found = slices.DeleteFunc(r.found, func(q request) bool { return last >= q.second-1 })
			if len(r.found) < n {
				r.pausing = "another locktop is connected, and its reads look like requests of a waiter"
			}
		}
	}
	return err
}

// askBlind returns why requests of other clients cannot be seen; "" = they can.
func (w *Watcher) askBlind() string { return cmp.Or(w.checkBlind(), w.requests.pausing) }

// checkBlind returns why a check would be in vain.
func (w *Watcher) checkBlind() string {
	policy := w.server.info.Policy
	switch {
	case w.tracking.mode() != keyspace.Push:
		return "locktop polls this server, and its own reads hide those of other clients"
	case w.server.info.Role == "slave":
		return "this server is a replica, and refused requests reach only the master"
	case strings.Contains(policy, "lfu"):
		return fmt.Sprintf("the server records no idle times with maxmemory-policy %s", policy)
	case w.requests.refused != "":
		return w.requests.refused
	case w.scanner.denied.has(cmdObject):
		return "OBJECT IDLETIME is not permitted, or the server does not have it"
	case w.scanner.denied.has("info"), w.scanner.denied.has("time"):
		return "INFO or TIME is not permitted, and idle times mean nothing without the server's clock"
	default:
		return ""
	}
}

// keysToCheck returns the keys of the next check: first those with a recent request, then
// the next ones of the queue.
func (w *Watcher) keysToCheck(now time.Time) (keys []string) {
	r := &w.requests
	this := now.Unix()
	ready := func(key string) bool {
		k, known := w.locks.known[key]
		return known && w.mayHideWaiters(k) && lastOwn(k.touched) < this
	}
	for key, at := range r.busy {
		switch {
		case time.Since(at) > busyFor:
			delete(r.busy, key)
		case len(keys) < maxChecks/2 && ready(key):
			keys = append(keys, key)
		}
	}
	if local := time.Now(); len(r.queue) == 0 && local.After(r.refillAt) {
		r.queue = w.locksWithHiddenWaiters(now)
		r.relevant = len(r.queue) > 0
		r.refillAt = local.Add(time.Duration(len(w.locks.known)) * refillPause)
	}
	for ; len(keys) < maxChecks && len(r.queue) > 0; r.queue = r.queue[1:] {
		key := r.queue[0].lock.Key
		if _, busy := r.busy[key]; !busy && ready(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// locksWithHiddenWaiters returns the held locks whose waiters are not stored, the longest holds
// first.
func (w *Watcher) locksWithHiddenWaiters(now time.Time) (all []*candidate) {
	for _, k := range w.locks.known {
		if w.mayHideWaiters(k) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *candidate) int { return cmp.Compare(b.lock.Age(now).Duration, a.lock.Age(now).Duration) })
	return all
}

// mayHideWaiters reports whether clients may wait for a lock that are not stored with it, and
// whether the idle time of its key would show them.
func (w *Watcher) mayHideWaiters(k *candidate) bool {
	l := k.lock
	return len(l.Holders) > 0 && l.WaiterCount() == 0 && !(k.format.ShowsWaiters && !k.format.MayPoll) && !k.shared && !k.standsIn() && w.locks.companions[l.Key] == "" &&
		!w.onOtherNode(l) && (l.Confidence >= enough || w.scanner.opts.KeepAlike) && !(l.Kind == keyspace.Semaphore && len(l.Holders) < l.Limit)
}

// checkRequests checks some locks in one round trip.
func (w *Watcher) checkRequests(ctx context.Context, keys []string) error {
	r, conn := &w.requests, &w.reader.conn
	var server, persistence *redis.StringCmd
	idles := make([]*redis.DurationCmd, len(keys))
	err := conn.pipelined(ctx, "read idle times", func(p redis.Pipeliner) {
		server, persistence = p.Info(ctx, "server"), p.Info(ctx, "persistence")
		for i, key := range keys {
			idles[i] = p.ObjectIdleTime(ctx, key)
		}
	})
	if _, answered := errors.AsType[redis.Error](err); answered && !isTransient(err) {
		r.refusedAs, r.refused = w.server.info.Policy, err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	second, ok := lruSecond(server.Val(), conn.now)
	switch {
	case strings.Contains(persistence.Val(), "_in_progress:1"):
		r.pausing = "the server records no idle times while a child process of it saves"
		return nil
	case !ok:
		r.pausing = "the server does not report the clock of its idle times (lru_clock)"
		return nil
	}
	r.pausing = ""
	for i, idle := range idles {
		switch {
		case redis.HasErrorPrefix(idle.Err(), "An LFU"):
			r.refusedAs, r.refused = w.server.info.Policy, "the server records no idle times with an LFU policy (maxmemory-policy)"
			return nil
		case isKeyDenied(idle.Err()): // a read finds out what this user may still read
			w.locks.readAgain(keys[i], conn.now)
		case idle.Err() == nil && conn.answeredBy[idle] == "":
			w.judge(keys[i], second, second-int64(idle.Val()/time.Second))
		}
	}
	return nil
}

// judge decides whether another client has asked for a lock that was touched last in the second
// touched. The server's clock was in the second now, or later.
func (w *Watcher) judge(key string, now, touched int64) {
	k, known := w.locks.known[key]
	own, reading := w.scanner.opts.OwnReads.last(w.scanner.keyID(key))
	if !known || reading {
		return
	}
	asked, covered := verdict(max(k.touched, own), touched, now)
	switch {
	case asked:
		at := keyspace.Earliest(time.Unix(touched+1, 0), w.reader.conn.now)
		w.requests.found = append(w.requests.found, request{key, touched, at, k.touched, covered && touched >= now-1})
		return
	case covered:
		w.countCheck(key, k, false)
	}
}

// verdict reports whether another client has touched a key after its last own read, in ms, and
// whether the check covers the whole second before now. The key was touched last in the second
// touched.
func verdict(own, touched, now int64) (asked, covered bool) {
	free := lastOwn(own)
	return touched > free && now-touched <= int64(maxAskedAge/time.Second), free <= now-2
}

// countCheck counts a check of a lock that covers a whole second.
func (w *Watcher) countCheck(key string, k *candidate, asked bool) {
	if !asked && k.lock.AskedAt.IsZero() && k.lock.AskedPercent == 0 { // most locks are never asked for
		k.quiet++
		return
	}
	n := 0
	if asked {
		n = 1
	}
	w.holdStats.Checked(k.lock.ID(), 1+int(k.quiet), n)
	k.quiet = 0
	l := *k.lock
	w.holdStats.Annotate(&l, w.reader.conn.now)
	if l.AskedPercent != k.lock.AskedPercent {
		w.locks.replace(key, l)
	}
}

// settleRequests stores the requests of the last check that no reported change explains, as
// soon as all changes before that check have been reported.
func (w *Watcher) settleRequests() {
	r := &w.requests
	if len(r.found) == 0 || r.conn == w.tracking.conn && w.tracking.marks.received < r.mark {
		return
	}
	found, same := r.found, r.conn == w.tracking.conn
	r.found = nil
	for _, q := range found {
		k, known := w.locks.known[q.key]
		own, reading := w.scanner.opts.OwnReads.last(w.scanner.keyID(q.key))
		if !same || !known || k.touched != q.own || reading || lastOwn(own) >= q.second {
			continue
		}
		r.busy[q.key] = time.Now()
		if q.at.After(k.lock.AskedAt) {
			l := *k.lock
			l.AskedAt = q.at
			w.locks.replace(q.key, l)
		}
		if q.counts {
			w.countCheck(q.key, k, true)
		}
	}
}

// lastOwn returns the last second in which a touch may follow from an own read, or a change,
// at a time in ms.
func lastOwn(at int64) int64 { return (at + touchGrace.Milliseconds()) / 1000 }

// lruBits is the size of the server's clock for idle times, in seconds.
const lruBits = 24

// lruSecond returns the second of the server's clock for idle times, which is somewhat behind
// now, from a section of INFO. It is false if the two do not fit.
func lruSecond(info string, now time.Time) (int64, bool) {
	value, found := InfoValue(info, "lru_clock")
	behind := (now.Unix() - number(value)) & (1<<lruBits - 1)
	return now.Unix() - behind, found && behind < int64(time.Minute/time.Second)
}

// OwnReads is when single keys were read by the scanners of a process, so that its watchers do
// not take these reads for requests of other clients. It is safe for concurrent use; the zero
// value is ready.
type OwnReads struct {
	mu    sync.Mutex
	reads map[keyspace.ID]ownRead
}

// ownRead is the last read of a key.
type ownRead struct {
	at     int64 // ms of the server's clock at its end
	active int   // reads that have not ended
}

// begin notes that a read begins.
func (o *OwnReads) begin(id keyspace.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reads == nil {
		o.reads = make(map[keyspace.ID]ownRead)
	}
	r := o.reads[id]
	r.active++
	o.reads[id] = r
}

// end notes that a read has ended by now, on the server's clock.
func (o *OwnReads) end(id keyspace.ID, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reads[id]
	r.active--
	r.at = max(r.at, now.UnixMilli())
	o.reads[id] = r
	if len(o.reads) > 10_000 { // drop those that are older than any request that a watcher reports
		maps.DeleteFunc(o.reads, func(_ keyspace.ID, r ownRead) bool {
			return r.active == 0 && now.Sub(time.UnixMilli(r.at)) > 2*maxAskedAge
		})
	}
}

// last returns the end of the last read of a key, in ms of the server's clock, and whether a
// read has not ended.
func (o *OwnReads) last(id keyspace.ID) (at int64, active bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reads[id]
	return r.at, r.active > 0
}
