package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

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

// reader reads keys that may be locks and decodes them. It is for one goroutine.
type reader struct {
	conn      meteredConn
	atLeast   keyspace.Confidence
	confirmed confirmedKeys

	unread   map[string]string // of the last call: keys that, or whose companions, could not be read, with the reason, and
	notLocks []string          // keys that are not locks
}

// detect reads keys and their companions, and decodes them. It returns those that are locks, in
// place of all.
func (r *reader) detect(ctx context.Context, all []candidate) ([]candidate, error) {
	matched, err := r.gather(ctx, all)
	if err != nil {
		return nil, err
	}
	return r.decode(matched), nil
}

// gather reads keys, and what the formats need to decode those that may be locks. It returns
// these, in place of all.
func (r *reader) gather(ctx context.Context, all []candidate) ([]candidate, error) {
	r.unread, r.notLocks = make(map[string]string), nil
	if err := r.read(ctx, all); err != nil {
		return nil, err
	}
	matched := all[:0]
	for _, c := range all {
		switch {
		case c.entry == nil:
		case r.match(&c):
			matched = append(matched, c)
		default:
			r.notLocks = append(r.notLocks, c.name)
		}
	}
	var both errgroup.Group // over a slow network, one wait is better than two
	counted := r.countSubscribers(ctx, &both, matched)
	err := r.readRelated(ctx, matched)
	if err == nil && r.conn.scanner.timesFields.Load() {
		err = r.readFieldDeadlines(ctx, matched)
	}
	if err = errors.Join(err, both.Wait()); err != nil {
		return nil, err
	}
	counted()
	return matched, nil
}

// match sets the format of a key that was read, and reports whether it may be a lock. The
// confidence can rise by companions, by subscribers, or because the key was confirmed.
func (r *reader) match(c *candidate) bool {
	f, heard, sure := r.best(*c.entry)
	if f == nil {
		return false
	}
	c.format, c.heard, c.certain = f, heard, sure == keyspace.Certain
	if f.Related != nil {
		c.companions = f.Related(*c.entry)
	}
	if heard == nil && f.Channels != nil {
		c.heard = f
	}
	return sure >= r.atLeast || c.heard != nil || f.Related != nil || r.confirmed[c.name] != ""
}

// best returns the format with the highest confidence in an entry, and that confidence.
// The first format wins a tie. The format is nil and the confidence is No if none matches.
// Subscribers may prove that the entry is of the format heard instead; nil = of no other.
func (r *reader) best(e keyspace.Entry) (found, heard *keyspace.Format, sure keyspace.Confidence) {
	formats := r.conn.scanner.opts.Formats
	for i := range formats {
		f := &formats[i]
		if f.Type != e.Type && f.Type != keyspace.AnyType || !f.MatchesName(e.Key) {
			continue
		}
		_, conf := f.Decode(e)
		if conf > keyspace.No && f.Channels != nil && f.Related == nil {
			heard = f
		}
		if conf > sure {
			found, sure = f, conf
		}
	}
	return found, heard, sure
}

// decode makes the locks of keys from all that was read. It returns those with enough
// confidence, in place of all.
func (r *reader) decode(all []candidate) []candidate {
	s, locks := r.conn.scanner, all[:0]
	for _, c := range all {
		lock := c.decoded()
		lock.Node, lock.DB, lock.OverdueIn = cmp.Or(c.entry.Node, s.node), s.opts.DB, OverdueIn(s.opts.Overdue, c.name)
		if why := r.confirmed[lock.Key]; lock.Confidence == keyspace.Possible && why != "" {
			lock = lock.WithEvidence(why)
		}
		if lock.Confidence < r.atLeast {
			continue
		}
		for i := range lock.Holders {
			unchanged := c.idle > 0 && strings.HasPrefix(c.entry.Value, c.probed) // since the probe, before which it was idle
			switch h, idle := &lock.Holders[i], time.Duration(c.idle)*time.Second; {
			case !unchanged || c.shared:
			case h.Since.IsZero(), h.Late > 0 && h.Late <= idle: // by the server, the hold is older than its token: the clock of the client is ahead
				h.Since, h.Late, h.Seen = time.Time{}, 0, c.entry.Now.Add(-idle)
			case h.Late > idle:
				h.Since, h.Late = h.Since.Add(-idle), h.Late-idle
			}
		}
		c.lock, c.partial = &lock, r.unread[c.name] != ""
		if c.standsIn() {
			c.companions = append(slices.Clip(c.companions), keyspace.Companion{Key: c.name, Type: c.typ})
		}
		c.entry, c.heard, c.probed = nil, nil, ""
		locks = append(locks, c)
	}
	return locks
}

