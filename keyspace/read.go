package keyspace

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// How much of a value is read at the most, whatever its size.
const (
	probeBytes   = 128  // of a string, for a glance
	valueBytes   = 4096 // of a string, and of each element
	maxElements  = 256  // of a collection
	batchSize    = 256  // keys in one round trip
	keysPerClock = 32   // keys read by one reading of the server's clock
)

// keyRef is a key to be read, and the type it is thought to have.
type keyRef struct {
	key, typ  string
	sizeKnown bool // it was read before, and was no burden
	oversized bool // all but its elements is read
}

// reader reads keys that may be locks, and takes the locks from them. It is
// for one goroutine.
type reader struct {
	meteredConn
	formats    formatSet
	atLeast    Confidence
	node       string
	db         int
	overdue    []Overdue
	confirmed  confirmedKeys
	unreadable []string // of those taken last: keys that may not be read,
	unlocated  []string // keys that no node of the cluster has owned up to, and
	notLocks   []string // keys that are no locks
}

// detection is a lock, with what is needed to look at it again.
type detection struct {
	lock       Lock
	typ        string
	companions []Companion
	spread     time.Duration // the deadline may be later than was read by up to this
	firstRead  time.Time     // our clock: by then the holder had been read under this deadline
	lastRead   time.Time     // our clock: from then on it was read so for the last time
}

