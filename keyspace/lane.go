package keyspace

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of one page and of a whole walk.
const (
	firstCount = 250                    // COUNT of the first page
	minCount   = 50                     // however slow the server
	maxCount   = 1000                   // more stalls everybody else for milliseconds
	pageTime   = 400 * time.Microsecond // what a SCAN may take the server
	maxRounds  = 4                      // times the size of the keyspace, before a walk gives up
	roundSlack = 10_000                 // keys by which a small keyspace may grow meanwhile
)

// lane walks over the keys of one type, a page of SCAN at a time. It glances
// at the keys of a page in the round trip that fetches the next.
//
// Asking for a type makes the server visit all keys once for each type, but
// name only those that are of interest. With two types that costs it less than
// to name them all and be asked for the type of each, and no more than a
// script would that did the sorting on the server; but a script may be
// forbidden, and holds up everybody else for longer.
type lane struct {
	reader
	typ, glob string
	keys      int64 // in the keyspace when the walk began
	count     int64 // COUNT of the next page
	cursor    uint64
	walked    bool  // SCAN has come to its end
	endless   bool  // it would not, and was given up
	blind     bool  // the server refuses glances at this type
	scanned   int64 // keys visited
	doubtful  []ref // on the last page, to be glanced at
}

// haul is what one step of a lane brings in.
type haul struct {
	locks   []found
	visited int64 // keys, never more than there were, and all of them in the end
	cost    Cost
	now     time.Time // the server's clock
}

// done reports whether there is nothing left to do.
func (l *lane) done() bool { return l.walked && len(l.doubtful) == 0 }

// step fetches a page, glances at the page before, and takes the locks from
// among what has shown itself promising. On error the lane is lost.
func (l *lane) step(ctx context.Context) (haul, error) {
	l.cost = Cost{}
	p := l.rdb.Pipeline()
	before := p.Time(ctx)
	var scan *redis.ScanCmd
	if !l.walked {
		scan = p.ScanType(ctx, l.cursor, l.glob, l.count, l.typ)
	}
	after := p.Time(ctx)
	pieces := l.glance(ctx, p)
	if err := l.send(ctx, "scan keys", p); err != nil {
		return haul{}, err
	}
	l.now = after.Val()
	promising := l.promising(pieces)
	visited := int64(0)
	if scan != nil {
		if err := scan.Err(); err != nil {
			return haul{}, fmt.Errorf("scan keys: %w", err)
		}
		names, cursor := scan.Val()
		promising = append(promising, l.sort(names)...)
		visited = l.advance(cursor)
		l.count = nextCount(l.count, after.Val().Sub(before.Val()))
	}
	locks, err := l.take(ctx, promising)
	return haul{locks: locks, visited: visited, cost: l.cost, now: l.now}, err
}

// glance queues a look at the first piece of each doubtful value.
func (l *lane) glance(ctx context.Context, p redis.Pipeliner) []*redis.StringCmd {
	pieces := make([]*redis.StringCmd, len(l.doubtful))
	for i, k := range l.doubtful {
		pieces[i] = firstPiece(ctx, k)
		_ = p.Process(ctx, pieces[i]) // only queues: what goes wrong is known when it is sent
	}
	return pieces
}

// promising returns the doubtful keys that a format could still take. Where
// the server refuses to show a first piece, those are all of them.
func (l *lane) promising(pieces []*redis.StringCmd) []ref {
	var some []ref
	for i, k := range l.doubtful {
		piece, err := pieces[i].Result()
		l.blind = l.blind || refused(err)
		if refused(err) || err == nil && l.formats.promises(k.key, k.typ, piece, l.atLeast) {
			some = append(some, k)
		}
	}
	l.doubtful = l.doubtful[:0]
	return some
}

// sort looks at the names on a page. It drops those that no format takes,
// lays aside those that want a glance, and returns the rest.
func (l *lane) sort(names []string) []ref {
	var promising []ref
	for _, name := range names {
		switch need := l.formats.look(name, l.typ); {
		case need == whole, need == glance && l.blind:
			promising = append(promising, ref{name, l.typ})
		case need == glance:
			l.doubtful = append(l.doubtful, ref{name, l.typ})
		}
	}
	return promising
}

// advance moves the lane on and returns how many keys were visited.
func (l *lane) advance(cursor uint64) int64 {
	before := min(l.scanned, l.keys)
	l.cursor = cursor
	l.scanned += l.count
	l.endless = cursor != 0 && l.keys > 0 && l.scanned > maxRounds*l.keys+roundSlack
	l.walked = cursor == 0 || l.endless
	if l.walked {
		return l.keys - before
	}
	return min(l.scanned, l.keys) - before
}

// nextCount fits COUNT to what a page took the server, by the server's clock.
func nextCount(count int64, took time.Duration) int64 {
	fit := 2 * count
	if took > 0 {
		fit = count * int64(pageTime) / int64(took)
	}
	fit = min(max(fit, count/2), 2*count)
	return min(max(fit, minCount), maxCount)
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
