package lockspec

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// Locks of one family have keys of one type; all strings exclude each other. An All has
// both strings.
const (
	Families = "shwzq"
	Keys     = 2
	Permits  = 2 // of each semaphore
)

// familyOf has the family of each kind.
var familyOf = map[string]byte{"mutex": 's', "fair": 's', "all": 's', "reentrant": 'h', "reader": 'w', "writer": 'w', "semaphore": 'z', "redlock": 'q'}

// FamilyOf returns the family of a kind.
func FamilyOf(kind string) string { return string(familyOf[kind]) }

// Span returns the keys of a lock, of which [lock.Lease.Key] returns the names.
func Span(name string) []string { return strings.Split(name, ", ") }

// Key returns the name of a lock. The second one of a family differs from the first
// only by its braces.
func Key(family byte, n int) string {
	return []string{string(family) + ":a", "{" + string(family) + ":a}"}[n]
}

// AllKeys returns the names of all locks of some families.
func AllKeys(families string) (all []string) {
	for _, family := range []byte(families) {
		all = append(all, Key(family, 0), Key(family, 1))
	}
	return all
}

// fence returns the name of a lock's fence counter.
func fence(key string) string {
	if strings.HasPrefix(key, "{") {
		return key + "::fence"
	}
	return "{" + key + "}:fence"
}

// Locker returns a lock of an owner, and its key. Only a Redlock needs q.
func Locker(c *lock.Client, q *lock.Quorum, kind, owner string, n int, o lock.Options) (lock.Locker, string) {
	var l lock.Locker
	var err error
	c, key := c.As(owner), Key(familyOf[kind], n)
	switch kind {
	case "mutex":
		l, err = c.Mutex(key, o)
	case "fair":
		o.Wait = lock.Wait{}
		l, err = c.Fair(key, o)
	case "reentrant":
		l, err = c.Reentrant(key, o)
	case "reader":
		l, _, err = c.RW(key, o)
	case "writer":
		_, l, err = c.RW(key, o)
	case "semaphore":
		o.Fence = false
		l, err = c.Semaphore(key, Permits, o)
	case "all":
		o.Fence = false
		keys := []string{key, Key('s', 1-n)}
		slices.Sort(keys)
		key = strings.Join(keys, ", ")
		l, err = c.All(keys, o)
	default:
		l, err = q.As(owner).Redlock(key, o)
	}
	if err != nil {
		panic(err)
	}
	return l, key
}

// Litter returns what clients have left on a server: keys that are not counters, and subscriptions.
func Litter(rdb redis.Cmdable) (all []string) {
	for _, key := range rdb.Keys(context.Background(), "*").Val() {
		if !strings.HasSuffix(key, "fence") {
			all = append(all, "the key "+key)
		}
	}
	for _, channel := range rdb.PubSubChannels(context.Background(), "*").Val() {
		all = append(all, "a subscription to "+channel)
	}
	return all
}

// NewAttempt returns an attempt for the specification. A key has any number of readers.
func NewAttempt(kind, key string, ttl time.Duration) Attempted {
	a := Attempted{Keys: Span(key), TTL: ttl, Limit: Limit(kind)}
	if kind == "reader" {
		a.Limit = 0
	}
	return a
}

// Limit returns how many clients a lock admits that are not readers.
func Limit(kind string) int {
	if kind == "semaphore" {
		return Permits
	}
	return 1
}

// NewGrant returns a lease for the specification.
func NewGrant(lease *lock.Lease, kind, owner string) *Grant {
	fence, _ := lease.Fence()
	g := &Grant{Lease: lease, Ended: func() bool { return lease.Context().Err() != nil }, Owner: owner, Token: lease.Token(),
		Keys: Span(lease.Key()), Fence: fence, Shared: kind == "reader", Limit: Limit(kind)}
	if kind == "redlock" {
		g.Copies = 2
	}
	return g
}

// Picture is the data of a server, by key.
type Picture struct {
	Hashes  map[string]map[string]string
	Fences  map[string]string // values of the counters
	strings map[string]string
	zsets   map[string]map[string]time.Time // deadlines of permits, by key and token
	ttls    map[string]time.Duration
}

// PictureOf reads the locks of some families.
func PictureOf(rdb redis.Cmdable, families string) Picture {
	p := Picture{map[string]map[string]string{}, map[string]string{}, map[string]string{}, map[string]map[string]time.Time{}, map[string]time.Duration{}}
	pipe := rdb.Pipeline()
	zsets := map[string]*redis.ZSliceCmd{}
	values, fences, hashes, ttls := map[string]*redis.StringCmd{}, map[string]*redis.StringCmd{}, map[string]*redis.MapStringStringCmd{}, map[string]*redis.DurationCmd{}
	for _, family := range []byte(families) {
		for n := range Keys {
			key := Key(family, n)
			switch family {
			case 's', 'q':
				values[key] = pipe.Get(context.Background(), key)
			case 'z':
				zsets[key] = pipe.ZRangeWithScores(context.Background(), key, 0, -1)
			default:
				hashes[key] = pipe.HGetAll(context.Background(), key)
			}
			ttls[key] = pipe.PTTL(context.Background(), key)
			fences[key] = pipe.Get(context.Background(), fence(key))
		}
	}
	_, _ = pipe.Exec(context.Background())
	for key, v := range values {
		p.strings[key] = v.Val()
	}
	for key, v := range fences {
		p.Fences[key] = v.Val()
	}
	for key, h := range hashes {
		p.Hashes[key] = h.Val()
	}
	for key, z := range zsets {
		p.zsets[key] = map[string]time.Time{}
		for _, permit := range z.Val() {
			if !math.IsInf(permit.Score, 0) { // the limit
				p.zsets[key][permit.Member.(string)] = time.UnixMilli(int64(permit.Score))
			}
		}
	}
	for key, ttl := range ttls {
		p.ttls[key] = ttl.Val()
	}
	return p
}

// Stored returns the holders by key, with the time that each has left.
func (p Picture) Stored() Stored {
	all := Stored{}
	add := func(key, token string, left time.Duration) {
		ttl := p.ttls[key]
		if ttl == -1 { // the reply to PTTL for a key that never expires
			ttl = Forever
		}
		if left = min(left, ttl); left > 0 {
			all[key] = append(all[key], Copy{Token: token, Left: left})
		}
	}
	for key, token := range p.strings {
		if token != "" {
			add(key, token, Forever)
		}
	}
	for key, permits := range p.zsets {
		for token, deadline := range permits {
			add(key, token, time.Until(deadline))
		}
	}
	for key, fields := range p.Hashes {
		for field, value := range fields {
			switch {
			case strings.HasPrefix(field, "r:"):
				add(key, field[2:], Lasting(value))
			case field == "w":
				add(key, value[strings.LastIndexByte(value, ':')+1:], Lasting(value))
			case strings.Contains(field, "~"):
				add(key, field, Forever)
			}
		}
	}
	return all
}

// Lasting returns the time until the deadline in a field of a read/write lock, <count>:<ms>.
func Lasting(value string) time.Duration {
	fields := strings.Split(value, ":")
	if len(fields) < 2 {
		return 0
	}
	ms, _ := strconv.ParseInt(fields[1], 10, 64)
	return time.Until(time.UnixMilli(ms))
}
