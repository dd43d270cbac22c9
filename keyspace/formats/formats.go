// Package formats describes how lock libraries store their locks in Redis, with samples.
// Formats of one string stand in the tables of byName and byToken, the others in files by
// library or by language.
// CONTRIBUTING.md has the steps to add a library.
package formats

import (
	"embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"locktop/keyspace"
)

// All returns every format, the most specific first: with equal confidence, the first
// format wins. The caller may change the list, but not what a format points to.
func All() []keyspace.Format { return slices.Clone(all()) }

var all = sync.OnceValue(func() []keyspace.Format {
	all := slices.Concat(byStructure(), byName(), applications(), collections(), byToken(), handMade())
	for i, f := range all {
		all[i] = inNamespaces(f)
	}
	return all
})

// byStructure lists the formats with a structure that no other library writes.
func byStructure() []keyspace.Format {
	return []keyspace.Format{
		locktop(),
		locktopReentrant(),
		locktopRW(),
		locktopSemaphore(),
		redissonRW(),
		redisson(),
		redissonMulti(),
		redissonReserved(),
		redissonPermits(),
		goRedislock(),
		goRedislockRW(),
		medallionWriterLock(),
		medallionReadersLock(),
		medallionSemaphore(),
		// .NET's DistributedLock.Redis. Its tokens identify the holder: machine, process, and a UUID.
		stringLock{token: medallionToken, sure: needsTTL(keyspace.Likely)}.format(keyspace.Format{
			About: about("medallion", "DistributedLock (.NET)", "github.com/madelson/DistributedLock@2.8.1: src/DistributedLock.Redis/Primitives/RedisMutexPrimitive.cs",
				"the value is machine_process_UUID"),
			Match: func(key string) bool { return !strings.HasSuffix(key, medallionWriter) },
		}),
		symfony(),
		magento(),
		shedlock(),
		// The lock backend of Drupal's Redis module: the ID of the request, which contains the time
		// and is the same in all locks of the request.
		stringLock{token: drupalRequest, sure: needsTTL(keyspace.Certain)}.where(func(key string) bool { return strings.Contains(key, ":lock:") },
			about("drupal", "Drupal's Redis module", "github.com/md-systems/redis@a91925965e: src/Lock/PhpRedis.php",
				"the name contains :lock:, and the value is the ID of a Drupal request, which contains the time")),
		suo(),
		// node's warlock: base64 of a UUID v1, which contains its time.
		stringLock{token: warlockToken, sure: needsTTL(keyspace.Certain)}.where(ends(":lock"),
			about("warlock", "warlock", "github.com/TheDeveloper/warlock@a5ee7bd7ab: lib/warlock.js", "the name ends in :lock, and the value is base64 of a UUID that contains the time")),
	}
}

// about says what a format is.
func about(name, library, source, signature string) keyspace.About {
	return keyspace.About{Name: name, Library: library, Source: source, Signature: signature}
}

// probeIf returns a Probe that is sure of the values that is matches, and of no other.
func probeIf(sure keyspace.Confidence, is func(first string) bool) func(key, first string) keyspace.Confidence {
	return func(_, first string) keyspace.Confidence {
		if is(first) {
			return sure
		}
		return keyspace.No
	}
}

// ifHeld returns the results of a Decode that needs a holder: without one, the entry is
// not a lock of the format.
func ifHeld(l keyspace.Lock, sure keyspace.Confidence) (keyspace.Lock, keyspace.Confidence) {
	if len(l.Holders) == 0 {
		return keyspace.Lock{}, keyspace.No
	}
	return l, sure
}

// decodeMembers returns a Decode of a collection of holders. An element that is not a holder
// makes it no lock; a holder whose deadline has passed may remain.
func decodeMembers(kind keyspace.Kind, sure keyspace.Confidence, holder func(m keyspace.Member, now time.Time) (keyspace.Holder, bool)) func(keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	return func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l := keyspace.Lock{Kind: kind}
		for _, m := range e.Members {
			h, ok := holder(m, e.Now)
			if !ok {
				return keyspace.Lock{}, keyspace.No
			}
			if h.Expires.IsZero() || h.Expires.After(e.Now) {
				l.Holders = append(l.Holders, h)
			}
		}
		return ifHeld(l, sure)
	}
}

// fenceIn returns the last fencing token, which a key beside a lock counts; 0 if there is none.
func fenceIn(e keyspace.Entry, key string) int64 {
	fence, _ := strconv.ParseInt(e.Related[key].Value, 10, 64)
	return fence
}

