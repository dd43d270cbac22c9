package formats

import (
	_ "embed" // the scripts
	"strconv"
	"time"

	"locktop/keyspace"
)

//go:embed token_break.lua
var tokenBreak string

//go:embed token_extend.lua
var tokenExtend string

//go:embed list_break.lua
var listBreak string

//go:embed members_look.lua
var membersLook string

//go:embed members_break.lua
var membersBreak string

//go:embed hold_extend.lua
var holdExtend string

//go:embed scores_extend.lua
var scoresExtend string

//go:embed count_break.lua
var countBreak string

//go:embed count_extend.lua
var countExtend string

// tokenHands acts on locks that are a string with the token of the one who
// holds it, and whose waiters ask again and again.
func tokenHands() *keyspace.Actions {
	return &keyspace.Actions{
		Keys:         lockKey,
		Args:         func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} },
		ForceRelease: tokenBreak,
		Extend:       tokenExtend,
	}
}

// valueHands acts on such locks whose token says when they end, or of which
// nobody knows: there is no deadline that somebody else could move.
func valueHands() *keyspace.Actions {
	h := tokenHands()
	h.Extend = ""
	return h
}

// listHands acts on such locks whose waiters block on a list beside them. Of what
// is put there it is taken away again after a while, if stays is not 0.
func listHands(beside func(key string) string, stays time.Duration, wakes string) *keyspace.Actions {
	h := tokenHands()
	h.Keys = func(l keyspace.Lock) []string { return []string{l.Key, beside(l.Key)} }
	h.Args = func(l keyspace.Lock) []string {
		return []string{l.Holders[0].ID, strconv.FormatInt(stays.Milliseconds(), 10)}
	}
	h.ForceRelease, h.WakeHint = listBreak, wakes
	return h
}

// The commands that find a holder in a collection.
const (
	inZset = "ZSCORE"
	inSet  = "SISMEMBER"
	inHash = "HEXISTS"
)

// memberHands acts on locks that are a collection of those who hold them.
func memberHands(in, extend string) *keyspace.Actions {
	h := &keyspace.Actions{
		Keys:         lockKey,
		Args:         func(l keyspace.Lock) []string { return found(in, l) },
		ForceRelease: membersLook + membersBreak,
	}
	if extend != "" {
		h.Extend = membersLook + extend
	}
	return h
}

// found lists those who hold a lock, as members_look takes them.
func found(in string, l keyspace.Lock, besides ...string) []string {
	var ids []string
	for _, h := range l.Holders {
		ids = append(ids, h.ID)
	}
	ids = append(ids, besides...)
	return append([]string{in, strconv.Itoa(len(ids))}, ids...)
}

// countHands acts on locks that are a hash of holder → count. Their waiters
// listen on a channel for a message, or ask again and again if it is nil.
func countHands(channel func(key string) (channel, message string), wakes string) *keyspace.Actions {
	return &keyspace.Actions{
		Keys: lockKey,
		Args: func(l keyspace.Lock) []string {
			where, what := "", ""
			if channel != nil {
				where, what = channel(l.Key)
			}
			return append([]string{where, what}, fieldsAndCounts(l)...)
		},
		ForceRelease: countBreak,
		Extend:       countExtend,
		WakeHint:     wakes,
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
