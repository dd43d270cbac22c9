package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// Bounds of a read, independent of the size of the value.
const (
	probeBytes   = 128  // of a string, in a probe
	valueBytes   = 4096 // of a string, and of each element
	maxElements  = 256  // of a collection
	batchSize    = 256  // keys per round trip
	keysPerClock = 32   // keys per TIME command
)

// exactJitter is the difference between two reads of a deadline that the server reports
// as a point in time.
const exactJitter = time.Millisecond

// keyRef is a key to read, with its expected type.
type keyRef struct {
	name, typ string
	oversized bool // everything but its elements is read
	small     bool // the command that reads a whole value may take the place of one that is denied
}

// reader reads keys that may be locks and decodes them. It is for one goroutine.
type reader struct {
	conn      meteredConn
	formats   formatSet
	atLeast   keyspace.Confidence
	node      string
	db        int
	overdue   []Overdue
	confirmed confirmedKeys
	unread    map[string]string // of the last call: keys that, or whose companions, could not be read, with the reason, and
	notLocks  []string          // keys that are not locks
}

// detection is a lock with the data that is needed to read it again.
type detection struct {
	lock keyspace.Lock
	readInfo
}

// readInfo is how a lock was read.
type readInfo struct {
	standIn    string // the key that was read, if it is not the lock's own
	lockLike   bool   // its format says that the name or the fields suggest a lock
	partial    bool   // companions could not be read
	shared     bool   // other keys may have the same idle time
	typ        string // of the key that was read
	companions []keyspace.Companion
	spread     time.Duration // the deadline may be later than read by up to this
	firstRead  time.Time     // local clock: the holder was read under this deadline by then
	lastRead   time.Time     // local clock: begin of the last such read
	touched    int64         // server's clock, in ms: no later own read has reset the idle time
	quiet      uint32        // checks without a request of another client that no statistics count
}

// detect reads keys and their companions, and decodes them. Keys that are not locks are
// left out.
func (r *reader) detect(ctx context.Context, refs []keyRef) ([]detection, error) {
	r.unread, r.notLocks = make(map[string]string), nil
	entries, err := r.readBounded(ctx, refs)
	if err != nil {
		return nil, err
	}
	matched := make([]matchedEntry, 0, len(entries))
	for _, e := range entries {
		if f, heard, s := r.formats.best(e); s >= r.atLeast || heard != nil || s > keyspace.No && r.mayUpgrade(f, e.Key) {
			matched = append(matched, matchedEntry{e, f, cmp.Or(heard, f), companionsOf(f, e)})
		} else {
			r.notLocks = append(r.notLocks, e.Key)
		}
	}
	if err := r.readRelated(ctx, matched); err != nil {
		return nil, err
	}
	if err := r.countSubscribers(ctx, matched); err != nil {
		return nil, err
	}
	all := make([]detection, 0, len(matched))
	for _, m := range matched {
		if _, sure := m.heard.Decode(m.entry); m.heard != m.format && sure == keyspace.Certain {
			m.format = m.heard
		}
		lock, _ := m.format.DecodeLock(m.entry)
		lock.Node, lock.DB, lock.OverdueIn = cmp.Or(m.entry.Node, r.node), r.db, OverdueIn(r.overdue, m.entry.Key)
		spread := m.entry.Spread
		for _, r := range m.entry.Related {
			spread = max(spread, r.Spread)
		}
		l := detection{lock, readInfo{typ: m.entry.Type, companions: m.companions, spread: spread, lockLike: m.format.LockLike,
			partial: r.unread[m.entry.Key] != "", shared: m.entry.Type == "string" && keyspace.SharedValue(m.entry.Value)}}
		if m.entry.Key != lock.Key {
			l.standIn = m.entry.Key
			l.companions = append(slices.Clip(l.companions), keyspace.Companion{Key: l.standIn, Type: l.typ})
		}
		if why := r.confirmed[lock.Key]; lock.Confidence == keyspace.Possible && why != "" {
			l = promote(l, why)
		}
		if l.lock.Confidence >= r.atLeast {
			all = append(all, l)
		}
	}
	return all, nil
}

// mayUpgrade reports whether the confidence of a format can rise: by companions, by
// subscribers, or because the candidate was confirmed.
func (r *reader) mayUpgrade(f *keyspace.Format, key string) bool {
	return f.Related != nil || f.Channels != nil || r.confirmed[key] != ""
}

