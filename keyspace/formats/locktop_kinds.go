package formats

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// locktopRW is the format of the read/write lock in package lock: a hash with a field
// for each reader, the writer and the waiting writer that is next. The other processes
// that wait to write are registered in a zset. Holders have a count and a deadline. A
// holder ends at its deadline, but its field may remain.
func locktopRW() keyspace.Format {
	return keyspace.Format{
		About: about("locktop-rw", "locktop", "package locktop/lock: RW, the fields in rw_common.lua",
			"the hash has the fields of locktop's read/write lock, with v = "+rwFormat),
		ShowsWaiters: true,
		Attempts:     attempts(byScript(1, 2, 3)),
		Type:         "hash",
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			token, reader := strings.CutPrefix(first, rwReader)
			_, ours := locktopHolder(token, time.Time{})
			return reader && ours || slices.Contains([]string{"v", "w", "q", "s", "t"}, first)
		}),
		Related: locktopBeside("fence", "waiters"),
		Decode:  decodeLocktopRW,
		Actions: &keyspace.Actions{
			Keys: lockKey,
			Args: func(l keyspace.Lock) []string {
				seen := eachHolder(l, func(h keyspace.Holder) []string {
					if h.Mode == keyspace.Write {
						return []string{"w", strconv.Itoa(h.Depth), ":" + h.ID}
					}
					return []string{rwReader + h.ID, strconv.Itoa(h.Depth), ""}
				})
				return append(seen, locktopName(l.Key, "free"), locktopName(l.Key, "open"))
			},
			ForceRelease: script("locktop_rw_check", "locktop_rw_release"),
			Extend:       script("locktop_rw_check", "locktop_rw_extend"),
			WakeHint:     "receive free on {key}:free:<process> (the writer that is next) or the key on {key}:open (readers)",
		},
	}
}

// rwReader is the prefix of a reader's field. rwFormat is the value of the field v.
const (
	rwReader = "r:"
	rwFormat = "locktop-rw-1"
)

func decodeLocktopRW(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.RW, Fence: locktopFence(e)}
	var writer, readers []keyspace.Holder
	versioned := e.Truncated() // otherwise the version must be among the members
	for _, m := range e.Members {
		ok := true
		switch m.Name {
		case "v":
			ok, versioned = m.Value == rwFormat, true
		case "w":
			writer, ok = appendHold(writer, e.Now, m.Value, "", keyspace.Write)
		case "q":
			l.Waiters, ok = appendClaim(l.Waiters, e.Now, m.Value)
		case "s", "t": // a reader was refused; the readers' turn
		default:
			token, isReader := strings.CutPrefix(m.Name, rwReader)
			if ok = isReader; ok {
				readers, ok = appendHold(readers, e.Now, m.Value, token, keyspace.Read)
			}
		}
		if !ok {
			return keyspace.Lock{}, keyspace.No
		}
	}
	l.Holders = append(writer, readers...)
	for _, w := range locktopProcesses(e) {
		w.Mode = keyspace.Write
		l.Waiters = append(l.Waiters, w)
	}
	if !versioned || len(l.Holders)+len(l.Waiters) == 0 {
		return keyspace.Lock{}, keyspace.No
	}
	return l, keyspace.Certain
}

// appendHold parses <count>:<deadline> of a reader with a known token, or
// <count>:<deadline>:<token> of a writer. It omits a holder after its deadline.
func appendHold(all []keyspace.Holder, now time.Time, value, token string, mode keyspace.Mode) ([]keyspace.Holder, bool) {
	entered, rest, _ := strings.Cut(value, ":")
	if mode == keyspace.Write {
		rest, token, _ = strings.Cut(rest, ":")
	}
	h, ours := locktopHolder(token, now)
	n, counted := count(entered)
	deadline, timed := atMilli(rest)
	if !ours || !counted || !timed {
		return all, false
	}
	if !deadline.After(now) {
		return all, true
	}
	h.Depth, h.Mode, h.Expires = n, mode, deadline
	return append(all, h), true
}

