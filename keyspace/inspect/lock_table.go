package inspect

import (
	"container/heap"
	"iter"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/internal/sorted"
)

// lockSet is the locks found so far, by key.
type lockSet map[string]*candidate

// add adds locks; a key that was found before is replaced.
func (s lockSet) add(all []candidate) {
	for _, c := range all {
		s.put(c)
	}
}

// put adds a lock that was read, or replaces the one with its key, which stays as due as it is.
func (s lockSet) put(c candidate) {
	known := s[c.lock.Key]
	if known == nil {
		known = new(candidate)
		s[c.lock.Key] = known
	}
	c.due, c.place = known.due, known.place
	*known = c
}

// get returns what is known of the lock with this key; none if there is none.
func (s lockSet) get(key string) (candidate, bool) {
	if known := s[key]; known != nil {
		return *known, true
	}
	return none, false
}

// possibleIn returns the keys of the possible locks of some classes.
func (s lockSet) possibleIn(classes map[string]bool) (keys []string) {
	for key, c := range s {
		if len(classes) > 0 && c.lock.Confidence < enough && classes[keyspace.AlikeClass(key)] {
			keys = append(keys, key)
		}
	}
	return keys
}

// locks returns the locks in the order of a snapshot, without those that are companions
// of another lock.
func (s lockSet) locks() []*keyspace.Lock {
	claimed := make(map[string]bool)
	for key, d := range s {
		for _, c := range d.companions {
			if c.Key != key {
				claimed[c.Key] = true
			}
		}
	}
	locks := make([]*keyspace.Lock, 0, len(s))
	for key, d := range s {
		if !claimed[key] {
			locks = append(locks, d.lock)
		}
	}
	slices.SortFunc(locks, keyspace.CompareLocks)
	return locks
}

// lockTable is the locks that a watcher knows, and what it knows of their keys.
type lockTable struct {
	known        lockSet
	sorted       []*keyspace.Lock          // the known locks as in the last snapshot; nil = there was none
	changed      map[string]*keyspace.Lock // keys whose lock is not as in sorted, with that in sorted; nil = none
	companions   map[string]string         // companion → its lock
	deadlines    deadlineQueue
	denied       map[string]string // known locks that could not be read any more, with the reason
	deniedBefore int               // number of denied keys after the last cycle
	ignored      map[string]time.Time
	strings      map[string]bool         // classes of names: the last lock with such a name was a string, or was not
	replaced     map[string]*replication // known locks that were not read since another server took the place of theirs, with that one
}

func newLockTable() lockTable {
	return lockTable{
		known: make(lockSet), changed: make(map[string]*keyspace.Lock), companions: make(map[string]string),
		denied: make(map[string]string), ignored: make(map[string]time.Time), strings: make(map[string]bool), replaced: make(map[string]*replication),
	}
}

// inOrder returns the known locks as in a snapshot.
func (t *lockTable) inOrder() []*keyspace.Lock {
	switch {
	case t.sorted == nil:
		t.sorted = t.known.locks()
	case len(t.changed) > 0:
		t.sorted = t.merge()
	}
	clear(t.changed)
	return t.sorted
}

// mark notes that the lock under a key is about to change, or to become one of the snapshot or none.
// Without regular snapshots the next one sorts all locks again.
func (t *lockTable) mark(key string) {
	if t.sorted == nil {
		return
	}
	if _, marked := t.changed[key]; marked {
		return
	}
	t.changed[key] = nil
	if found := t.known[key]; found != nil {
		t.changed[key] = found.lock
	}
	if len(t.changed) > 2*len(t.known)+maxIgnored {
		t.sorted = nil
		clear(t.changed)
	}
}

// replace replaces a known lock by a copy with other observations.
func (t *lockTable) replace(key string, l keyspace.Lock) {
	t.mark(key)
	t.known[key].lock = &l
}

// merge returns the known locks in order: those that have not changed since the last
// snapshot, and the changed ones. With 200,000 locks, sorting all would take 100 ms.
func (t *lockTable) merge() []*keyspace.Lock {
	var news []*keyspace.Lock
	old := make(map[*keyspace.Lock]bool, len(t.changed))
	for key, was := range t.changed {
		old[was] = true
		if d, known := t.known[key]; known && t.companions[key] == "" {
			news = append(news, d.lock)
		}
	}
	slices.SortFunc(news, keyspace.CompareLocks)
	same := make([]*keyspace.Lock, 0, len(t.sorted)+len(news))
	for _, l := range t.sorted {
		if !old[l] {
			same = append(same, l)
		}
	}
	return sorted.Insert(same, news, keyspace.CompareLocks)
}

