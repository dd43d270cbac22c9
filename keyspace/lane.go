package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// lane is the part of a pass that is about the keys of one type and glob.
type lane struct {
	typ, glob string // glob "" = all keys
	keys      int64  // in the keyspace when the pass began
	cursor    uint64
	scanned   int64 // keys visited
	walked    bool  // SCAN has come to its end
	endless   bool  // it would not, and was given up
	blind     bool  // the server refuses glances at this type
	doubtful  []ref // on the last page, to be glanced at
	scan      *redis.ScanCmd
	pieces    []*redis.StringCmd // of the doubtful
}

// A lane is given up when it has visited this many times the keys there were,
// and some: a writer that adds keys as fast as we walk would keep us walking.
const (
	maxRounds  = 4
	roundSlack = 10_000
)

// done reports whether there is nothing left to do.
func (l *lane) done() bool { return l.walked && len(l.doubtful) == 0 }

// askPage queues the SCAN of the next page.
func (l *lane) askPage(ctx context.Context, p redis.Pipeliner, count int64) {
	l.scan = nil
	if !l.walked {
		l.scan = p.ScanType(ctx, l.cursor, l.glob, count, l.typ)
	}
}

// askGlances queues a look at the first piece of each doubtful value.
func (l *lane) askGlances(ctx context.Context, p redis.Pipeliner) {
	l.pieces = l.pieces[:0]
	for _, k := range l.doubtful {
		piece := firstPiece(ctx, k)
		_ = p.Process(ctx, piece) // only queues: what goes wrong is known when it is sent
		l.pieces = append(l.pieces, piece)
	}
}

// glanced returns the doubtful keys that a format could still take. Where the
// server refuses to show a first piece, those are all of them.
func (l *lane) glanced(formats catalogue, atLeast Confidence) []ref {
	var promising []ref
	for i, k := range l.doubtful {
		piece, err := l.pieces[i].Result()
		l.blind = l.blind || refused(err)
		if refused(err) || err == nil && formats.promises(k.key, k.typ, piece, atLeast) {
			promising = append(promising, k)
		}
	}
	l.doubtful = l.doubtful[:0]
	return promising
}

// page takes in the page that was asked for. It drops the names that no format
// takes, lays aside those that want a glance, and returns the rest.
func (l *lane) page(formats catalogue) ([]ref, error) {
	if l.scan == nil {
		return nil, nil
	}
	names, cursor, err := l.scan.Result()
	if err != nil {
		return nil, fmt.Errorf("scan keys: %w", err)
	}
	l.cursor = cursor
	var promising []ref
	for _, name := range names {
		switch need := formats.look(name, l.typ); {
		case need == whole, need == glance && l.blind:
			promising = append(promising, ref{name, l.typ})
		case need == glance:
			l.doubtful = append(l.doubtful, ref{name, l.typ})
		}
	}
	return promising, nil
}

// advance books a page of so many keys, and returns how many of those that
// were there when the pass began have been visited by it: none twice, and in
// the end all.
func (l *lane) advance(count int64) int64 {
	if l.walked {
		return 0
	}
	before := min(l.scanned, l.keys)
	l.scanned += count
	l.endless = l.cursor != 0 && l.keys > 0 && l.scanned > maxRounds*l.keys+roundSlack
	l.walked = l.cursor == 0 || l.endless
	if l.walked {
		return l.keys - before
	}
	return min(l.scanned, l.keys) - before
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