// beside returns a Related of one key beside a lock.
func beside(typ string, name func(key string) string) func(keyspace.Entry) []keyspace.Companion {
	return besideAll(typ, func(key string) []string { return []string{name(key)} })
}

// besideAll returns a Related of several keys of one type.
func besideAll(typ string, names func(key string) []string) func(keyspace.Entry) []keyspace.Companion {
	return func(e keyspace.Entry) (all []keyspace.Companion) {
		for _, key := range names(e.Key) {
			all = append(all, keyspace.Companion{Key: key, Type: typ})
		}
		return all
	}
}

// inNamespaces returns a format that also finds the locks in the namespace of an application,
// which redis-namespace, keyPrefix and the like put before all names. The other keys of such a
// lock are in the same namespace, and the functions of f see their names without it.
func inNamespaces(f keyspace.Format) keyspace.Format {
	plain := f
	if f.Prefixes == nil {
		return f
	}
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		namespace, name := plain.CutNamespace(e.Key)
		if namespace == "" {
			return plain.Decode(e)
		}
		related := e.Related
		e.Key, e.Related = name, make(map[string]keyspace.Entry, len(related))
		for key, beside := range related {
			e.Related[strings.TrimPrefix(key, namespace)] = beside
		}
		l, sure := plain.Decode(e)
		l.Evidence = append([]string{"it is in the namespace " + strconv.Quote(namespace)}, l.Evidence...)
		return l, sure
	}
	if f.Probe != nil {
		f.Probe = func(key, first string) keyspace.Confidence {
			_, name := plain.CutNamespace(key)
			return plain.Probe(name, first)
		}
	}
	if f.Related != nil {
		f.Related = func(e keyspace.Entry) (all []keyspace.Companion) {
			namespace, name := plain.CutNamespace(e.Key)
			e.Key = name
			for _, beside := range plain.Related(e) {
				all = append(all, keyspace.Companion{Key: namespace + beside.Key, Type: beside.Type})
			}
			return all
		}
	}
	if f.Actions != nil {
		actions := *plain.Actions
		actions.Keys = func(l keyspace.Lock) (all []string) {
			namespace, name := plain.CutNamespace(l.Key)
			l.Key = name
			for _, key := range plain.Actions.Keys(l) {
				all = append(all, namespace+key)
			}
			return all
		}
		actions.Args = func(l keyspace.Lock) []string {
			_, l.Key = plain.CutNamespace(l.Key)
			return plain.Actions.Args(l)
		}
		f.Actions = &actions
	}
	return f
}

// bySetNX is SET key token NX PX.
var bySetNX = keyspace.Attempt{Command: "set", Token: 1, Option: "nx"}

// stringAttempts are the shapes for a lock that is one string: SET NX, SETNX, or a script with
// the token and a TTL. A script with the token alone is a release.
func stringAttempts() []keyspace.Attempt {
	return []keyspace.Attempt{bySetNX, {Command: "setnx", Token: 1}, byScript(0, 1)}
}

// byScript is a script whose ARGV has the token at an index, and positive numbers at others.
func byScript(token int, numbers ...int) keyspace.Attempt {
	return keyspace.Attempt{Command: keyspace.AnyScript, Token: token, Numbers: numbers}
}

// attempts returns shapes, for a literal.
func attempts(shapes ...keyspace.Attempt) []keyspace.Attempt { return shapes }

//go:embed *.lua
var scripts embed.FS

// script returns the scripts of some files, one after the other; none if one of them has no name.
func script(files ...string) string {
	var all strings.Builder
	if slices.Contains(files, "") {
		return ""
	}
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
	return &keyspace.Actions{
		Keys:         lockKey,
		Args:         func(l keyspace.Lock) []string { return seenHolders(in, l) },
		ForceRelease: script("members_check", "members_release"),
		Extend:       script("members_check", extend),
	}
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

// fieldsAndCounts lists the holders of a lock with their counts, and holdersAndCounts their number before them.
func fieldsAndCounts(l keyspace.Lock) []string { return holdersAndCounts(l)[1:] }

func holdersAndCounts(l keyspace.Lock) []string {
	return eachHolder(l, func(h keyspace.Holder) []string { return []string{h.ID, strconv.Itoa(h.Depth)} })
}

// eachHolder lists the number of the holders of a lock, and what is said of each.
func eachHolder(l keyspace.Lock, said func(keyspace.Holder) []string) []string {
	all := []string{strconv.Itoa(len(l.Holders))}
	for _, h := range l.Holders {
		all = append(all, said(h)...)
	}
	return all
}