// put stores a lock that was read, and when it must be read again. was is its last
// state, empty if the lock is new.
func (t *lockTable) put(was, now candidate, again time.Time) {
	key := now.lock.Key
	t.mark(key)
	t.known.put(now)
	t.mapCompanions(was, now)
	t.readAgain(key, again)
}

// readAgain sets when a known lock is read again, on the server's clock; zero = only when it
// changes.
func (t *lockTable) readAgain(key string, at time.Time) {
	if found := t.known[key]; found != nil {
		t.deadlines.set(found, at)
	}
}

// touch notes that keys were read by a time of the server.
func (t *lockTable) touch(keys iter.Seq[string], now time.Time) {
	for key := range keys {
		if k, known := t.known[key]; known {
			k.touched = now.UnixMilli()
		}
	}
}

// remove removes a lock.
func (t *lockTable) remove(key string) {
	was, _ := t.known.get(key)
	t.readAgain(key, time.Time{})
	t.mark(key)
	delete(t.known, key)
	delete(t.replaced, key)
	delete(t.denied, key)
	t.mapCompanions(was, none)
}

// mapCompanions updates the map from companions to their lock.
func (t *lockTable) mapCompanions(was, now candidate) {
	for _, c := range was.companions {
		delete(t.companions, c.Key)
		t.mark(c.Key) // a known lock is one in the snapshot only if it is no companion
	}
	for _, c := range now.companions {
		if c.Key != now.lock.Key {
			t.companions[c.Key] = now.lock.Key
			t.mark(c.Key)
		}
	}
}

// deadlineQueue is a priority queue of the locks that are due, the first one at the front. It
// implements container/heap. The zero value is empty.
type deadlineQueue []*candidate

// set sets when a lock is due, in place of an earlier time. The zero time removes the lock.
func (q *deadlineQueue) set(l *candidate, at time.Time) {
	was := l.due
	l.due = dueAt(at)
	switch {
	case was == l.due:
	case was == 0:
		heap.Push(q, l)
	case l.due == 0:
		heap.Remove(q, l.place)
	default:
		heap.Fix(q, l.place)
	}
}

// dueAt returns a time as candidate.due.
func dueAt(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return max(at.UnixMilli(), 1)
}

// popDue removes the locks that are due at now, and returns their keys.
func (q *deadlineQueue) popDue(now time.Time) []string {
	var keys []string
	for len(*q) > 0 && (*q)[0].due <= now.UnixMilli() {
		l := heap.Pop(q).(*candidate)
		l.due = 0
		keys = append(keys, l.lock.Key)
	}
	return keys
}

// first returns when the next lock is due; false if there is none.
func (q deadlineQueue) first() (time.Time, bool) {
	if len(q) == 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(q[0].due), true
}

func (q deadlineQueue) Len() int           { return len(q) }
func (q deadlineQueue) Less(i, j int) bool { return q[i].due < q[j].due }

func (q deadlineQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *deadlineQueue) Push(x any) {
	l := x.(*candidate)
	l.place = len(*q)
	*q = append(*q, l)
}

func (q *deadlineQueue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return l
}

// nextDeadline returns when a lock must be read again: at the first of its deadlines,
// on the server's clock.
func (w *Watcher) nextDeadline(l *keyspace.Lock) time.Time {
	first := l.Expires
	sooner := func(t time.Time) { first = keyspace.Earliest(first, t) }
	for _, h := range l.Holders {
		sooner(h.Expires)
	}
	for _, waiter := range l.Waiters {
		if waiter.Expires.After(w.reader.conn.now) {
			sooner(waiter.Expires)
		}
	}
	if w.onOtherNode(l) { // changes on another node are not reported to this watcher
		sooner(w.reader.conn.now.Add(pollEvery))
	}
	if first.IsZero() {
		return first
	}
	return keyspace.Later(first.Add(time.Millisecond), w.reader.conn.now.Add(recheckAfter))
}

// exactJitter is the difference between two reads of a deadline that the server reports
// as a point in time.
const exactJitter = time.Millisecond

// newDiffer returns a differ between the last read and the known locks.
func (w *Watcher) newDiffer() keyspace.Differ {
	d := keyspace.Differ{
		At: w.reader.conn.now, Watched: w.scan.complete && !w.failures.missedEvents, MissedEvents: w.failures.missedEvents,
		Slack: w.tracking.slack(), Lag: w.tracking.lag(), Jitter: keyspace.DeadlineJitter,
	}
	if w.reader.exact() {
		d.Jitter = exactJitter
	}
	return d
}

