package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Scanner finds the locks of one database of one server, which may stand
// behind Sentinel. A cluster is not walked: give it a client of one node.
//
// It sends read-only commands: SCAN in small pages, and bounded reads of what
// might be a lock. Still, reading a key that has expired makes a master delete
// it. A Scanner may be used from several goroutines; each Scan then costs the
// server what one does.
type Scanner struct {
	rdb  redis.UniversalClient
	opts ScanOptions
	node string
}

// ScanOptions say what to look for.
type ScanOptions struct {
	Formats       []Format   // in order of preference; see package formats
	DB            int        // the number that the locks bear; the client chooses the database
	Match         []string   // globs as SCAN takes them; keys that match any are looked at. None: all keys
	MinConfidence Confidence // 0 = Likely
	Progress      func(Cost) // called after each page of a Scan; may be nil
}

// NewScanner returns a scanner that reads through rdb, which stays the
// caller's. Nothing is sent yet.
func NewScanner(rdb redis.UniversalClient, o ScanOptions) *Scanner {
	if o.MinConfidence == No {
		o.MinConfidence = Likely
	}
	if o.Progress == nil {
		o.Progress = func(Cost) {}
	}
	s := &Scanner{rdb: rdb, opts: o}
	if c, ok := rdb.(interface{ Options() *redis.Options }); ok {
		s.node = c.Options().Addr
	}
	return s
}

// Scan walks over the whole keyspace once and returns the locks in it. What is
// there from beginning to end is found; what comes or goes meanwhile may be.
// The snapshot is incomplete only if keys were added faster than they could be
// walked over, and the walk was given up.
//
// It returns an error if the server cannot be reached, does not answer, or
// refuses SCAN or TIME. Keys that may not be read are passed over.
func (s *Scanner) Scan(ctx context.Context) (Snapshot, error) {
	p, err := s.begin(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	seen := make(picture)
	for !p.done() {
		locks, err := p.step(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		seen.add(locks)
		s.opts.Progress(p.cost)
	}
	return Snapshot{At: p.now, Locks: seen.locks(), Complete: p.complete(), Cost: p.cost, Server: p.server}, nil
}

// reader returns a reader of what the scanner is looking for.
func (s *Scanner) reader() reader {
	return reader{
		link:    link{rdb: s.rdb},
		formats: s.opts.Formats,
		atLeast: s.opts.MinConfidence,
		node:    s.node,
		db:      s.opts.DB,
	}
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
	if !answered(cmds) {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, c := range cmds {
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) && !wrongType(err) && !refused(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// answered reports whether the commands of a pipeline that failed have got as far
// as having outcomes of their own. go-redis leaves them without when it is turned
// away at the door: a password that no longer counts, a user switched off.
func answered(cmds []redis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil })
}

// exec executes a pipeline and books what it cost.
func (l *link) exec(ctx context.Context, p redis.Pipeliner) ([]redis.Cmder, error) {
	begin := time.Now()
	cmds, err := p.Exec(ctx)
	l.cost.Took += time.Since(begin)
	l.cost.Commands += int64(len(cmds))
	return cmds, err
}

// wrongType reports whether a key turned out to have another type.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// refused reports whether a server does not know a command, or does not let
// this user send it.
func refused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command"))
}
