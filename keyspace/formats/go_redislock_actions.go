package formats

import (
	"strconv"

	"locktop/keyspace"
)

// goRedislockActions change the reentrant mutex and its count.
func goRedislockActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return []string{l.Key, goRedislockCount(l.Key, l.Holders[0].ID)}
		},
		Args:         fieldsAndCounts,
		ForceRelease: script("go_redislock_release"),
		Extend:       script("go_redislock_extend"),
	}
}

// goRedislockFairActions also remove the holder of a fair lock from its queue.
func goRedislockFairActions(queue func(key string) string) *keyspace.Actions {
	a := tokenActions()
	a.Keys = func(l keyspace.Lock) []string { return []string{l.Key, queue(l.Key)} }
	a.ForceRelease = script("go_redislock_fair_release")
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
		ForceRelease: script("go_redislock_rw_check", "go_redislock_rw_release"),
		Extend:       script("go_redislock_rw_check", "hold_extend"),
	}
}
