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
	glanceBytes = 128  // of a string, for a glance
	valueBytes  = 4096 // of a string, and of each element
	elements    = 256  // of a collection
	batch       = 256  // keys in one round trip
	clockEvery  = 32   // keys read by one reading of the server's clock
)

// ref is a key to be read, and the type it is thought to have.
type ref struct {
	key, typ string
	again    bool // it was read before, and was no burden
	heavy    bool // all but its elements is read
}

// reader reads keys that may be locks, and takes the locks from them. It is
// for one goroutine.
type reader struct {
	link
	formats catalogue
	atLeast Confidence
	node    string
	db      int
	trusted trust
	denied  []string // of those taken last: keys that may not be read,
	astray  []string // keys that no node of the cluster has owned up to, and
	plain   []string // keys that are no locks
}

// found is a lock, with what is needed to look at it again.
type found struct {
	lock   Lock
	typ    string
	claims []Companion
	spread time.Duration // the deadline may be later than was read by up to this
	first  time.Time     // our clock: by then the holder had been read under this deadline
	last   time.Time     // our clock: from then on it was read so for the last time
}

// take reads the keys and their companions, and decodes them. Keys that are no
// locks, or no more, are left out.
func (r *reader) take(ctx context.Context, refs []ref) ([]found, error) {
	r.denied, r.astray, r.plain = nil, nil, nil
	entries, err := r.readInBounds(ctx, refs)
	if err != nil {
		return nil, err
	}
	var sure []candidate
	for _, e := range entries {
		if f, s := r.formats.surest(e); s >= r.atLeast || s > No && r.mayGrow(f, e.Key) {
			sure = append(sure, candidate{e, f, f.related(e)})
		} else {
			r.plain = append(r.plain, e.Key)
		}
	}
	if err := r.readRelated(ctx, sure); err != nil {
		return nil, err
	}
	if err := r.countSubscribers(ctx, sure); err != nil {
		return nil, err
	}
	var all []found
	for _, c := range sure {
		lock, _ := c.format.lock(c.entry)
		lock.Node, lock.DB = cmp.Or(c.entry.Node, r.node), r.db
		l := found{lock: lock, typ: c.entry.Type, claims: c.beside, spread: c.entry.spread()}
		if why := r.trusted[lock.Key]; lock.Confidence == Possible && why != "" {
			l = raised(l, why)
		}
		if l.lock.Confidence >= r.atLeast {
			all = append(all, l)
		}
	}
	return all, nil
}