// ref returns the key to read of a lock.
func (i readInfo) ref(lock string) keyRef {
	return keyRef{name: cmp.Or(i.standIn, lock), typ: i.typ}
}

// matchedEntry is an entry that a format matches.
type matchedEntry struct {
	entry      keyspace.Entry
	format     *keyspace.Format
	heard      *keyspace.Format // whose subscribers are counted
	companions []keyspace.Companion
}

// readRelated reads the companions of all entries and adds them to the entries.
func (r *reader) readRelated(ctx context.Context, all []matchedEntry) error {
	var refs []keyRef
	for _, c := range all {
		for _, b := range c.companions {
			refs = append(refs, keyRef{name: b.Key, typ: b.Type})
		}
	}
	related, err := r.readBounded(ctx, refs)
	if err != nil {
		return err
	}
	hidden := maps.Clone(r.unread)
	for _, k := range refs {
		delete(r.unread, k.name) // its lock counts
	}
	byKey := make(map[string]keyspace.Entry, len(related))
	for _, e := range related {
		byKey[e.Key] = e
	}
	for i, c := range all {
		all[i].entry.Related = make(map[string]keyspace.Entry, len(c.companions))
		for _, b := range c.companions {
			if why, is := hidden[b.Key]; is {
				r.unread[c.entry.Key] = why
			}
			if e, ok := byKey[b.Key]; ok {
				all[i].entry.Related[b.Key] = e
			}
		}
	}
	return nil
}

// countSubscribers counts the subscribers to the channels of the entries. Without the
// permission it sets nothing.
func (r *reader) countSubscribers(ctx context.Context, all []matchedEntry) error {
	var listened []int // indexes of entries with channels
	for i, c := range all {
		if c.heard.Channels != nil {
			listened = append(listened, i)
		}
	}
	for some := range slices.Chunk(listened, batchSize) {
		counts := make([]*redis.MapStringIntCmd, len(some))
		err := r.conn.pipelined(ctx, "count subscribers", func(p redis.Pipeliner) {
			for i, at := range some {
				counts[i] = p.PubSubNumSub(ctx, all[at].heard.Channels(all[at].entry)...)
			}
		})
		if err != nil {
			return err
		}
		for i, at := range some {
			if counts[i].Err() == nil {
				all[at].entry.Subscribers = counts[i].Val()
			}
		}
	}
	return nil
}

// readBounded reads keys, without the elements of oversized ones.
func (r *reader) readBounded(ctx context.Context, refs []keyRef) ([]keyspace.Entry, error) {
	refs, err := r.checkSizes(ctx, refs)
	if err != nil {
		return nil, err
	}
	return r.read(ctx, refs)
}

// read reads keys in batches. Keys that are gone, have another type, or may not be read
// are left out.
func (r *reader) read(ctx context.Context, refs []keyRef) ([]keyspace.Entry, error) {
	entries := make([]keyspace.Entry, 0, len(refs))
	for some := range slices.Chunk(refs, batchSize) {
		denied := r.conn.denied.count()
		reads, err := r.readBatch(ctx, some)
		for err == nil && r.conn.denied.count() > denied { // another command may take the place of one that is denied
			denied = r.conn.denied.count()
			if some, err = r.checkSizes(ctx, some); err == nil {
				reads, err = r.readBatch(ctx, some)
			}
		}
		if err != nil {
			return nil, err
		}
		for _, q := range reads {
			e, ok := q.entry()
			switch {
			case ok:
				e.Node = r.conn.answeredBy[q.expiry]
				if !e.Expires.IsZero() && !q.exact && (r.conn.denied.has("time") || e.Node != "") {
					e.Spread = keyspace.DeadlineJitter // read with a clock that is not tied to the read of the key
				}
				entries = append(entries, e)
			case q.expiry.Val() == -2: // it is gone
			case q.failedWith(isDenied):
				r.unread[q.name] = q.whyUnread()
			case q.failedWith(isRedirect):
				r.unread[q.name] = movingKey
			}
		}
	}
	return entries, nil
}

// readBatch reads keys in one round trip.
func (r *reader) readBatch(ctx context.Context, some []keyRef) ([]keyRead, error) {
	reads := make([]keyRead, len(some))
	exact := r.exact()
	err := r.conn.pipelined(ctx, "read keys", func(p redis.Pipeliner) {
		for from := 0; from < len(some); from += keysPerClock {
			block := reads[from:min(from+keysPerClock, len(some))]
			clock := p.Time(ctx)
			for i := range block {
				block[i] = queueRead(ctx, p, some[from+i], clock, exact)
			}
			if exact {
				continue
			}
			after := p.Time(ctx)
			for i := range block {
				block[i].after = after
			}
		}
	})
	return reads, err
}

