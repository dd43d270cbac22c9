package formats_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// For any entry, no format panics, decoding is deterministic, and every holder of a decoded lock
// has a count of at least 1. What the probe excludes, the decoder does not accept.
func FuzzDecode(f *testing.F) {
	for _, argv := range seed(time.Unix(1_763_651_000, 0)) {
		if len(argv) > 3 {
			f.Add(argv[1], argv[2], argv[3], int64(30_000), 1_763_651_000_000.0)
		}
	}
	f.Add("lock:x", "~", "mode", int64(-1), 0.0)
	for _, n := range []int{127, 128} { // the longest label that a probe sees, and the next
		f.Add("orders:7", strings.Repeat("x", n)+"~019aa1ca-7398-7a4a-8a4a-4a4a4a4a4a4a", "2", int64(30_000), 1.5)
	}
	f.Add("{", strings.Repeat("0", 32), ":", int64(0), 1e300)
	all := everyFormat
	f.Fuzz(func(t *testing.T, key, a, b string, ttl int64, score float64) {
		now := time.Unix(1_763_651_000, 0)
		e := keyspace.Entry{Key: key, Now: now, Value: a, Len: int64(len(a))}
		if ttl >= 0 {
			e.Expires = now.Add(time.Duration(ttl%1_000_000) * time.Millisecond)
		}
		for _, format := range all {
			e.Type, e.Members, e.Related = format.Type, nil, nil
			if e.Type != "string" {
				e.Members = []keyspace.Member{{Name: a, Value: b, Score: score}, {Name: b, Value: a, Score: -score}, {Name: "mode", Value: "read"}}[:max(0, min(3, len(b)%4))]
				e.Len = int64(len(e.Members))
			}
			decode(t, format, e)
		}
	})
}

func decode(t *testing.T, f keyspace.Format, e keyspace.Entry) {
	t.Helper()
	if f.Match != nil && !f.Match(e.Key) {
		return
	}
	if f.Companion != nil {
		f.Companion(e.Key)
	}
	if f.Related != nil {
		e.Related = make(map[string]keyspace.Entry)
		for _, c := range f.Related(e) {
			e.Related[c.Key] = keyspace.Entry{Key: c.Key, Type: c.Type, Value: e.Value, Members: e.Members, Expires: e.Expires}
		}
	}
	if f.Channels != nil {
		e.Subscribers = make(map[string]int64)
		for _, channel := range f.Channels(e) {
			e.Subscribers[channel] = e.Len % 3
		}
	}
	lock, sure := f.Decode(e)
	again, surely := f.Decode(e)
	check.True(t, reflect.DeepEqual(lock, again) && sure == surely, "%s reads %+v now as %+v and now as %+v", f.Name, e, lock, again)
	if sure == keyspace.No {
		return
	}
	free := lock.Kind == keyspace.Semaphore || lock.Kind == keyspace.Latch
	check.True(t, (free || len(lock.Holders)+len(lock.Waiters) > 0) && lock.Kind != "", "%s takes %+v for a lock of nobody", f.Name, e)
	lock.Key = e.Key
	check.True(t, f.Actions == nil || len(lock.Holders) == 0 || len(f.Actions.Keys(lock)) > 0,
		"%s does not say which keys to act on of %+v", f.Name, e)
	if f.Actions != nil && len(lock.Holders) > 0 {
		f.Actions.Args(lock)
	}
	for _, h := range lock.Holders {
		check.True(t, h.Depth >= 1 && !h.Since.After(e.Now), "%s reads %+v as held %d times since %v", f.Name, e, h.Depth, h.Since)
	}
	first := e.Value[:min(len(e.Value), 128)]
	for _, m := range e.Members {
		first = m.Name
	}
	// A probe does not know the subscribers.
	check.True(t, f.Probe == nil || f.Probe(e.Key, first) >= sure || lock.Waiting > 0,
		"%s decodes %+v as %v, and its probe returns less", f.Name, e, sure)
}
