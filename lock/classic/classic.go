// Package classic holds the locks that people wrote on Redis before they knew
// better, each with its flaw. They are here to be run, broken and watched beside
// the sound kinds of package lock; do not protect anything with them.
//
//	form         who used it                          what breaks                             sound
//	-----------  -----------------------------------  --------------------------------------  ---------
//	SetnxExpire  helpers from before SET had NX and   a crash between the two commands        Mutex
//	             PX (Redis 2.6.12); sherlock          leaves a lock that never expires
//	Getset       the page of SETNX in Redis' manual;  clocks that differ let two in; losers   Mutex
//	             jedis-lock, redis-mutex              overwrite the winner's expiry; anyone
//	                                                  unlocks
//	BlindDelete  Lua helpers that store a 1; also     who is late to unlock deletes the next  Mutex
//	             celery-singleton, node-resque        owner's lock
//	GetThenDel   helpers without Lua; Spring          the same, if time runs out between      Mutex
//	             Integration before it used a script  the look and the DEL
//	Counted      wrappers that count entries in the   the lock lapses while the counter says  Reentrant
//	             process and renew N times            that it is held, and lets them in again
//	TwoKeyRW     wrappers of a mutex, twice           any reader frees all readers; no        RW
//	                                                  cluster runs it
//	StampRW      wrappers for clusters                readers overwrite each other's stamp,   RW
//	                                                  so the last to come frees all
//
// Three things are wrong with all of them: a holder is not told when its time
// has run out; what an unanswered request did is not taken back; and commands go
// out over the caller's client as they are, so a client that repeats commands
// on its own may see its own lock as somebody else's.
//
// How they break can be staged: [Hooks] kill or pause a client between two steps
// and give it a clock of its own.
package classic

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors that callers decide by, to be tested with [errors.Is].
var (
	// ErrHeld: the lock is not free.
	ErrHeld = errors.New("lock is held")
	// ErrLost: Unlock found that the lock was not the holder's any more. Few
	// forms notice.
	ErrLost = errors.New("lock was lost")
)

// Lock is one client's view of a lock. It is safe for concurrent use.
type Lock interface {
	// TryLock takes the lock if it is free, and returns [ErrHeld] if it is not.
	// After any other error the lock may be taken all the same.
	TryLock(ctx context.Context) (Hold, error)
}

// Hold is a lock that its holder believes to have.
type Hold interface {
	// Deadline returns when the lock is free unless it is unlocked before, on
	// the holder's clock, counted from before the request. The holder has to
	// look for itself: nothing happens when it passes.
	Deadline() time.Time
	// Unlock gives the lock back. It returns [ErrLost] if it notices that the
	// lock was lost; nil does not mean that it was not.
	Unlock(ctx context.Context) error
}

// Options say how a lock is held. The zero value works.
type Options struct {
	// TTL is the time to live, in whole milliseconds. Default, also for less than
	// one: 10 s.
	TTL time.Duration
	// Renewals is how often a [Counted] lock is renewed at most; no other form
	// renews. Default: 4; negative = never.
	Renewals int
	// Hooks stage what goes wrong.
	Hooks Hooks
}

// Hooks stage crashes, pauses and wrong clocks. Those that are nil do nothing.
type Hooks struct {
	// Between is called between two steps of an operation. The client is paused
	// until it returns; an error is the client's death: the operation sends
	// nothing more and returns the error.
	Between func(ctx context.Context, next Step) error
	// Now is the client's clock. Default: [time.Now].
	Now func() time.Time
}

// Step is a step of an operation, named after what is about to be done.
type Step string

// The steps before which a client can be stopped.
const (
	BeforeExpire Step = "EXPIRE" // SetnxExpire: the key is ours, and has no expiry yet
	BeforeGet    Step = "GET"    // Getset: the key is taken
	BeforeGetset Step = "GETSET" // Getset: the stamp that was read has passed
	BeforeDel    Step = "DEL"    // GetThenDel: the token that was read is ours
	BeforeRenew  Step = "renew"  // Counted: a renewal is due; who dies here is not renewed any more
)

// Form is one historic way to lock.
type Form struct {
	Name string
	// New returns a client's view of the lock of that name; of a lock that tells
	// readers from writers, it is the writer's. It sends nothing.
	New Constructor
	// NewReader returns a reader's view; nil if the form knows no readers.
	NewReader Constructor
}

// Constructor returns a new client's view of the lock called key.
type Constructor func(rdb redis.UniversalClient, key string, o Options) Lock

