package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
type ref struct{ key, typ string }

// reader reads what walks and followers have turned up, and takes locks from
// it. It is for one goroutine.
type reader struct {
	link
	formats catalogue
	atLeast Confidence
	node    string
	db      int
	now     time.Time       // the server's clock at the last look
	blind   map[string]bool // types at which the server refuses a glance
}

// found is a lock, with what is needed to look at it again.
type found struct {
	lock   Lock
	typ    string
	claims []string
}

// sift takes the locks from among keys that nothing is known of. It drops most
// of them by name, most of the rest after a glance, and reads what is left.
func (r *reader) sift(ctx context.Context, refs []ref) ([]found, error) {
	var doubtful, promising []ref
	for _, k := range refs {
		switch need := r.formats.look(k.key, k.typ); {
		case need == whole, need == glance && r.blind[k.typ]:
			promising = append(promising, k)
		case need == glance:
			doubtful = append(doubtful, k)
		}
	}
	glanced, err := r.glance(ctx, doubtful)
	if err != nil {
		return nil, err
	}
	return r.take(ctx, append(promising, glanced...))
}

// glance reads the first piece of each value and returns the keys that a
// format could still take. Where the server refuses to show a first piece, it
// returns the keys of that type unseen.
func (r *reader) glance(ctx context.Context, refs []ref) ([]ref, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	p := r.rdb.Pipeline()
	first := make([]*redis.StringCmd, len(refs))
	for i, k := range refs {
		first[i] = firstPiece(ctx, k)
		_ = p.Process(ctx, first[i]) // queues; the error comes from send
	}
	if err := r.send(ctx, "look at keys", p); err != nil {
		return nil, err
	}
	var promising []ref
	for i, k := range refs {
		piece, err := first[i].Result()
		switch {
		case err == nil && r.formats.promises(k.key, k.typ, piece, r.atLeast):
			promising = append(promising, k)
		case refused(err):
			r.blind[k.typ] = true
			promising = append(promising, k)
		}
	}
	return promising, nil
}

// firstPiece is the command that shows the first piece of a value, in constant
// time and, but for a single huge element, in bounded space.
func firstPiece(ctx context.Context, k ref) *redis.StringCmd {
	switch k.typ {
	case "hash":
		return redis.NewStringCmd(ctx, "hrandfield", k.key)
	case "set":
		return redis.NewStringCmd(ctx, "srandmember", k.key)
	case "zset":
		return redis.NewStringCmd(ctx, "zrandmember", k.key)
	case "list":
		return redis.NewStringCmd(ctx, "lindex", k.key, 0)
	default:
		return redis.NewStringCmd(ctx, "getrange", k.key, 0, glanceBytes-1)
	}
}

// take reads the keys and their companions, and decodes them. Keys that are no
// locks, or no more, are left out.
func (r *reader) take(ctx context.Context, refs []ref) ([]found, error) {
	entries, err := r.read(ctx, refs)
	if err != nil {
		return nil, err
	}
	claims, err := r.readRelated(ctx, entries)
	if err != nil {
		return nil, err
	}
	var all []found
	for i, e := range entries {
		lock, sure := r.formats.decode(e)
		if sure < r.atLeast {
			continue
		}
		lock.Node, lock.DB = r.node, r.db
		all = append(all, found{lock: lock, typ: e.Type, claims: claims[i]})
	}
	return all, nil
}

// readRelated reads the companions of all entries, hands to each entry its
// own, and returns which keys each entry claims.
func (r *reader) readRelated(ctx context.Context, entries []Entry) ([][]string, error) {
	claims := make([][]string, len(entries))
	var refs []ref
	for i, e := range entries {
		for _, c := range r.formats.related(e) {
			claims[i] = append(claims[i], c.Key)
			refs = append(refs, ref{c.Key, c.Type})
		}
	}
	related, err := r.read(ctx, refs)
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]Entry, len(related))
	for _, e := range related {
		byKey[e.Key] = e
	}
	for i := range entries {
		entries[i].Related = make(map[string]Entry, len(claims[i]))
		for _, key := range claims[i] {
			if e, ok := byKey[key]; ok {
				entries[i].Related[key] = e
			}
		}
	}
	return claims, nil
}

// read reads keys, a few hundred a round trip. Those that are gone, have
// another type by now, or may not be read, are left out.
func (r *reader) read(ctx context.Context, refs []ref) ([]Entry, error) {
	entries := make([]Entry, 0, len(refs))
	for some := range slices.Chunk(refs, batch) {
		p := r.rdb.Pipeline()
		asked := make([]question, len(some))
		var clock *redis.TimeCmd
		for i, k := range some {
			if i%clockEvery == 0 {
				clock = p.Time(ctx)
			}
			asked[i] = ask(ctx, p, k, clock)
		}
		if err := r.send(ctx, "read keys", p); err != nil {
			return nil, err
		}
		r.now = clock.Val()
		for _, q := range asked {
			if e, ok := q.entry(); ok {
				entries = append(entries, e)
			}
		}
	}
	return entries, nil
}

// question is a key being read.
type question struct {
	ref
	clock *redis.TimeCmd
	value redis.Cmder
	size  *redis.IntCmd
	left  *redis.DurationCmd
}

// ask queues the commands that read one key. The value comes before its size
// and its time to live, so that a key that goes or comes in between shows.
func ask(ctx context.Context, p redis.Pipeliner, k ref, clock *redis.TimeCmd) question {
	q := question{ref: k, clock: clock}
	switch k.typ {
	case "string":
		q.value, q.size = p.GetRange(ctx, k.key, 0, valueBytes-1), p.StrLen(ctx, k.key)
	case "hash":
		q.value, q.size = p.HScan(ctx, k.key, 0, "", elements), p.HLen(ctx, k.key)
	case "list":
		q.value, q.size = p.LRange(ctx, k.key, 0, elements-1), p.LLen(ctx, k.key)
	case "set":
		q.value, q.size = p.SScan(ctx, k.key, 0, "", elements), p.SCard(ctx, k.key)
	case "zset":
		q.value, q.size = p.ZRangeWithScores(ctx, k.key, 0, elements-1), p.ZCard(ctx, k.key)
	}
	q.left = p.PTTL(ctx, k.key)
	return q
}

// entry is the answer; ok is false if there is none.
func (q question) entry() (e Entry, ok bool) {
	left, err := q.left.Result()
	gone := left == -2
	if q.value == nil || err != nil || gone || q.value.Err() != nil || q.size.Err() != nil {
		return Entry{}, false
	}
	e = Entry{Key: q.key, Type: q.typ, Now: q.clock.Val(), Len: q.size.Val()}
	if left >= 0 {
		e.Expires = e.Now.Add(left)
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
// own order, a hash's and a set's by name.
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

// link sends commands to a server and keeps account of them.
type link struct {
	rdb  redis.UniversalClient
	cost Cost
}

// send executes a pipeline. Answers that concern a single key (it has another
// type, it may not be read) stay with their commands; anything else that went
// wrong is returned.
func (l *link) send(ctx context.Context, what string, p redis.Pipeliner) error {
	cmds, err := l.exec(ctx, p)
	if err == nil {
		return nil
	}
	for _, c := range cmds {
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) && !wrongType(err) && !refused(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// wrongType reports whether a key turned out to have another type.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// refused reports whether a server does not know a command, or does not let
// this user send it.
func refused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command"))
}
