// Package classic implements historic Redis locks, each with its flaw. Run them, break
// them and compare them with the sound kinds of package lock. Do not protect anything
// with them.
//
//	form         used by                              flaw                                    sound
//	-----------  -----------------------------------  --------------------------------------  ---------
//	SetnxExpire  helpers from before SET had NX and   a crash between the two commands        Mutex
//	             PX (Redis 2.6.12); sherlock          leaves a lock that never expires
//	ExistsSet    helpers that check and then set      two that ask at the same time both      Mutex
//	                                                  set the key
//	Getset       jedis-lock, redis-mutex              clocks that differ let two in; losers   Mutex
//	                                                  overwrite the winner's expiry; every
//	                                                  client can unlock
//	BlindDelete  Lua helpers that store a 1; also     a late unlock deletes the lock of the   Mutex
//	             celery-singleton, node-resque        next owner
//	GetThenDel   helpers without Lua; Spring          the same, if the lock expires between   Mutex
//	             Integration before it used a script  the GET and the DEL
//	Counted      wrappers that count entries in the   no renewal comes in time; the counter   Reentrant
//	             process and renew N times            lets the owner in again after the end
//	TwoKeyRW     wrappers of a mutex, twice           any reader frees all readers; does not  RW
//	                                                  work on a cluster
//	StampRW      wrappers for clusters                readers overwrite each other's stamp,   RW
//	                                                  so the last one to come frees all
//	Quorum-      redis-semaphore of npm               majorities of servers with several      Semaphore
//	Semaphore                                         permits let more clients in than there
//	                                                  are permits
//
// All but the last do what a series of five articles on locks with Redis does, command by
// command; the comments on the types count these articles. The key TTLs are in
// milliseconds here, where the articles use seconds. [Poll] is their way to wait.
//
// All of them share three flaws. A holder is not informed when its lock has expired. A
// request without a reply is not undone. Commands use the caller's client unchanged,
// so with a client that retries, a process may take its own lock for another client's.
//
// [Hooks] reproduce the flaws: they kill or pause a client between two steps, and give
// it its own clock.
package classic

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors on which callers decide. Test for them with [errors.Is].
var (
	// ErrHeld: the lock is not free.
	ErrHeld = errors.New("lock is held")
	// ErrLost: Unlock found that the holder no longer had the lock. Few forms detect
	// this.
	ErrLost = errors.New("lock was lost")
)