// Forms returns all forms, in the order of the table above.
func Forms() []Form {
	return []Form{
		{Name: "setnx-expire", New: view(NewSetnxExpire)},
		{Name: "getset", New: view(NewGetset)},
		{Name: "blind-delete", New: view(NewBlindDelete)},
		{Name: "get-then-del", New: view(NewGetThenDel)},
		{Name: "counted", New: view(NewCounted)},
		{
			Name:      "two-key-rw",
			New:       func(rdb redis.UniversalClient, key string, o Options) Lock { return NewTwoKeyRW(rdb, key, o).Writer() },
			NewReader: func(rdb redis.UniversalClient, key string, o Options) Lock { return NewTwoKeyRW(rdb, key, o).Reader() },
		},
		{
			Name:      "stamp-rw",
			New:       func(rdb redis.UniversalClient, key string, o Options) Lock { return NewStampRW(rdb, key, o).Writer() },
			NewReader: func(rdb redis.UniversalClient, key string, o Options) Lock { return NewStampRW(rdb, key, o).Reader() },
		},
	}
}

// view makes a constructor of one that returns its own type.
func view[L Lock](open func(redis.UniversalClient, string, Options) L) Constructor {
	return func(rdb redis.UniversalClient, key string, o Options) Lock { return open(rdb, key, o) }
}

// party is one client of one lock: what all forms have.
type party struct {
	rdb   redis.UniversalClient
	key   string
	ttl   time.Duration
	hooks Hooks
}

const defaultTTL = 10 * time.Second

func newParty(rdb redis.UniversalClient, key string, o Options) party {
	if o.Hooks.Now == nil {
		o.Hooks.Now = time.Now
	}
	if o.Hooks.Between == nil {
		o.Hooks.Between = func(context.Context, Step) error { return nil }
	}
	if o.TTL < time.Millisecond {
		o.TTL = defaultTTL
	}
	return party{rdb: rdb, key: key, ttl: o.TTL, hooks: o.Hooks}
}

// deadline returns when a lock that is asked for now is free by itself.
func (p *party) deadline() time.Time { return p.hooks.Now().Add(p.ttl) }

// between lets the client be stopped before a step.
func (p *party) between(ctx context.Context, next Step) error {
	if err := p.hooks.Between(ctx, next); err != nil {
		return fmt.Errorf("died before %s: %w", next, err)
	}
	return nil
}

// refused is what TryLock returns when it did not get the lock: err, or ErrHeld
// if there was no error.
func (p *party) refused(err error) error {
	if err == nil {
		err = ErrHeld
	}
	return fmt.Errorf("classic: lock %q: %w", p.key, err)
}

// setnx is the command SETNX; go-redis' method of that name sends SET.
func (p *party) setnx(ctx context.Context, value any) (bool, error) {
	cmd := redis.NewBoolCmd(ctx, "setnx", p.key, value)
	err := p.rdb.Process(ctx, cmd)
	return cmd.Val(), err
}

// del deletes a key of the lock, whoever's it is.
func (p *party) del(ctx context.Context, key string) error {
	return p.unlocked(p.rdb.Del(ctx, key).Result())
}

// unlocked is what Unlock returns when it has deleted so many keys.
func (p *party) unlocked(deleted int64, err error) error {
	if err == nil && deleted == 0 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("classic: unlock %q: %w", p.key, err)
	}
	return nil
}

// compareAndDelete is how to unlock: it deletes the key if it holds the token.
func (p *party) compareAndDelete(ctx context.Context, token string) error {
	return p.unlocked(compareDel.Run(ctx, p.rdb, []string{p.key}, token).Int64())
}

var (
	//go:embed compare_del.lua
	compareDelSource string

	compareDel = redis.NewScript(compareDelSource)
)

// grant is the Hold of the forms whose deadline stands.
type grant struct {
	deadline time.Time
	unlock   func(context.Context) error
}

func (g *grant) Deadline() time.Time              { return g.deadline }
func (g *grant) Unlock(ctx context.Context) error { return g.unlock(ctx) }

// tryFunc is a Lock that is one of several views of the same thing.
type tryFunc func(context.Context) (Hold, error)

func (f tryFunc) TryLock(ctx context.Context) (Hold, error) { return f(ctx) }

// newToken returns 128 random bits, as 32 hexadecimal digits.
func newToken() string {
	var bits [16]byte
	rand.Read(bits[:]) // never returns an error
	return hex.EncodeToString(bits[:])
}