// appendClaim parses <deadline>:<process> of a waiting writer. The name of the process
// does not contain the start of the wait.
func appendClaim(all []keyspace.Waiter, now time.Time, value string) ([]keyspace.Waiter, bool) {
	rest, id, _ := strings.Cut(value, ":")
	label, process, named := cutLast(id, "~")
	deadline, timed := atMilli(rest)
	if !named || len(label) > maxLabel || len(process) != locktopProcess || !timed {
		return all, false
	}
	if !deadline.After(now) {
		return all, true
	}
	return append(all, keyspace.Waiter{ID: id, Mode: keyspace.Write}), true
}

// atMilli parses a current time in ms since 1970, which has 13 digits.
func atMilli(s string) (time.Time, bool) {
	if !digits(s, 13, 13) {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(ms), err == nil
}

// locktopSemaphore is the format of the semaphore in package lock: a zset of the permits
// with their deadlines, and of the limit with the score +inf. A permit ends at its
// deadline, but its element may remain.
func locktopSemaphore() keyspace.Format {
	return keyspace.Format{
		About: about("locktop-semaphore", "locktop", "package locktop/lock: Semaphore",
			"the zset has locktop-limit:<n>, and tokens with a label, a tilde, and a UUID that contains the time"),
		ShowsWaiters: true,
		Attempts:     attempts(byScript(0, 1, 2)),
		Type:         "zset",
		Match: func(key string) bool { // not the companions of a lock
			return !strings.HasSuffix(key, ":queue") && !strings.HasSuffix(key, ":alive") && !strings.HasSuffix(key, ":waiters")
		},
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			_, isToken := locktopHolder(first, time.Time{})
			_, isLimit := locktopLimit(first)
			return isToken || isLimit
		}),
		Companion: func(key string) bool { return isLocktopCompanion(key, "limit") },
		Related:   locktopBeside("limit", "waiters"),
		Decode:    decodeLocktopSemaphore,
		Actions: &keyspace.Actions{
			Keys:         lockKey,
			Args:         func(l keyspace.Lock) []string { return append([]string{locktopName(l.Key, "free")}, holderIDs(l)...) },
			ForceRelease: script("locktop_semaphore_check", "locktop_semaphore_release"),
			Extend:       script("locktop_semaphore_check", "locktop_semaphore_extend"),
			WakeHint:     "receive free or more on {key}:free:<process>, by the order of {key}:waiters, or the key on {key}:free",
		},
	}
}

// locktopLimit parses the element with the limit of a semaphore.
func locktopLimit(element string) (int, bool) {
	n, ok := strings.CutPrefix(element, "locktop-limit:")
	if !ok {
		return 0, false
	}
	return count(n)
}

func decodeLocktopSemaphore(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.Semaphore}
	limited := e.Truncated() // else the limit must be the last element
	if n, ok := count(e.Related[locktopName(e.Key, "limit")].Value); ok {
		l.Limit = n
	}
	for _, m := range e.Members {
		if n, ok := locktopLimit(m.Name); ok && math.IsInf(m.Score, 1) {
			l.Limit, limited = n, true
			continue
		}
		h, ours := locktopHolder(m.Name, e.Now)
		deadline, timed := atScore(m.Score)
		if !ours || !timed {
			return keyspace.Lock{}, keyspace.No
		}
		if h.Expires = deadline; deadline.After(e.Now) {
			l.Holders = append(l.Holders, h)
			l.Expires = deadline // they are in the order of their deadlines
		}
	}
	if !limited {
		return keyspace.Lock{}, keyspace.No
	}
	if l.Limit > 0 && !e.Truncated() {
		l.Remaining = max(l.Limit-len(l.Holders), 0)
	}
	l.Waiters = locktopProcesses(e)
	return ifHeld(l, keyspace.Certain)
}
