package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// locktop is the format of the mutex in package lock: the owner's label, a tilde, and a UUID v7 that is
// new for every attempt. With fencing, a second key has the counter. A fair lock has it, too, with tokens
// among the waiters (older versions: in a queue of their own), and so has each key of an All.
func locktop() keyspace.Format {
	return keyspace.Format{
		About: about("locktop", "locktop", "package locktop/lock: Mutex, Fair, each key of an All",
			"the value is a label, a tilde, and a UUID that contains the time"),
		Attempts:     attempts(bySetNX, byScript(3, 1, 2, 4), byScript(0, 1)),
		Type:         "string",
		Probe:        probeLocktop,
		Companion:    func(key string) bool { return isLocktopCompanion(key, "fence") }, // of those of the type, it remains after a release
		Related:      locktopBeside("queue", "alive", "fence", "waiters"),
		ShowsWaiters: true,
		MayPoll:      true,
		Decode:       decodeLocktop,
		Actions:      locktopActions(),
		ReleaseChannel: &keyspace.ReleaseChannel{
			Pattern: "{*}*:free*",
			Key:     locktopReleased,
		},
	}
}

// locktopName returns the name of a second key of a lock, in the same cluster slot.
// Package lock uses the same rule.
func locktopName(key, part string) string {
	_, rest, found := strings.Cut(key, "{")
	if tagged := found && strings.IndexByte(rest, '}') > 0; tagged {
		return key + "::" + part
	}
	return "{" + key + "}:" + part
}

// locktopBeside returns a Related of second keys: the limit and the counter of the fence are
// strings, the others are zsets.
func locktopBeside(parts ...string) func(keyspace.Entry) []keyspace.Companion {
	return func(e keyspace.Entry) (all []keyspace.Companion) {
		for _, part := range parts {
			typ := "zset"
			if part == "fence" || part == "limit" {
				typ = "string"
			}
			all = append(all, keyspace.Companion{Key: locktopName(e.Key, part), Type: typ})
		}
		return all
	}
}

// locktopActions wake the waiters, and hand a fair lock of an older version over to the next one.
func locktopActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return []string{l.Key, locktopName(l.Key, "queue"), locktopName(l.Key, "alive")}
		},
		Args:         func(l keyspace.Lock) []string { return []string{l.Holders[0].ID, locktopName(l.Key, "free")} },
		ForceRelease: script("locktop_release"),
		Extend:       script("token_extend"),
		WakeHint:     "receive free on {key}:free:<process>, by the order of {key}:waiters, or the key on {key}:free; the first waiter of a fair lock receives its token on a channel of its process",
	}
}

// locktopReleased returns the key of a lock from the message of a release. To all
// waiters, the message is the key. On the channel of one process it is "free", "own", or
// the token of the waiter that gets the lock; "more" is not a release.
func locktopReleased(channel, payload string) (string, bool) {
	if locktopName(payload, "free") == channel {
		return payload, true
	}
	named, process, ok := cutLast(channel, ":free:")
	if !ok || len(process) != locktopProcess || payload != "free" && payload != "own" && !strings.HasSuffix(payload, process) {
		return "", false // for another process, or not from package lock
	}
	if tagged, ok := strings.CutSuffix(named, ":"); ok {
		return tagged, true
	}
	return unbraced(named), true
}

// locktopProcess is the length of the suffix that the tokens of all waiters of a process share.
const locktopProcess = 12

// isLocktopCompanion reports whether key is the second key of a lock with that part.
func isLocktopCompanion(key, part string) bool {
	beside, ends := strings.CutSuffix(key, part)
	if !ends {
		return false // most keys
	}
	beside, ends = strings.CutSuffix(beside, ":")
	lock, tagged := strings.CutSuffix(beside, ":")
	if !tagged {
		lock = unbraced(beside)
	}
	return ends && locktopName(lock, part) == key
}

// maxLabel is the greatest length of a label for which a probe still sees the tilde.
// Reading all long strings for longer labels would cost too much.
const maxLabel = 127