// detect reads the keys and their companions, and decodes them. Keys that are no
// locks, or no more, are left out.
func (r *reader) detect(ctx context.Context, refs []keyRef) ([]detection, error) {
	r.unreadable, r.unlocated, r.notLocks = nil, nil, nil
	entries, err := r.readBounded(ctx, refs)
	if err != nil {
		return nil, err
	}
	var matched []matchedEntry
	for _, e := range entries {
		if f, s := r.formats.best(e); s >= r.atLeast || s > No && r.mayUpgrade(f, e.Key) {
			matched = append(matched, matchedEntry{e, f, f.companionsOf(e)})
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
	var all []detection
	for _, c := range matched {
		lock, _ := c.format.decodeLock(c.entry)
		lock.Node, lock.DB, lock.OverdueIn = cmp.Or(c.entry.Node, r.node), r.db, overdueIn(r.overdue, c.entry.Key)
		l := detection{lock: lock, typ: c.entry.Type, companions: c.companions, spread: c.entry.spread()}
		if why := r.confirmed[lock.Key]; lock.Confidence == Possible && why != "" {
			l = promote(l, why)
		}
		if l.lock.Confidence >= r.atLeast {
			all = append(all, l)
		}
	}
	return all, nil
}

// mayUpgrade reports whether a format may become surer of a key: by what stands
// beside it, by who listens for it, or because it was watched.
func (r *reader) mayUpgrade(f Format, key string) bool {
	return f.Related != nil || f.Channels != nil || r.confirmed[key] != ""
}

// spread is by how much the deadlines that an entry tells of may be later than they
// were read.
func (e Entry) spread() time.Duration {
	most := e.Spread
	for _, r := range e.Related {
		most = max(most, r.Spread)
	}
	return most
}

// matchedEntry is an entry that a format takes.
type matchedEntry struct {
	entry      Entry
	format     Format
	companions []Companion
}

// readRelated reads the companions of all candidates, and hands to each entry
// its own.
func (r *reader) readRelated(ctx context.Context, all []matchedEntry) error {
	var refs []keyRef
	for _, c := range all {
		for _, b := range c.companions {
			refs = append(refs, keyRef{key: b.Key, typ: b.Type})
		}
	}
	related, err := r.read(ctx, refs)
	if err != nil {
		return err
	}
	byKey := make(map[string]Entry, len(related))
	for _, e := range related {
		byKey[e.Key] = e
	}
	for i, c := range all {
		all[i].entry.Related = make(map[string]Entry, len(c.companions))
		for _, b := range c.companions {
			if e, ok := byKey[b.Key]; ok {
				all[i].entry.Related[b.Key] = e
			}
		}
	}
	return nil
}

// countSubscribers asks how many listen to the channels of the candidates, and
// hands to each entry its own. Where that may not be asked, entries have none.
func (r *reader) countSubscribers(ctx context.Context, all []matchedEntry) error {
	var listened []int // candidates that may be listened to
	for i, c := range all {
		if c.format.Channels != nil {
			listened = append(listened, i)
		}
	}
	for some := range slices.Chunk(listened, batchSize) {
		asked := make([]*redis.MapStringIntCmd, len(some))
		err := r.pipelined(ctx, "count subscribers", func(p redis.Pipeliner) {
			for i, at := range some {
				asked[i] = p.PubSubNumSub(ctx, all[at].format.Channels(all[at].entry)...)
			}
		})
		if err != nil {
			return err
		}
		for i, at := range some {
			if asked[i].Err() == nil {
				all[at].entry.Subscribers = asked[i].Val()
			}
		}
	}
	return nil
}

// readBounded reads keys, without the elements of those that are too heavy.
func (r *reader) readBounded(ctx context.Context, refs []keyRef) ([]Entry, error) {
	refs, err := r.checkSizes(ctx, refs)
	if err != nil {
		return nil, err
	}
	return r.read(ctx, refs)
}

// read reads keys, a few hundred a round trip. Those that are gone, have
// another type by now, or may not be read, are left out.
func (r *reader) read(ctx context.Context, refs []keyRef) ([]Entry, error) {
	entries := make([]Entry, 0, len(refs))
	for some := range slices.Chunk(refs, batchSize) {
		exact := r.exact()
		asked, err := r.readBatch(ctx, some)
		if err == nil && exact && !r.exact() {
			asked, err = r.readBatch(ctx, some)
		}
		if err != nil {
			return nil, err
		}
		for _, q := range asked {
			e, ok := q.entry()
			switch {
			case ok:
				e.Node = r.answeredBy[q.expiry]
				if !e.Expires.IsZero() && !q.exact && (r.denied.has("time") || e.Node != "") {
					e.Spread = jitter // it is by another clock, which knows nothing of when the key was read
				}
				entries = append(entries, e)
			case q.failedWith(isDenied):
				r.unreadable = append(r.unreadable, q.key)
			case q.failedWith(isRedirect):
				r.unlocated = append(r.unlocated, q.key)
			}
		}
	}
	return entries, nil
}

// readBatch reads keys in one round trip.
func (r *reader) readBatch(ctx context.Context, some []keyRef) ([]keyRead, error) {
	asked := make([]keyRead, len(some))
	exact := r.exact()
	err := r.pipelined(ctx, "read keys", func(p redis.Pipeliner) {
		for from := 0; from < len(some); from += keysPerClock {
			block := asked[from:min(from+keysPerClock, len(some))]
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
	return asked, err
}

// exact reports whether the server tells deadlines as points in time (since
// Redis 7), and not as what is left until then. It is so until it was refused.
func (r *reader) exact() bool { return !r.denied.has("pexpiretime") }

// deadlineSlack is by how much two readings of one deadline may differ.
func (r *reader) deadlineSlack() time.Duration {
	if r.exact() {
		return exactJitter
	}
	return jitter
}

// keyRead is a key being read.
type keyRead struct {
	keyRef
	clock  *redis.TimeCmd // before it is read
	after  *redis.TimeCmd // and after it; nil if the deadline is exact
	value  redis.Cmder
	size   *redis.IntCmd
	expiry *redis.DurationCmd // or until, counted from 1970
	exact  bool               // it is the latter
}

// queueRead queues the commands that read one key. The value comes before its size
// and its deadline, so that a key that goes or comes in between shows.
func queueRead(ctx context.Context, p redis.Pipeliner, k keyRef, clock *redis.TimeCmd, exact bool) keyRead {
	q := keyRead{keyRef: k, clock: clock, exact: exact}
	if !k.oversized {
		q.value = queueValue(ctx, p, k)
	}
	q.size = queueSize(ctx, p, k)
	if exact {
		q.expiry = p.PExpireTime(ctx, k.key)
	} else {
		q.expiry = p.PTTL(ctx, k.key)
	}
	return q
}

// queueValue queues the command for as much of a value as may be read; nil if there
// is no such type.
func queueValue(ctx context.Context, p redis.Pipeliner, k keyRef) redis.Cmder {
	switch k.typ {
	case "string":
		return p.GetRange(ctx, k.key, 0, valueBytes-1)
	case "hash":
		return p.HScan(ctx, k.key, 0, "", maxElements)
	case "list":
		return p.LRange(ctx, k.key, 0, maxElements-1)
	case "set":
		return p.SScan(ctx, k.key, 0, "", maxElements)
	case "zset":
		return p.ZRangeWithScores(ctx, k.key, 0, maxElements-1)
	case "stream":
		return p.XRangeN(ctx, k.key, "-", "+", maxElements)
	default:
		return nil
	}
}

// queueSize queues the command for the size of a value; nil if there is no such
// type.
func queueSize(ctx context.Context, p redis.Pipeliner, k keyRef) *redis.IntCmd {
	switch k.typ {
	case "string":
		return p.StrLen(ctx, k.key)
	case "hash":
		return p.HLen(ctx, k.key)
	case "list":
		return p.LLen(ctx, k.key)
	case "set":
		return p.SCard(ctx, k.key)
	case "zset":
		return p.ZCard(ctx, k.key)
	case "stream":
		return p.XLen(ctx, k.key)
	default:
		return nil
	}
}

// failedWith reports whether one of the commands has failed in a way.
func (q keyRead) failedWith(so func(error) bool) bool {
	return so(q.expiry.Err()) || q.size != nil && so(q.size.Err()) || q.value != nil && so(q.value.Err())
}

// entry is the answer; ok is false if there is none.
func (q keyRead) entry() (e Entry, ok bool) {
	left, err := q.expiry.Result()
	gone := left == -2
	if q.size == nil || err != nil || gone || q.size.Err() != nil {
		return Entry{}, false
	}
	e = Entry{Key: q.key, Type: q.typ, Now: q.clock.Val(), Len: q.size.Val(), Oversized: q.oversized}
	switch {
	case left < 0:
	case q.exact:
		e.Expires = time.UnixMilli(left.Milliseconds())
	default: // in whole milliseconds: exact if the clock has not come to the next one meanwhile
		begin := e.Now.Truncate(time.Millisecond)
		e.Expires = begin.Add(left)
		e.Spread = max(q.after.Val().Truncate(time.Millisecond).Sub(begin), 0)
	}
	if q.oversized {
		return e, e.Len > 0
	}
	if q.value.Err() != nil {
		return Entry{}, false
	}
	if value, ok := q.value.(*redis.StringCmd); ok {
		e.Value = value.Val()
		torn := int64(len(e.Value)) != min(e.Len, valueBytes)
		return e, !torn
	}
	e.Members = members(q.typ, q.value)
	return e, len(e.Members) > 0
}

// members returns the elements of a collection: a list's and a zset's in their
// own order, a hash's and a set's by name, and the ids of a stream's entries.
func members(typ string, value redis.Cmder) []Member {
	var all []Member
	switch cmd := value.(type) {
	case *redis.StringSliceCmd:
		for _, name := range cmd.Val() {
			all = append(all, Member{Name: clip(name)})
		}
	case *redis.ZSliceCmd:
		for _, z := range cmd.Val() {
			name, _ := z.Member.(string)
			all = append(all, Member{Name: clip(name), Score: z.Score})
		}
	case *redis.XMessageSliceCmd:
		for _, m := range cmd.Val() {
			all = append(all, Member{Name: m.ID})
		}
	case *redis.ScanCmd:
		names, _ := cmd.Val()
		all = unordered(typ, names)
	}
	return all[:min(len(all), maxElements)]
}

// unordered returns the elements of a reply of HSCAN or SSCAN by name, each
// once.
func unordered(typ string, reply []string) []Member {
	var all []Member
	if typ == "hash" {
		for pair := range slices.Chunk(reply, 2) {
			all = append(all, Member{Name: clip(pair[0]), Value: clip(pair[len(pair)-1])})
		}
	} else {
		for _, name := range reply {
			all = append(all, Member{Name: clip(name)})
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Member) bool { return a.Name == b.Name })
}

// clip cuts an element to what is kept of it, and lets go of the rest.
func clip(s string) string {
	if len(s) <= valueBytes {
		return s
	}
	return strings.Clone(s[:valueBytes])
}