// decoded returns the lock in the entry of a key. Subscribers may prove that it is of the
// format that was heard.
func (c *candidate) decoded() keyspace.Lock {
	e := c.entry
	if c.heard != nil && c.heard != c.format {
		if _, sure := c.heard.Decode(*e); sure == keyspace.Certain {
			c.format = c.heard
		}
	}
	c.spread, c.shared = e.Spread, e.Type == "string" && keyspace.SharedValue(e.Value)
	for _, beside := range e.Related {
		c.spread = max(c.spread, beside.Spread)
	}
	lock, _ := c.format.DecodeLock(*e)
	return lock
}

// standsIn reports whether the key stands in for the lock's own, which does not exist.
func (c *candidate) standsIn() bool { return c.name != c.lock.Key }

// OverdueIn returns when a hold of this key is overdue; 0 if no rule says so.
func OverdueIn(rules []Overdue, key string) time.Duration {
	for _, r := range rules {
		if keyspace.MatchGlob(r.Glob, key) {
			return r.After
		}
	}
	return 0
}

// read reads keys in batches, without the elements of oversized ones. A key that is gone, has
// another type, or may not be read has no entry.
func (r *reader) read(ctx context.Context, all []candidate) error {
	var each []*candidate
	for i := range all {
		if all[i].entry == nil { // else it was read with its type, or as a probe
			each = append(each, &all[i])
		}
	}
	if err := r.checkSizes(ctx, each); err != nil {
		return err
	}
	each = slices.DeleteFunc(each, func(c *candidate) bool { return c.absent })
	for some := range slices.Chunk(each, batchSize) {
		denied := r.conn.scanner.denied.count()
		reads, err := r.readBatch(ctx, some)
		for err == nil && r.conn.scanner.denied.count() > denied { // another command may take the place of one that is denied
			denied = r.conn.scanner.denied.count()
			if err = r.checkSizes(ctx, some); err == nil {
				reads, err = r.readBatch(ctx, some)
			}
		}
		if err != nil {
			return err
		}
		for _, q := range reads {
			r.take(q)
		}
	}
	return nil
}

// take sets the entry of a key, or notes why it could not be read.
func (r *reader) take(q keyRead) {
	q.entry = r.conn.entryOf(q, r.conn.answeredBy)
	switch {
	case q.entry != nil:
	case q.expiry.Val() == -2: // it is gone
	case q.failedWith(isDenied):
		r.unread[q.name] = q.whyUnread()
	case q.failedWith(isRedirect):
		r.unread[q.name] = movingKey
	}
}

// entryOf returns the entry of a key, which another node may have answered; nil: it could not be read.
func (c *meteredConn) entryOf(q keyRead, answeredBy map[redis.Cmder]string) *keyspace.Entry {
	e, ok := q.result()
	if !ok {
		return nil
	}
	e.Node = answeredBy[q.expiry]
	if !e.Expires.IsZero() && q.after != nil && (c.scanner.denied.has("time") || e.Node != "") {
		e.Spread = keyspace.DeadlineJitter // read with a clock that is not tied to the read of the key
	}
	return &e
}

// readBatch reads keys in one round trip.
func (r *reader) readBatch(ctx context.Context, some []*candidate) ([]keyRead, error) {
	var reads []keyRead
	err := r.conn.pipelined(ctx, "read keys", func(p redis.Pipeliner) { reads = r.queueReads(ctx, p, some) })
	return reads, err
}

// queueReads queues the commands that read keys.
func (r *reader) queueReads(ctx context.Context, p redis.Pipeliner, some []*candidate) []keyRead {
	reads := make([]keyRead, len(some))
	exact := r.exact()
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
	return reads
}

// exact reports whether the server returns deadlines as points in time (PEXPIRETIME,
// since Redis 7.0). It is true until the command is denied.
func (r *reader) exact() bool { return !r.conn.scanner.denied.has("pexpiretime") }

// keyRead is the commands that read a key.
type keyRead struct {
	*candidate
	clock  *redis.TimeCmd // before the read
	after  *redis.TimeCmd // after the read; nil if the deadline is exact
	value  redis.Cmder
	size   *redis.IntCmd
	expiry *redis.IntCmd // time to live, or the deadline since 1970 if exact, in ms
}

// queueRead queues the commands that read one key. The value comes before the size and
// the deadline, so that a key that appears or vanishes in between is detected.
func queueRead(ctx context.Context, p redis.Pipeliner, k *candidate, clock *redis.TimeCmd, exact bool) keyRead {
	q := keyRead{candidate: k, clock: clock}
	if !k.oversized {
		q.value = queueValue(ctx, p, k)
	}
	q.size = queueSize(ctx, p, k)
	command := "pttl"
	if exact {
		command = "pexpiretime"
	}
	q.expiry = redis.NewIntCmd(ctx, command, k.name)
	_ = p.Process(ctx, q.expiry) // it only queues; an error is returned when the pipeline is sent
	return q
}