// exact reports whether the server returns deadlines as points in time (PEXPIRETIME,
// since Redis 7.0). It is true until the command is denied.
func (r *reader) exact() bool { return !r.conn.denied.has("pexpiretime") }

// deadlineJitter is the largest difference between two reads of one deadline.
func (r *reader) deadlineJitter() time.Duration {
	if r.exact() {
		return exactJitter
	}
	return keyspace.DeadlineJitter
}

// keyRead is one key being read.
type keyRead struct {
	keyRef
	clock  *redis.TimeCmd // before the read
	after  *redis.TimeCmd // after the read; nil if the deadline is exact
	value  redis.Cmder
	size   *redis.IntCmd
	expiry *redis.DurationCmd // time to live, or the deadline since 1970 if exact
	exact  bool               // expiry is a deadline
}

// queueRead queues the commands that read one key. The value comes before the size and
// the deadline, so that a key that appears or vanishes in between is detected.
func queueRead(ctx context.Context, p redis.Pipeliner, k keyRef, clock *redis.TimeCmd, exact bool) keyRead {
	q := keyRead{keyRef: k, clock: clock, exact: exact}
	if !k.oversized {
		q.value = queueValue(ctx, p, k)
	}
	q.size = queueSize(ctx, p, k)
	if exact {
		q.expiry = p.PExpireTime(ctx, k.name)
	} else {
		q.expiry = p.PTTL(ctx, k.name)
	}
	return q
}

// queueValue queues the command that reads the bounded value; nil for an unknown type.
func queueValue(ctx context.Context, p redis.Pipeliner, k keyRef) redis.Cmder {
	switch k.typ {
	case "string":
		if k.small {
			return p.Get(ctx, k.name)
		}
		return p.GetRange(ctx, k.name, 0, valueBytes-1)
	case "hash":
		if k.small {
			return p.HGetAll(ctx, k.name)
		}
		return p.HScan(ctx, k.name, 0, "", maxElements)
	case "list":
		return p.LRange(ctx, k.name, 0, maxElements-1)
	case "set":
		return p.SScan(ctx, k.name, 0, "", maxElements)
	case "zset":
		return p.ZRangeWithScores(ctx, k.name, 0, maxElements-1)
	case "stream":
		return p.XRangeN(ctx, k.name, "-", "+", maxElements)
	default:
		return nil
	}
}

// queueSize queues the command that reads the size; nil for an unknown type.
func queueSize(ctx context.Context, p redis.Pipeliner, k keyRef) *redis.IntCmd {
	if queue := sizeCommands[k.typ]; queue != nil {
		return queue(p, ctx, k.name)
	}
	return nil
}

// sizeCommands read the size of a key, by its type.
var sizeCommands = map[string]func(redis.Pipeliner, context.Context, string) *redis.IntCmd{
	"string": redis.Pipeliner.StrLen, "hash": redis.Pipeliner.HLen, "list": redis.Pipeliner.LLen,
	"set": redis.Pipeliner.SCard, "zset": redis.Pipeliner.ZCard, "stream": redis.Pipeliner.XLen,
}

// failedWith reports whether an error of one of the commands matches.
func (q keyRead) failedWith(is func(error) bool) bool {
	return is(q.expiry.Err()) || q.size != nil && is(q.size.Err()) || q.value != nil && is(q.value.Err())
}

// entry returns the entry that was read; ok is false if there is none.
func (q keyRead) entry() (e keyspace.Entry, ok bool) {
	left, err := q.expiry.Result()
	gone := left == -2
	if q.size == nil || err != nil || gone || q.size.Err() != nil {
		return keyspace.Entry{}, false
	}
	e = keyspace.Entry{Key: q.name, Type: q.typ, Now: q.clock.Val(), Len: q.size.Val(), Oversized: q.oversized}
	switch {
	case left < 0:
	case q.exact:
		e.Expires = time.UnixMilli(left.Milliseconds())
	default: // in whole milliseconds: exact if both clock readings are in the same millisecond
		begin := e.Now.Truncate(time.Millisecond)
		e.Expires = begin.Add(left)
		e.Spread = max(q.after.Val().Truncate(time.Millisecond).Sub(begin), 0)
	}
	if q.oversized {
		return e, e.Len > 0
	}
	if q.value.Err() != nil {
		return keyspace.Entry{}, false
	}
	if value, ok := q.value.(*redis.StringCmd); ok {
		e.Value = value.Val()
		torn := int64(len(e.Value)) != min(e.Len, valueBytes)
		return e, !torn
	}
	e.Members = members(q.typ, q.value)
	return e, len(e.Members) > 0
}

