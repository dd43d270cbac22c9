package formats

import (
	"embed"
	"strconv"
	"strings"

	"locktop/keyspace"
)

//go:embed *.lua
var scripts embed.FS

// script returns the scripts of some files, one after the other.
func script(files ...string) string {
	var all strings.Builder
	for _, file := range files {
		text, err := scripts.ReadFile(file + ".lua")
		if err != nil {
			panic(err) // a name in this package is wrong
		}
		all.Write(text)
	}
	return all.String()
}

// tokenActions change a lock that is a string with the token of its holder. Its waiters
// poll.
func tokenActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys:         lockKey,
		Args:         func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} },
		ForceRelease: script("token_release"),
		Extend:       script("token_extend"),
	}
}

// announcing adds the message that wakes waiters, behind its channel, to the arguments.
func announcing(a *keyspace.Actions, wakes string, message func(keyspace.Lock) []string) *keyspace.Actions {
	args := a.Args
	a.Args = func(l keyspace.Lock) []string { return append(args(l), message(l)...) }
	a.WakeHint = wakes
	return a
}

// valueActions change a lock that is a string whose deadline is in the token or
// unknown. The deadline cannot be changed from outside.
func valueActions() *keyspace.Actions {
	a := tokenActions()
	a.Extend = ""
	return a
}

// The commands that find a holder in a collection.
const (
	inZset = "ZSCORE"
	inSet  = "SISMEMBER"
	inHash = "HEXISTS"
)

// memberActions change a lock that is a collection of its holders.
func memberActions(in, extend string) *keyspace.Actions {
	h := &keyspace.Actions{
		Keys:         lockKey,
		Args:         func(l keyspace.Lock) []string { return seenHolders(in, l) },
		ForceRelease: script("members_check", "members_release"),
	}
	if extend != "" {
		h.Extend = script("members_check", extend)
	}
	return h
}

// seenHolders lists the holders of a lock in the form that members_check expects.
func seenHolders(in string, l keyspace.Lock, besides ...string) []string {
	ids := append(holderIDs(l), besides...)
	return append([]string{in, strconv.Itoa(len(ids))}, ids...)
}

// countActions change a lock that is a hash of holder → count. Its waiters subscribe
// to a channel, or poll if channel is nil.
func countActions(channel func(key string) (channel, message string), wakes string) *keyspace.Actions {
	return &keyspace.Actions{
		Keys: lockKey,
		Args: func(l keyspace.Lock) []string {
			where, what := "", ""
			if channel != nil {
				where, what = channel(l.Key)
			}
			return append([]string{where, what}, fieldsAndCounts(l)...)
		},
		ForceRelease: script("count_release"),
		Extend:       script("count_extend"),
		WakeHint:     wakes,
	}
}

// lockKey returns the only key of a lock.
func lockKey(l keyspace.Lock) []string { return []string{l.Key} }

// holderIDs lists the IDs of the holders of a lock.
func holderIDs(l keyspace.Lock) []string {
	var ids []string
	for _, h := range l.Holders {
		ids = append(ids, h.ID)
	}
	return ids
}

// fieldsAndCounts lists the holders of a lock with their counts.
func fieldsAndCounts(l keyspace.Lock) []string {
	var all []string
	for _, h := range l.Holders {
		all = append(all, h.ID, strconv.Itoa(h.Depth))
	}
	return all
}
