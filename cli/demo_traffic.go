package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// stepInterval is the time between two moves of the cast.
const stepInterval = 250 * time.Millisecond

// Of so many moves one does it, on average.
const (
	enterOneIn = 6  // takes a lock that is free
	leaveOneIn = 80 // releases one it holds
	renewals   = 3  // the most an actor makes before it lets the lease run out
)

// demoTraffic keeps the locks of the formats' samples moving: owners take them, renew
// them for a while, release them or let them expire, and others follow.
type demoTraffic struct {
	rdb    redis.UniversalClient
	actors []*fakeOwner
}

// fakeOwner plays one sample, with a new owner at each entrance.
type fakeOwner struct {
	sample   keyspace.Sample
	keys     []string // of the sample, the lock's own first
	renewals int      // left to make
}

// shownFormats reports whether the samples of a format are played: enough of them to
// show what kinds there are, few enough to be looked through.
func shownFormats(format string) bool {
	switch format {
	case "locktop", "locktop-reentrant", "locktop-rw", "redisson", "redisson-rw", "redsync", "redislock", "redis-py",
		"node-redlock", "go-zero", "redis-semaphore", "shedlock", "medallion", "symfony", "jedis-lock", "hash-reentrant", "set-nx":
		return true
	}
	return false
}

// newDemoTraffic lets all actors enter.
func newDemoTraffic(ctx context.Context, rdb redis.UniversalClient) (*demoTraffic, error) {
	c := &demoTraffic{rdb: rdb}
	for _, f := range formats.All() {
		if !shownFormats(f.Name) {
			continue
		}
		for _, s := range f.Samples {
			a := &fakeOwner{sample: s}
			if err := a.enter(ctx, rdb); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", f.Name, s.Name, err)
			}
			c.actors = append(c.actors, a)
		}
	}
	return c, nil
}

// play goes on until ctx ends. A move that the server refuses is left out.
func (c *demoTraffic) play(ctx context.Context) {
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, a := range c.actors {
			_ = a.move(ctx, c.rdb)
		}
	}
}

// move makes at most one move: what it does next is left to chance, within what
// an owner could do.
func (a *fakeOwner) move(ctx context.Context, rdb redis.UniversalClient) error {
	held, left, err := a.look(ctx, rdb)
	switch {
	case err != nil:
		return err
	case !held:
		if rand.IntN(enterOneIn) == 0 {
			return a.enter(ctx, rdb)
		}
	case a.sample.TTL == 0: // stays for ever
	case rand.IntN(leaveOneIn) == 0:
		return rdb.Del(ctx, a.keys...).Err()
	case left < a.sample.TTL/2 && a.renewals > 0:
		a.renewals--
		return a.renew(ctx, rdb)
	}
	return nil
}

// look reports whether the lock is held, and for how much longer.
func (a *fakeOwner) look(ctx context.Context, rdb redis.UniversalClient) (held bool, left time.Duration, err error) {
	left, err = rdb.PTTL(ctx, a.keys[0]).Result()
	return left != noKey, left, err
}

// What PTTL answers instead of a time.
const (
	noKey = time.Duration(-2)
	noTTL = time.Duration(-1)
)

// enter leaves the sample's keys behind as somebody who was not there before.
func (a *fakeOwner) enter(ctx context.Context, rdb redis.UniversalClient) error {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	s := formats.At(a.sample, now)
	rename := newcomers(a.sample.Want.Holders, s.Want.Holders)
	tx := rdb.TxPipeline() // nobody sees a lock between its SET and its PEXPIRE
	if len(a.keys) > 0 {
		tx.Del(ctx, a.keys...)
	}
	a.keys, a.renewals = []string{s.Want.Key}, rand.IntN(renewals+1)
	for _, argv := range s.Commands {
		args := make([]any, len(argv))
		for i, arg := range argv {
			args[i] = rename.Replace(arg)
		}
		tx.Do(ctx, args...)
		if key := rename.Replace(argv[1]); !slices.Contains(a.keys, key) {
			a.keys = append(a.keys, key)
		}
	}
	_, err = tx.Exec(ctx)
	return err
}

// renew gives every key that has a deadline the whole lease again.
func (a *fakeOwner) renew(ctx context.Context, rdb redis.UniversalClient) error {
	for _, key := range a.keys {
		left, err := rdb.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		if left == noKey || left == noTTL {
			continue
		}
		if err := rdb.PExpire(ctx, key, a.sample.TTL).Err(); err != nil {
			return err
		}
	}
	return nil
}

// anonymous is the length up to which an ID is a mark that everybody uses.
const anonymous = 4

// newcomers turns the holders of a sample into others of the same shape. An ID
// with a placeholder is new each time anyway, so that only its label has to
// change; one that continues another ID changes with it.
func newcomers(sample, filled []keyspace.Holder) *strings.Replacer {
	var pairs []string
	for i, h := range filled {
		continues := slices.ContainsFunc(filled, func(o keyspace.Holder) bool {
			return o.ID != h.ID && strings.HasPrefix(h.ID, o.ID)
		})
		switch {
		case continues || len(h.ID) <= anonymous:
		case !strings.Contains(sample[i].ID, "{"):
			pairs = append(pairs, h.ID, another(h.ID))
		case h.Label != "":
			pairs = append(pairs, h.Label, another(h.Label))
		}
	}
	return strings.NewReplacer(pairs...)
}

// idTail is the part of an ID that may be changed freely: the version of a UUID
// stands before it.
const idTail = 12

// another is an ID with every digit in its tail changed.
func another(id string) string {
	tail := max(0, len(id)-idTail)
	return id[:tail] + strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return r
		}
		return '0' + (r-'0'+1+rune(rand.IntN(9)))%10
	}, id[tail:])
}