var probeLocktop = probeIf(keyspace.Certain, func(first string) bool { return strings.Contains(first, "~") })

func decodeLocktop(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	h, ok := locktopHolder(e.Value, e.Now)
	if !ok || e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{h}, Fence: locktopFence(e)}
	alive := deadlines(e.Related[locktopName(e.Key, "alive")])
	for _, m := range e.Related[locktopName(e.Key, "queue")].Members {
		l.Kind = keyspace.Fair
		waiter, _ := locktopHolder(m.Name, e.Now)
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name, Since: waiter.Since.Add(-waiter.Late), Expires: alive[m.Name]})
	}
	for _, w := range locktopProcesses(e) {
		if n := len(w.ID); n > 17 && w.ID[n-17] == '8' && w.ID[n-13] == '-' {
			l.Kind = keyspace.Fair // a token with the mark of its waiters
		}
		l.Waiters = append(l.Waiters, w)
	}
	return l, keyspace.Certain
}

// locktopProcesses returns the processes that wait for a lock, and since when. One that came too late
// too often, and each waiter of a fair lock, is a token, with a ticket that is locktopStarving smaller.
func locktopProcesses(e keyspace.Entry) []keyspace.Waiter {
	const locktopStarving = 4e15
	var all []keyspace.Waiter
	for _, m := range e.Related[locktopName(e.Key, "waiters")].Members {
		w, micros := keyspace.Waiter{ID: m.Name}, m.Score
		if micros < 0 {
			micros += locktopStarving
		}
		if micros > 0 && micros < locktopStarving {
			w.Since = time.UnixMicro(int64(micros))
		}
		all = append(all, w)
	}
	return all
}

// deadlines parses a zset of member → ms since 1970.
func deadlines(e keyspace.Entry) map[string]time.Time {
	all := make(map[string]time.Time, len(e.Members))
	for _, m := range e.Members {
		if m.Score > 0 && m.Score < 1e14 {
			all[m.Name] = time.UnixMilli(int64(m.Score))
		}
	}
	return all
}

// locktopHolder parses a token: the label and the time at which it was made.
func locktopHolder(token string, now time.Time) (keyspace.Holder, bool) {
	label, made, ok := cutLast(token, "~")
	if !ok || len(label) > maxLabel {
		return keyspace.Holder{}, false
	}
	id, ok := dashed(made)
	if !ok || id.Version() != 7 {
		return keyspace.Holder{}, false
	}
	return tokenHolder(token, label, madeAt(id, now), now), true
}

// locktopFence returns the last fencing token, 0 if there is none.
func locktopFence(e keyspace.Entry) int64 { return fenceIn(e, locktopName(e.Key, "fence")) }

// locktopReentrant is the format of the reentrant lock in package lock: the hash of
// hashReentrant with a token of package lock as its holder.
func locktopReentrant() keyspace.Format {
	return keyspace.Format{
		About: about("locktop-reentrant", "locktop", "package locktop/lock: Reentrant",
			"the hash has one field, a label, a tilde, and a UUID that contains the time"),
		Attempts:     attempts(byScript(0, 1, 2)),
		Type:         "hash",
		Probe:        probeLocktop,
		Related:      locktopBeside("fence", "waiters"),
		ShowsWaiters: true,
		Decode:       decodeLocktopReentrant,
		Actions: countActions(func(key string) (string, string) { return locktopName(key, "free"), key },
			"receive the key on {key}:free"),
	}
}

func decodeLocktopReentrant(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if len(e.Members) != 1 || e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	h, ok := locktopHolder(e.Members[0].Name, e.Now)
	if !ok {
		return keyspace.Lock{}, keyspace.No
	}
	if h.Depth, ok = count(e.Members[0].Value); !ok {
		return keyspace.Lock{}, keyspace.No
	}
	return keyspace.Lock{
		Kind:    keyspace.Reentrant,
		Holders: []keyspace.Holder{h},
		Waiters: locktopProcesses(e),
		Fence:   locktopFence(e),
	}, keyspace.Certain
}