// members returns the elements of a collection: of a list and a zset in their own
// order, of a hash and a set by name, of a stream its IDs.
func members(typ string, value redis.Cmder) []keyspace.Member {
	var all []keyspace.Member
	switch cmd := value.(type) {
	case *redis.StringSliceCmd:
		for _, name := range cmd.Val() {
			all = append(all, keyspace.Member{Name: clip(name)})
		}
	case *redis.MapStringStringCmd:
		var pairs []string
		for name, value := range cmd.Val() {
			pairs = append(pairs, name, value)
		}
		all = unordered(typ, pairs)
	case *redis.ZSliceCmd:
		for _, z := range cmd.Val() {
			name, _ := z.Member.(string)
			all = append(all, keyspace.Member{Name: clip(name), Score: z.Score})
		}
	case *redis.XMessageSliceCmd:
		for _, m := range cmd.Val() {
			all = append(all, keyspace.Member{Name: m.ID})
		}
	case *redis.ScanCmd:
		names, _ := cmd.Val()
		all = unordered(typ, names)
	}
	return all[:min(len(all), maxElements)]
}

// unordered returns the distinct elements of a hash or a set, sorted by name.
func unordered(typ string, reply []string) []keyspace.Member {
	var all []keyspace.Member
	if typ == "hash" {
		for pair := range slices.Chunk(reply, 2) {
			all = append(all, keyspace.Member{Name: clip(pair[0]), Value: clip(pair[len(pair)-1])})
		}
	} else {
		for _, name := range reply {
			all = append(all, keyspace.Member{Name: clip(name)})
		}
	}
	slices.SortFunc(all, func(a, b keyspace.Member) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b keyspace.Member) bool { return a.Name == b.Name })
}

// clip returns a copy of the first valueBytes of a longer element.
func clip(s string) string {
	if len(s) <= valueBytes {
		return s
	}
	return strings.Clone(s[:valueBytes])
}

// maxElementBytes is the maximum memory of the elements to read of one value, which
// takes the server about a millisecond. Of larger values no element is read, because
// Redis returns elements only whole.
const maxElementBytes = 2 << 20

// checkSizes returns the keys with the oversized ones marked, and the small ones of which a substitute reads the
// value. Strings are never oversized. A size is checked before every read, because a value may have grown. Without
// the permission for MEMORY USAGE nothing is oversized.
//
// The size is exact for up to 256 elements. Of larger collections 256 elements are
// sampled, so a single huge element among thousands may be missed.
func (r *reader) checkSizes(ctx context.Context, refs []keyRef) ([]keyRef, error) {
	refs = slices.Clone(refs)
	for some := range slices.Chunk(r.withSizes(refs), batchSize) {
		weights := make([]*redis.IntCmd, len(some))
		sizes := make([]*redis.IntCmd, len(some))
		err := r.conn.pipelined(ctx, "measure keys", func(p redis.Pipeliner) {
			for i, k := range some {
				weights[i] = p.MemoryUsage(ctx, k.name, maxElements)
				sizes[i] = queueSize(ctx, p, *k)
			}
		})
		if err != nil {
			return nil, err
		}
		for i, k := range some {
			k.oversized = k.typ != "string" && isOversized(weights[i].Val(), sizes[i].Val())
			k.small = r.substituted(k.typ) && sizes[i].Err() == nil && sizes[i].Val() <= smallSizes[k.typ]
		}
	}
	return refs, nil
}

// withSizes returns the keys whose size matters: those with elements, and those that a substitute may read.
func (r *reader) withSizes(refs []keyRef) []*keyRef {
	var all []*keyRef
	substituted := r.substituted("string")
	for i := range refs {
		k := &refs[i]
		if k.small = false; slices.Contains(collections[:], k.typ) || substituted && k.typ == "string" {
			all = append(all, k)
		}
	}
	return all
}

// collections are the types with elements.
var collections = [...]string{"hash", "list", "set", "zset", "stream"}

// isOversized reports whether the first elements of a value are too large to read.
func isOversized(bytes, size int64) bool {
	if size > maxElements {
		bytes = bytes / size * maxElements
	}
	return bytes > maxElementBytes
}
