package formats

import (
	_ "embed" // the scripts
	"strconv"

	"locktop/keyspace"
)

//go:embed go_redislock_release.lua
var goRedislockRelease string

//go:embed go_redislock_extend.lua
var goRedislockExtend string

//go:embed go_redislock_fair_release.lua
var goRedislockFairRelease string

//go:embed go_redislock_rw_check.lua
var goRedislockRWCheck string

//go:embed go_redislock_rw_release.lua
var goRedislockRWRelease string

// goRedislockActions change the reentrant mutex and its count.
func goRedislockActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return []string{l.Key, goRedislockCount(l.Key, l.Holders[0].ID)}
		},
		Args:         fieldsAndCounts,
		ForceRelease: goRedislockRelease,
		Extend:       goRedislockExtend,
	}
}

// goRedislockFairActions also remove the holder of a fair lock from its queue.
func goRedislockFairActions(queue func(key string) string) *keyspace.Actions {
	a := tokenActions()
	a.Keys = func(l keyspace.Lock) []string { return []string{l.Key, queue(l.Key)} }
	a.ForceRelease = goRedislockFairRelease
	return a
}

func goRedislockRWActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: lockKey,
		Args: func(l keyspace.Lock) []string {
			seen := []string{strconv.Itoa(len(l.Holders))}
			for _, h := range l.Holders {
				seen = append(seen, string(h.Mode), h.ID, strconv.Itoa(h.Count))
			}
			return seen
		},
		ForceRelease: goRedislockRWCheck + goRedislockRWRelease,
		Extend:       goRedislockRWCheck + holdExtend,
	}
}
