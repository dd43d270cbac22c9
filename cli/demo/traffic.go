package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"locktop/internal/server"
	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// stepInterval is the time between two moves of all fake owners.
const stepInterval = 250 * time.Millisecond

// How often a fake owner acts: on average in one of this many moves.
const (
	acquireOneIn = 6  // acquires a free lock
	releaseOneIn = 80 // releases a held lock
	renewals     = 3  // most renewals before the lease expires
)

// traffic changes the locks of the formats' samples: fake owners acquire them,
// renew them for a while, and release them or let them expire.
type traffic struct {
	rdb    server.Client
	owners []*fakeOwner
}

// fakeOwner writes one sample to the server, with a new owner for each hold.
type fakeOwner struct {
	sample   keyspace.Sample
	keys     []string // keys of the sample, the lock's key first
	renewals int      // renewals left for this hold
}

// isShown reports whether the demo shows the samples of a format. The list has
// every kind of lock and stays short enough to read.
func isShown(format string) bool {
	switch format {
	case "locktop", "locktop-reentrant", "locktop-rw", "redisson", "redisson-rw", "redsync", "redislock", "redis-py",
		"node-redlock", "go-zero", "redis-semaphore", "shedlock", "medallion", "symfony", "jedis-lock", "hash-reentrant", "set-nx":
		return true
	}
	return false
}

// newTraffic writes all samples to the server.
func newTraffic(ctx context.Context, rdb server.Client) (*traffic, error) {
	c := &traffic{rdb: rdb}
	for _, f := range formats.All() {
		if !isShown(f.Name) {
			continue
		}
		for _, s := range formats.Samples(f.Name) {
			a := &fakeOwner{sample: s}
			if err := a.acquire(ctx, rdb); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", f.Name, s.Name, err)
			}
			c.owners = append(c.owners, a)
		}
	}
	return c, nil
}

// run moves all fake owners until ctx ends. It ignores errors.
func (c *traffic) run(ctx context.Context) {
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, a := range c.owners {
			_ = a.step(ctx, c.rdb)
		}
	}
}

// step does at most one thing: acquire, renew or release. Chance decides, within
// the rules of a real owner.
func (a *fakeOwner) step(ctx context.Context, rdb server.Client) error {
	left, err := rdb.PTTL(ctx, a.keys[0]).Result()
	switch {
	case err != nil:
		return err
	case left == noKey:
		if rand.IntN(acquireOneIn) == 0 {
			return a.acquire(ctx, rdb)
		}
	case a.sample.TTL == 0: // held for ever
	case rand.IntN(releaseOneIn) == 0:
		return rdb.Del(ctx, a.keys...).Err()
	case left < a.sample.TTL/2 && a.renewals > 0:
		a.renewals--
		return a.renew(ctx, rdb)
	}
	return nil
}

// noKey is the reply of PTTL for a key that does not exist.
const noKey = time.Duration(-2)

// acquire acquires the lock of the sample for a new owner.
func (a *fakeOwner) acquire(ctx context.Context, rdb server.Client) error {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	s := formats.At(a.sample, now)
	rename := newHolders(a.sample.Want.Holders, s.Want.Holders)
	tx := rdb.TxPipeline() // a scan never sees a lock between its SET and its PEXPIRE
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

// renew sets the full TTL on every key that has one.
func (a *fakeOwner) renew(ctx context.Context, rdb server.Client) error {
	for _, key := range a.keys {
		left, err := rdb.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		if left < 0 { // it has no TTL, or is gone
			continue
		}
		if err := rdb.PExpire(ctx, key, a.sample.TTL).Err(); err != nil {
			return err
		}
	}
	return nil
}

// shortID is the greatest length of an ID that does not identify its holder.
const shortID = 4

// newHolders returns a replacer that turns the holders of a sample into others of
// the same shape. An ID with a placeholder differs on each call, so only its label
// changes. An ID that begins with another holder's ID changes with that ID.
func newHolders(sample, filled []keyspace.Holder) *strings.Replacer {
	var pairs []string
	for i, h := range filled {
		continues := slices.ContainsFunc(filled, func(o keyspace.Holder) bool {
			return o.ID != h.ID && strings.HasPrefix(h.ID, o.ID)
		})
		switch {
		case continues || len(h.ID) <= shortID:
		case !strings.Contains(sample[i].ID, "{"):
			pairs = append(pairs, h.ID, otherDigits(h.ID))
		case h.Label != "":
			pairs = append(pairs, h.Label, otherDigits(h.Label))
		}
	}
	return strings.NewReplacer(pairs...)
}

// idTail is the length of the part of an ID that may change. The version of a UUID
// is in the part before it.
const idTail = 12

// otherDigits returns id with every digit in its tail changed.
func otherDigits(id string) string {
	tail := max(0, len(id)-idTail)
	return id[:tail] + strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return r
		}
		return '0' + (r-'0'+1+rune(rand.IntN(9)))%10
	}, id[tail:])
}