// Client is what the forms use of a client of go-redis.
type Client interface {
	redis.Cmdable
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Lock is one client's view of a lock. It is safe for concurrent use.
type Lock interface {
	// TryLock acquires the lock if it is free, and returns [ErrHeld] if it is not.
	// After any other error the lock may be acquired or not.
	TryLock(ctx context.Context) (Hold, error)
}

// Hold is a lock that its holder believes to have.
type Hold interface {
	// Deadline returns when the lock expires unless it is unlocked before, on the
	// holder's clock, measured from before the request. The holder must check it:
	// nothing happens when it passes.
	Deadline() time.Time
	// Unlock releases the lock. It returns [ErrLost] if it finds that the lock was
	// lost. A nil error does not mean that the lock was not lost.
	Unlock(ctx context.Context) error
}

// Options configures a lock. The zero value works.
type Options struct {
	// TTL is the time to live, in whole milliseconds. Default, also for less than 1
	// ms: 10 s.
	TTL time.Duration
	// Renewals is the number of renewals of a [Counted] lock; no other form renews.
	// Default: none. In the article it is 4 once the renewal is on.
	Renewals int
	// Tolerant makes a [Getset] lock that of the second article.
	Tolerant bool
	// Permits is how many clients may hold a [QuorumSemaphore] at the same time; no other form
	// has permits. Default: 1.
	Permits int
	// Hooks cause faults.
	Hooks Hooks
}

// Hooks cause crashes, pauses and wrong clocks. Nil hooks do nothing.
type Hooks struct {
	// Between is called between two steps of an operation. The client is paused until
	// it returns. An error kills the client: the operation sends nothing more and
	// returns the error.
	Between func(ctx context.Context, next Step) error
	// Now is the client's clock. Default: [time.Now].
	Now func() time.Time
}

// Step is a step of an operation, named after the command that comes next.
type Step string

// The steps before which a client can be stopped.
const (
	BeforeExpire Step = "EXPIRE" // SetnxExpire: the key is set, without an expiry
	BeforeSet    Step = "SET"    // ExistsSet: the key did not exist
	BeforeGet    Step = "GET"    // Getset: the key is held
	BeforeGetset Step = "GETSET" // Getset: the stamp that was read has passed
	BeforeDel    Step = "DEL"    // GetThenDel: the key has the client's token
	BeforeRenew  Step = "renew"  // Counted: a renewal is due; an error ends all renewals
)

// Form is one historic kind of lock.
type Form struct {
	Name string
	// New returns a client's view of a lock; for a read/write lock, the writer's. It
	// sends nothing.
	New Constructor
	// NewReader returns a reader's view; nil if the form has no readers.
	NewReader Constructor
	// NewQuorum returns a client's view of a lock on several servers. New is the same
	// for one server. Nil if the form has only one server.
	NewQuorum func(nodes []Client, key string, o Options) Lock
	Steps     []Step // before which Hooks.Between is called
}

// Constructor returns a new client's view of the lock named key.
type Constructor func(rdb Client, key string, o Options) Lock

// Forms returns all forms, in the order of the table above.
func Forms() []Form {
	return []Form{
		{Name: "setnx-expire", New: view(NewSetnxExpire), Steps: []Step{BeforeExpire}},
		{Name: "exists-set", New: view(NewExistsSet), Steps: []Step{BeforeSet}},
		{Name: "getset", New: view(NewGetset), Steps: []Step{BeforeGet, BeforeGetset}},
		{Name: "blind-delete", New: view(NewBlindDelete)},
		{Name: "get-then-del", New: view(NewGetThenDel), Steps: []Step{BeforeDel}},
		{Name: "counted", New: view(NewCounted), Steps: []Step{BeforeRenew}},
		{
			Name:      "two-key-rw",
			New:       func(rdb Client, key string, o Options) Lock { return NewTwoKeyRW(rdb, key, o).Writer() },
			NewReader: func(rdb Client, key string, o Options) Lock { return NewTwoKeyRW(rdb, key, o).Reader() },
		},
		{
			Name:      "stamp-rw",
			New:       func(rdb Client, key string, o Options) Lock { return NewStampRW(rdb, key, o).Writer() },
			NewReader: func(rdb Client, key string, o Options) Lock { return NewStampRW(rdb, key, o).Reader() },
		},
		{
			Name: "quorum-semaphore",
			New: func(rdb Client, key string, o Options) Lock {
				return NewQuorumSemaphore([]Client{rdb}, key, o)
			},
			NewQuorum: func(nodes []Client, key string, o Options) Lock {
				return NewQuorumSemaphore(nodes, key, o)
			},
		},
	}
}

// view converts a constructor of a concrete type.
func view[L Lock](open func(Client, string, Options) L) Constructor {
	return func(rdb Client, key string, o Options) Lock { return open(rdb, key, o) }
}

// party is one client of one lock. All forms embed it.
type party struct {
	rdb   Client
	key   string
	ttl   time.Duration
	hooks Hooks
}

const defaultTTL = 10 * time.Second

func newParty(rdb Client, key string, o Options) party {
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

// deadline returns when a lock that is acquired now expires.
func (p *party) deadline() time.Time { return p.hooks.Now().Add(p.ttl) }

// between calls the hook before a step.
func (p *party) between(ctx context.Context, next Step) error {
	if err := p.hooks.Between(ctx, next); err != nil {
		return fmt.Errorf("died before %s: %w", next, err)
	}
	return nil
}

// refused returns the error of a TryLock that did not acquire the lock: err, or
// ErrHeld if err is nil.
func (p *party) refused(err error) error {
	if err == nil {
		err = ErrHeld
	}
	return fmt.Errorf("classic: lock %q: %w", p.key, err)
}

// setnx sends SETNX. The SetNX method of go-redis sends SET.
func (p *party) setnx(ctx context.Context, value any) (bool, error) {
	cmd := redis.NewBoolCmd(ctx, "setnx", p.key, value)
	err := p.rdb.Process(ctx, cmd)
	return cmd.Val(), err
}

// del deletes a key of the lock, also if another client holds it.
func (p *party) del(ctx context.Context, key string) error {
	return p.unlocked(p.rdb.Del(ctx, key).Result())
}

// blindHold returns a hold until the deadline. DEL unlocks it.
func (p *party) blindHold(deadline time.Time) Hold {
	return &grant{deadline, func(ctx context.Context) error { return p.del(ctx, p.key) }}
}

// unlocked returns the result of Unlock after a command that deleted that many keys.
func (p *party) unlocked(deleted int64, err error) error {
	if err == nil && deleted == 0 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("classic: unlock %q: %w", p.key, err)
	}
	return nil
}

//go:embed *.lua
var luaFiles embed.FS

// script returns the script of a Lua file, named without ".lua".
func script(file string) *redis.Script {
	text, err := luaFiles.ReadFile(file + ".lua")
	if err != nil {
		panic(err) // before main: the file is not there
	}
	return redis.NewScript(string(text))
}

// Poll acquires a lock as the second article does: it asks, and after each pause again.
// It counts an attempt before it makes it, so it asks maxTries − 1 times and, with 1, not
// once: TestPollAsksOnceLessThanItSays. It ends with ctx.
func Poll(ctx context.Context, l Lock, pause time.Duration, maxTries int) (Hold, error) {
	for range maxTries - 1 {
		hold, err := l.TryLock(ctx)
		if !errors.Is(err, ErrHeld) {
			return hold, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, ErrHeld
}

// grant is a Hold with a fixed deadline.
type grant struct {
	deadline time.Time
	unlock   func(context.Context) error
}

func (g *grant) Deadline() time.Time              { return g.deadline }
func (g *grant) Unlock(ctx context.Context) error { return g.unlock(ctx) }

// tryFunc is a Lock that is one side of a read/write lock.
type tryFunc func(context.Context) (Hold, error)

func (f tryFunc) TryLock(ctx context.Context) (Hold, error) { return f(ctx) }

// newToken returns 128 random bits, as 32 hexadecimal digits.
func newToken() string {
	var bits [16]byte
	rand.Read(bits[:]) // never returns an error
	return hex.EncodeToString(bits[:])
}