// keepFirstRead carries over when the current holder was first read under the current
// deadline, and the uncertainty of that deadline.
func (w *Watcher) keepFirstRead(was candidate, now *candidate) {
	now.firstRead, now.lastRead, now.touched = w.times.readEnd, w.times.readStart, w.reader.conn.now.UnixMilli()
	if was.lock.SoleHolder() != "" && was.lock.SoleHolder() == now.lock.SoleHolder() && was.lock.Expires.Equal(now.lock.Expires) {
		now.firstRead, now.spread = was.firstRead, was.spread
	}
	if was.lock.SoleHolder() == now.lock.SoleHolder() {
		now.quiet = was.quiet
	}
}

// updateLock stores a lock that was read.
func (w *Watcher) updateLock(was, now candidate, known bool, d *keyspace.Differ) {
	began := time.Time{}
	if known && !d.MissedEvents || d.Watched {
		if began = d.At; !d.Reported.IsZero() {
			began = keyspace.Earliest(d.Reported, d.At)
		}
	}
	if known && was.lock.Node != now.lock.Node {
		was.lock, d.Repeated = new(keyspace.RebaseDeadlines(*was.lock, *now.lock)), true
	}
	past, seen := *was.lock, known
	if lookUp := w.scanner.opts.Past; began.IsZero() && !known && lookUp != nil {
		past, seen = lookUp(*now.lock, d.At)
	}
	*now.lock = d.CarryOver(past, *now.lock, seen, began)
	w.keepFirstRead(was, &now)
	if known {
		d.Changed(*was.lock, *now.lock)
	} else {
		d.Added(*now.lock)
	}
	w.holdStats.Learn(d.Events)
	w.holdStats.Annotate(now.lock, d.At)
	for i := range d.Events {
		d.Events[i].Lock = *now.lock
	}
	w.report(d.Events)
	w.locks.put(was, now, w.nextDeadline(now.lock))
	w.tracking.coverage.learn(&now)
	if w.isSlow() {
		if len(w.locks.strings) >= maxIgnored {
			clear(w.locks.strings)
		}
		w.locks.strings[keyspace.AlikeClass(now.name)] = now.typ == "string"
	}
	w.scanner.opts.Cluster.record(w, now)
}

// removeLock removes a lock that is gone. It reports the end of a lock of a cluster only if
// no other watcher has taken the lock over since the last call of dropMoved.
func (w *Watcher) removeLock(was candidate, d *keyspace.Differ) {
	w.locks.remove(was.lock.Key)
	if !w.scanner.opts.Cluster.forget(w, was) {
		return
	}
	d.Removed(*was.lock)
	w.holdStats.Learn(d.Events)
	w.holdStats.Removed(was.lock.ID(), d.At)
	w.report(d.Events)
}

// maxLosses is the maximum number of losses that a watcher keeps.
const maxLosses = 1000

// report adds the events of a lock to those of the next snapshot, and keeps its losses up to the deadlines.
func (w *Watcher) report(events []keyspace.Event) {
	w.unreported.events = append(w.unreported.events, events...)
	w.scanner.opts.Order.Learn(events, w.lateness())
	for i := range events {
		if e := &events[i]; e.Kind == keyspace.Lost {
			w.losses = append(slices.Clip(w.losses), keyspace.Loss{Lock: e.Lock.ID(), Holder: e.Holder, At: e.At})
		}
	}
	over := func(l keyspace.Loss) bool {
		return !l.Holder.Expires.IsZero() && l.Holder.Expires.Before(w.reader.conn.now)
	}
	if len(w.losses) > maxLosses || slices.ContainsFunc(w.losses, over) {
		w.losses = slices.DeleteFunc(slices.Clone(w.losses), over)
		w.losses = w.losses[max(0, len(w.losses)-maxLosses):]
	}
}

// adopt returns what another watcher of the cluster knows of a lock that this one has
// found: the lock has moved. ours is false if the lock was read on another node whose
// watcher has it already, or if another watcher has already found its end.
func (w *Watcher) adopt(l candidate) (was candidate, known, ours bool) {
	cluster := w.scanner.opts.Cluster
	if w.onOtherNode(l.lock) && cluster.ownedByOther(l.lock.Key, w) {
		return none, false, false
	}
	if was, known = cluster.claim(l.lock.Key, w); known {
		w.locks.mark(l.lock.Key)
		w.locks.known.put(was)
	}
	return was, known, known || !cluster.hasEnded(l, w.times.readStart)
}

// onOtherNode reports whether a lock was read on another cluster node.
func (w *Watcher) onOtherNode(l *keyspace.Lock) bool { return l.Node != w.scanner.node }

// dropMoved removes the locks that other watchers of the cluster have taken over,
// without events.
func (w *Watcher) dropMoved() {
	for _, key := range w.scanner.opts.Cluster.takeMoved(w) {
		delete(w.endings.pending, key)
		w.locks.remove(key)
	}
}