// mayGrow reports whether a format may become surer of a key: by what stands
// beside it, by who listens for it, or because it was watched.
func (r *reader) mayGrow(f Format, key string) bool {
	return f.Related != nil || f.Channels != nil || r.trusted[key] != ""
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

// candidate is an entry that a format takes.
type candidate struct {
	entry  Entry
	format Format
	beside []Companion
}

// readRelated reads the companions of all candidates, and hands to each entry
// its own.
func (r *reader) readRelated(ctx context.Context, all []candidate) error {
	var refs []ref
	for _, c := range all {
		for _, b := range c.beside {
			refs = append(refs, ref{key: b.Key, typ: b.Type})
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
		all[i].entry.Related = make(map[string]Entry, len(c.beside))
		for _, b := range c.beside {
			if e, ok := byKey[b.Key]; ok {
				all[i].entry.Related[b.Key] = e
			}
		}
	}
	return nil
}

// countSubscribers asks how many listen to the channels of the candidates, and
// hands to each entry its own. Where that may not be asked, entries have none.
func (r *reader) countSubscribers(ctx context.Context, all []candidate) error {
	var listened []int // candidates that may be listened to
	for i, c := range all {
		if c.format.Channels != nil {
			listened = append(listened, i)
		}
	}
	for some := range slices.Chunk(listened, batch) {
		asked := make([]*redis.MapStringIntCmd, len(some))
		err := r.ask(ctx, "count subscribers", func(p redis.Pipeliner) {
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

// readInBounds reads keys, without the elements of those that are too heavy.
func (r *reader) readInBounds(ctx context.Context, refs []ref) ([]Entry, error) {
	refs, err := r.weigh(ctx, refs)
	if err != nil {
		return nil, err
	}
	return r.read(ctx, refs)
}

// read reads keys, a few hundred a round trip. Those that are gone, have
// another type by now, or may not be read, are left out.
func (r *reader) read(ctx context.Context, refs []ref) ([]Entry, error) {
	entries := make([]Entry, 0, len(refs))
	for some := range slices.Chunk(refs, batch) {
		exact := r.exact()
		asked, err := r.question(ctx, some)
		if err == nil && exact && !r.exact() {
			asked, err = r.question(ctx, some)
		}
		if err != nil {
			return nil, err
		}
		for _, q := range asked {
			e, ok := q.entry()
			switch {
			case ok:
				e.Node = r.elsewhere[q.left]
				if !e.Expires.IsZero() && !q.exact && (r.refused.has("time") || e.Node != "") {
					e.Spread = jitter // it is by another clock, which knows nothing of when the key was read
				}
				entries = append(entries, e)
			case q.failed(refused):
				r.denied = append(r.denied, q.key)
			case q.failed(redirected):
				r.astray = append(r.astray, q.key)
			}
		}
	}
	return entries, nil
}

// question reads keys in one round trip.
func (r *reader) question(ctx context.Context, some []ref) ([]question, error) {
	asked := make([]question, len(some))
	exact := r.exact()
	err := r.ask(ctx, "read keys", func(p redis.Pipeliner) {
		for from := 0; from < len(some); from += clockEvery {
			block := asked[from:min(from+clockEvery, len(some))]
			clock := p.Time(ctx)
			for i := range block {
				block[i] = ask(ctx, p, some[from+i], clock, exact)
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
func (r *reader) exact() bool { return !r.refused.has("pexpiretime") }

// blur is by how much two readings of one deadline may differ.
func (r *reader) blur() time.Duration {
	if r.exact() {
		return exactJitter
	}
	return jitter
}

// question is a key being read.
type question struct {
	ref
	clock *redis.TimeCmd // before it is read
	after *redis.TimeCmd // and after it; nil if the deadline is exact
	value redis.Cmder
	size  *redis.IntCmd
	left  *redis.DurationCmd // or until, counted from 1970
	exact bool               // it is the latter
}

// ask queues the commands that read one key. The value comes before its size
// and its deadline, so that a key that goes or comes in between shows.
func ask(ctx context.Context, p redis.Pipeliner, k ref, clock *redis.TimeCmd, exact bool) question {
	q := question{ref: k, clock: clock, exact: exact}
	if !k.heavy {
		q.value = askValue(ctx, p, k)
	}
	q.size = askSize(ctx, p, k)
	if exact {
		q.left = p.PExpireTime(ctx, k.key)
	} else {
		q.left = p.PTTL(ctx, k.key)
	}
	return q
}

// askValue queues the command for as much of a value as may be read; nil if there
// is no such type.
func askValue(ctx context.Context, p redis.Pipeliner, k ref) redis.Cmder {
	switch k.typ {
	case "string":
		return p.GetRange(ctx, k.key, 0, valueBytes-1)
	case "hash":
		return p.HScan(ctx, k.key, 0, "", elements)
	case "list":
		return p.LRange(ctx, k.key, 0, elements-1)
	case "set":
		return p.SScan(ctx, k.key, 0, "", elements)
	case "zset":
		return p.ZRangeWithScores(ctx, k.key, 0, elements-1)
	case "stream":
		return p.XRangeN(ctx, k.key, "-", "+", elements)
	default:
		return nil
	}
}

// askSize queues the command for the size of a value; nil if there is no such
// type.
func askSize(ctx context.Context, p redis.Pipeliner, k ref) *redis.IntCmd {
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

// failed reports whether one of the commands has failed in a way.
func (q question) failed(so func(error) bool) bool {
	return so(q.left.Err()) || q.size != nil && so(q.size.Err()) || q.value != nil && so(q.value.Err())
}

// entry is the answer; ok is false if there is none.
func (q question) entry() (e Entry, ok bool) {
	left, err := q.left.Result()
	gone := left == -2
	if q.size == nil || err != nil || gone || q.size.Err() != nil {
		return Entry{}, false
	}
	e = Entry{Key: q.key, Type: q.typ, Now: q.clock.Val(), Len: q.size.Val(), Oversized: q.heavy}
	switch {
	case left < 0:
	case q.exact:
		e.Expires = time.UnixMilli(left.Milliseconds())
	default: // in whole milliseconds: exact if the clock has not come to the next one meanwhile
		begin := e.Now.Truncate(time.Millisecond)
		e.Expires = begin.Add(left)
		e.Spread = max(q.after.Val().Truncate(time.Millisecond).Sub(begin), 0)
	}
	if q.heavy {
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
	return all[:min(len(all), elements)]
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