// queueValue queues the command that reads the bounded value; nil for an unknown type.
func queueValue(ctx context.Context, p redis.Pipeliner, k *candidate) redis.Cmder {
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
func queueSize(ctx context.Context, p redis.Pipeliner, k *candidate) *redis.IntCmd {
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

// lastMilli is the end of the year 9999, in ms since 1970: JSON has no later time.
const lastMilli = 253_402_300_799_999

// failedWith reports whether an error of one of the commands matches.
func (q keyRead) failedWith(is func(error) bool) bool {
	return is(q.expiry.Err()) || q.size != nil && is(q.size.Err()) || q.value != nil && is(q.value.Err())
}

// result returns the entry that was read; ok is false if there is none.
func (q keyRead) result() (e keyspace.Entry, ok bool) {
	left, err := q.expiry.Result()
	gone := left == -2
	if q.size == nil || err != nil || gone || q.size.Err() != nil {
		return keyspace.Entry{}, false
	}
	e = keyspace.Entry{Key: q.name, Type: q.typ, Now: q.clock.Val(), Len: q.size.Val(), Oversized: q.oversized}
	switch {
	case left < 0:
	case q.after == nil:
		e.Expires = time.UnixMilli(min(left, lastMilli))
	default: // in whole milliseconds: exact if both clock readings are in the same millisecond
		begin := e.Now.Truncate(time.Millisecond)
		e.Expires = time.UnixMilli(min(begin.UnixMilli()+left, lastMilli))
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
// order, of a hash and a set by name, each once, of a stream its IDs.
func members(typ string, value redis.Cmder) (all []keyspace.Member) {
	add := func(name, value string, score float64) {
		all = append(all, keyspace.Member{Name: clip(name), Value: clip(value), Score: score})
	}
	switch cmd := value.(type) {
	case *redis.StringSliceCmd:
		for _, name := range cmd.Val() {
			add(name, "", 0)
		}
	case *redis.MapStringStringCmd:
		for name, value := range cmd.Val() {
			add(name, value, 0)
		}
	case *redis.ZSliceCmd:
		for _, z := range cmd.Val() {
			name, _ := z.Member.(string)
			add(name, "", z.Score)
		}
	case *redis.XMessageSliceCmd:
		for _, m := range cmd.Val() {
			add(m.ID, "", 0)
		}
	case *redis.ScanCmd:
		some, _ := cmd.Val()
		if typ == "hash" {
			for pair := range slices.Chunk(some, 2) {
				add(pair[0], pair[len(pair)-1], 0)
			}
			break
		}
		for _, name := range some {
			add(name, "", 0)
		}
	}
	if typ == "hash" || typ == "set" { // SCAN may return an element twice
		slices.SortFunc(all, func(a, b keyspace.Member) int { return cmp.Compare(a.Name, b.Name) })
		all = slices.CompactFunc(all, func(a, b keyspace.Member) bool { return a.Name == b.Name })
	}
	return all[:min(len(all), maxElements)]
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

// checkSizes marks the oversized keys, those that do not exist, and the small ones of which a substitute reads the value.
// Strings are never oversized. A size is checked before every read, because a value may have grown. Without the permission for
// MEMORY USAGE nothing is oversized.
//
// The size is exact for up to 256 elements. Of larger collections 256 elements are
// sampled, so a single huge element among thousands may be missed.
func (r *reader) checkSizes(ctx context.Context, all []*candidate) error {
	var sized []*candidate // those with elements, those that a substitute may read, and companions
	substituted := r.substituted("string")
	for _, c := range all {
		if c.small = false; c.absent || c.light && !r.substituted(c.typ) {
			c.oversized = false
			continue
		}
		if slices.Contains(collections[:], c.typ) || (substituted || c.companion) && c.typ == "string" {
			sized = append(sized, c)
		}
	}
	type measures struct{ weight, size *redis.IntCmd }
	measure := func(p redis.Pipeliner, c *candidate) measures {
		return measures{p.MemoryUsage(ctx, c.name, maxElements), queueSize(ctx, p, c)}
	}
	return inBatches(ctx, &r.conn, "measure keys", sized, measure, func(c *candidate, m measures) {
		c.absent = errors.Is(m.weight.Err(), redis.Nil)
		weight, size := m.weight.Val(), m.size.Val()
		if size > maxElements { // only the first are read
			weight = weight / size * maxElements
		}
		c.oversized = c.typ != "string" && weight > maxElementBytes
		c.small = r.substituted(c.typ) && m.size.Err() == nil && size <= smallSizes[c.typ]
	})
}

// collections are the types with elements.
var collections = [...]string{"hash", "list", "set", "zset", "stream"}
