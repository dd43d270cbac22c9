package formats

import (
	_ "embed" // the scripts
	"strconv"

	"locktop/keyspace"
)

//go:embed token_break.lua
var tokenBreak string

//go:embed token_extend.lua
var tokenExtend string

//go:embed count_break.lua
var countBreak string

//go:embed count_extend.lua
var countExtend string

// tokenHands acts on locks that are a string with the token of the one who
// holds it, and whose waiters ask again and again.
func tokenHands() *keyspace.Hands {
	return &keyspace.Hands{
		Keys:   lockKey,
		Seen:   func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} },
		Break:  tokenBreak,
		Extend: tokenExtend,
	}
}

// countHands acts on locks that are a hash of holder → count. Their waiters
// listen on a channel for a message, or ask again and again if it is nil.
func countHands(channel func(key string) (channel, message string), wakes string) *keyspace.Hands {
	return &keyspace.Hands{
		Keys: lockKey,
		Seen: func(l keyspace.Lock) []string {
			where, what := "", ""
			if channel != nil {
				where, what = channel(l.Key)
			}
			return append([]string{where, what}, fieldsAndCounts(l)...)
		},
		Break:  countBreak,
		Extend: countExtend,
		Wakes:  wakes,
	}
}

// lockKey is the one key of a lock that has no other.
func lockKey(l keyspace.Lock) []string { return []string{l.Key} }

// fieldsAndCounts lists who holds a lock, and how often.
func fieldsAndCounts(l keyspace.Lock) []string {
	var all []string
	for _, h := range l.Holders {
		all = append(all, h.ID, strconv.Itoa(h.Count))
	}
	return all
}
