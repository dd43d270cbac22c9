package formats

import (
	_ "embed" // the scripts
	"strconv"

	"locktop/keyspace"
)

//go:embed go_redislock_break.lua
var goRedislockBreak string

//go:embed go_redislock_extend.lua
var goRedislockExtend string

//go:embed go_redislock_fair_break.lua
var goRedislockFairBreak string

//go:embed go_redislock_rw_look.lua
var goRedislockRWLook string

//go:embed go_redislock_rw_break.lua
var goRedislockRWBreak string

// goRedislockActions change the reentrant mutex and its count.
func goRedislockActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return []string{l.Key, goRedislockCount(l.Key, l.Holders[0].ID)}
		},
		Args:         fieldsAndCounts,
		ForceRelease: goRedislockBreak,
		Extend:       goRedislockExtend,
	}
}

// goRedislockFairActions also remove the holder of a fair lock from its queue.
func goRedislockFairActions(queue func(key string) string) *keyspace.Actions {
	a := tokenActions()
	a.Keys = func(l keyspace.Lock) []string { return []string{l.Key, queue(l.Key)} }
	a.ForceRelease = goRedislockFairBreak
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
		ForceRelease: goRedislockRWLook + goRedislockRWBreak,
		Extend:       goRedislockRWLook + holdExtend,
	}
}
