package formats_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/keyspace/release"
)

// memoryLog is an audit log in memory.
type memoryLog struct{ lines []keyspace.AuditRecord }

func (d *memoryLog) Write(a keyspace.AuditRecord) error {
	d.lines = append(d.lines, a)
	return nil
}

// full is an audit log whose writes fail.
type full struct{}

func (full) Write(keyspace.AuditRecord) error { return errors.New("no space left on device") }

func TestWithoutAnAuditLogNothingIsDone(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	load(t, rdb, []string{"SET", "lock:a", "3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d", "PX", "60000"})
	seen := only(t, rdb, "lock:a")
	before := everything(t, rdb)
	b := release.NewExecutor(always(map[string]inspect.Client{servertest.AddrOf(rdb): rdb}), everyFormat, full{})
	_, err := b.Act(t.Context(), keyspace.ForceRelease, seen, 0)
	check.ErrorContains(t, err, "nothing was changed")
	_, err = b.Act(t.Context(), keyspace.Extend, seen, time.Hour)
	check.True(t, err != nil, "it was extended")
	check.Equal(t, everything(t, rdb), before, "the server has")
}

// Each server version has its own message for a refusal by a replica or by an
// ACL. locktop returns the same error for all.
func TestAServerThatRefusesAnActionReturnsTheReason(t *testing.T) {
	t.Parallel()
	admin := connect(t, servertest.RedisForTest(t).Addr())
	load(t, admin, []string{"SET", "lock:a", "3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d", "PX", "600000"})
	seen := only(t, admin, "lock:a")
	before := everything(t, admin)

	as := func(name string, rights ...string) server.Client {
		check.NoError(t, servertest.SetUser(t.Context(), admin, name, append([]string{"on", ">pw", "-@all", "+hello", "+eval", "+type", "+get"}, rights...)...))
		rdb := server.NewClient(servertest.AddrOf(admin), server.ClientOptions{Username: name, Password: "pw"})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	for what, rdb := range map[string]server.Client{
		"command": as("ann", "~*"), "key": as("ben", "~other:*", "+del"), "script": as("eve", "~*", "+del", "-eval"),
		"value, in the script and outside": as("dan", "~*", "+del", "-get"),
		"value, in the script":             as("kim", "~*", "+del", "-get", "+getrange", "+strlen", "+pttl"),
		"type":                             as("tom", "~*", "+del", "-get", "-type"),
	} {
		_, err := releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0)
		check.True(t, errors.Is(err, release.ErrNoPermission) && !errors.Is(err, release.ErrReadOnly) && !errors.Is(err, keyspace.ErrChanged),
			"without the right to the %s: %v", what, err)
	}
	load(t, admin, []string{"REPLICAOF", "127.0.0.1", "1"})
	_, err := releaser(admin).Act(t.Context(), keyspace.ForceRelease, seen, 0)
	check.ErrorIs(t, err, release.ErrReadOnly, "on a replica")
	check.ErrorContains(t, err, ": READONLY You can't write against a read only replica.", "on a replica")
	check.Equal(t, everything(t, admin), before, "the server has")
}

// always returns the same clients for every action.
func always(nodes map[string]inspect.Client) func(context.Context) map[string]inspect.Client {
	return func(context.Context) map[string]inspect.Client { return nodes }
}

// releaser returns a force-releaser for the locks of rdb.
func releaser(rdb server.Client) *release.Executor {
	nodes := map[string]inspect.Client{servertest.AddrOf(rdb): rdb}
	return release.NewExecutor(always(nodes), everyFormat, &memoryLog{})
}

// everything returns the complete contents of the server as text, for comparison.
func everything(t testing.TB, rdb server.Client) string {
	t.Helper()
	var all []string
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		typ := rdb.Type(t.Context(), key).Val()
		value := ""
		switch typ {
		case "string":
			value = rdb.Get(t.Context(), key).Val()
		case "hash":
			value = fmt.Sprint(rdb.HGetAll(t.Context(), key).Val())
		case "list":
			value = fmt.Sprint(rdb.LRange(t.Context(), key, 0, -1).Val())
		case "set":
			value = fmt.Sprint(rdb.SMembersMap(t.Context(), key).Val())
		case "zset":
			value = fmt.Sprint(rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val())
		}
		all = append(all, fmt.Sprintf("%s %q %s never=%v", typ, key, value, rdb.PTTL(t.Context(), key).Val() == -1))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// For every sample of a format with actions: a lock that differs from the one that was seen is not
// changed; the one that was seen can be extended, and then force-released.
func TestActionsAffectWhatWasSeenAndOnNothingElse(t *testing.T) {
	t.Parallel()
	for name, rdb := range clients(t) {
		if name == "embedded" && !testtier.InLong() {
			continue
		}
		for i, f := range everyFormat {
			if !testtier.InLong() && i%3 > 0 {
				continue
			}
			for _, s := range placesOf(f) {
				if f.Actions != nil && len(s.Want.Holders) > 0 {
					t.Run(fmt.Sprintf("%s/%s/%s", name, f.Name, s.Name), func(t *testing.T) { handle(t, rdb, f, s) })
				}
			}
		}
	}
}

func handle(t *testing.T, rdb server.Client, f keyspace.Format, s keyspace.Sample) {
	seen := placed(t, rdb, s.Want.Key, clock(t, rdb), s.Commands)
	if seen.Format != f.Name {
		t.Skipf("another format takes it: %s", seen.Format)
	}
	b := releaser(rdb)
	before := everything(t, rdb)
	for what, other := range unlike(f, seen) {
		_, err := b.Act(t.Context(), keyspace.ForceRelease, other, 0)
		check.ErrorIs(t, err, keyspace.ErrChanged, "broken with another %s", what)
		_, err = releaser(rdb).Act(t.Context(), later(seen), other, 48*time.Hour)
		check.True(t, f.Actions.Extend == "" || errors.Is(err, keyspace.ErrChanged), "extended with another %s: %v", what, err)
	}
	check.Equal(t, everything(t, rdb), before, "nothing was to be done, and the server has")
	if f.Actions.Extend != "" {
		keepsDeadlines(t, rdb, seen)
		extend(t, rdb, seen)
		keepsDeadlines(t, rdb, only(t, rdb, seen.Key))
	}
	check.Must(b.Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
	for _, l := range scan(t, rdb).Locks {
		for _, h := range l.Holders {
			check.True(t, l.Key != seen.Key || !slices.ContainsFunc(seen.Holders, func(was keyspace.Holder) bool { return was.ID == h.ID }),
				"%s still holds it", h.ID)
		}
	}
	_, err := b.Act(t.Context(), keyspace.ForceRelease, seen, 0)
	check.ErrorIs(t, err, keyspace.ErrChanged, "broken again")
}

// extend sets the deadlines of the holders to an hour after the last of them, or from now.
func extend(t *testing.T, rdb server.Client, seen keyspace.Lock) {
	t.Helper()
	ttl := time.Hour
	if left, ok := seen.TTL(clock(t, rdb)); ok {
		ttl += left
	}
	check.Must(releaser(rdb).Act(t.Context(), later(seen), seen, ttl))(t)
	now := only(t, rdb, seen.Key)
	for _, h := range now.Holders {
		left := h.Expires.Sub(clock(t, rdb))
		check.True(t, left >= ttl-time.Minute && left <= ttl+time.Minute, "%s has %v left, want %v", h.ID, left, ttl)
	}
	left := rdb.PTTL(t.Context(), seen.Key).Val()
	check.True(t, left == -1 || left >= ttl-time.Minute, "the key has %v left, want %v, or no end", left, ttl)
	_, err := releaser(rdb).Act(t.Context(), keyspace.Expire, now, time.Minute)
	check.True(t, errors.Is(err, keyspace.ErrChanged), "it has a deadline, and was given one: %v", err)
}

// placed empties the server, sends commands with the times of now, and returns the lock of a key.
func placed(t *testing.T, rdb server.Client, key string, now time.Time, commands [][]string) keyspace.Lock {
	t.Helper()
	load(t, rdb, []string{"FLUSHALL"})
	load(t, rdb, formats.At(keyspace.Sample{Commands: commands}, now).Commands...)
	return only(t, rdb, key)
}

// commandsOf returns the commands of a text: "; " is between them, and a blank between their words.
func commandsOf(text string) (all [][]string) {
	for command := range strings.SplitSeq(text, "; ") {
		all = append(all, strings.Split(command, " "))
	}
	return all
}

// later returns the action that sets a later deadline of a lock.
func later(l keyspace.Lock) keyspace.Action {
	if l.Endless() {
		return keyspace.Expire
	}
	return keyspace.Extend
}

// No action moves a deadline towards now. An extend to an earlier one changes nothing, and
// neither does one of a lock without a deadline.
func keepsDeadlines(t *testing.T, rdb server.Client, seen keyspace.Lock) {
	t.Helper()
	if seen.Endless() {
		_, err := releaser(rdb).Act(t.Context(), keyspace.Extend, seen, time.Hour)
		check.True(t, errors.Is(err, keyspace.ErrEndless), "a lock without a deadline was extended: %v", err)
		return
	}
	before := deadlines(t, rdb)
	_, err := releaser(rdb).Act(t.Context(), keyspace.Extend, seen, time.Second)
	check.ErrorIs(t, err, keyspace.ErrLater, "extended to an earlier deadline")
	for of, at := range deadlines(t, rdb) {
		check.AtMost(t, at.Sub(before[of]).Abs(), 5*time.Second, "the deadline of %s has moved by", of)
	}
}

// deadlines returns the deadlines of all keys, and of all holders; zero = none.
func deadlines(t *testing.T, rdb server.Client) map[string]time.Time {
	t.Helper()
	all, now := make(map[string]time.Time), clock(t, rdb)
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		all["the key "+key] = time.Time{}
		if left := rdb.PTTL(t.Context(), key).Val(); left > 0 {
			all["the key "+key] = now.Add(left)
		}
	}
	for _, l := range scan(t, rdb).Locks {
		for _, h := range l.Holders {
			all[h.ID+" of "+l.Key] = h.Expires
		}
	}
	return all
}

// only returns the lock of a key.
func only(t testing.TB, rdb server.Client, key string) keyspace.Lock {
	t.Helper()
	for _, l := range scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible}).Locks {
		if l.Key == key {
			return *l
		}
	}
	t.Fatalf("%q is no lock", key)
	return keyspace.Lock{}
}

// unlike returns copies of the lock, each with one change.
func unlike(f keyspace.Format, l keyspace.Lock) map[string]keyspace.Lock {
	all := make(map[string]keyspace.Lock)
	change := func(i int, what string, f func(*keyspace.Holder)) {
		c := l
		c.Holders = slices.Clone(l.Holders)
		f(&c.Holders[i])
		all[fmt.Sprintf("%s (%d)", what, i+1)] = c
	}
	for i := range l.Holders {
		change(i, "holder", func(h *keyspace.Holder) { h.ID = "nobody" })
		if counts(f) {
			change(i, "count", func(h *keyspace.Holder) { h.Depth++ })
		}
	}
	return all
}

// counts reports whether a format shows how often a lock was entered.
func counts(f keyspace.Format) bool {
	return slices.ContainsFunc(formats.Samples(f.Name), func(s keyspace.Sample) bool { return s.Want.Depth() > 1 })
}

// heard runs f and returns the messages that are published while it runs, by channel.
func heard(t *testing.T, rdb server.Client, f func()) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ps := servertest.PSubscribe(ctx, rdb, "*")
	defer ps.Close()
	check.Must(ps.Receive(ctx))(t)
	f()
	check.NoError(t, rdb.Publish(ctx, "the end", "").Err())
	var all []string
	for {
		m := check.Must(ps.ReceiveMessage(ctx))(t)
		if m.Channel == "the end" {
			return all
		}
		all = append(all, m.Channel+" "+m.Payload)
	}
}

// Each library's waiters listen for another message.
func TestWaitersAreWokenTheWayTheirLibraryListens(t *testing.T) {
	const (
		owner  = "8743c9c0-0795-4907-87fd-6c719a6b4586:52"
		second = "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7"
		token  = "pay-7:52~{v7-4000/4d}"
		waiter = "api-2:17~{v7-3000/4e}"
	)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for _, c := range []struct {
		name     string
		key      string
		commands string
		want     []string // {token} and {waiter} stand for the tokens, {process} for the end of the waiter's token
		left     []string // keys
	}{
		{"redisson", "orders:1", "HSET orders:1 " + owner + " 2; PEXPIRE orders:1 30000", []string{"redisson_lock__channel:{orders:1} 0"}, nil},
		{"redisson, a name with braces", "{a}:1", "HSET {a}:1 " + owner + " 2", []string{"redisson_lock__channel:{a}:1 0"}, nil},
		{"redisson fair, behind a dead waiter", "gate",
			"HSET gate " + owner + " 1; PEXPIRE gate 30000; RPUSH redisson_lock_queue:{gate} dead:1 " + second + "; " +
				"ZADD redisson_lock_timeout:{gate} {ms-1000} dead:1 {ms+330000} " + second,
			[]string{"redisson_lock__channel:{gate}:" + second + " 0", "redisson_lock__channel:{gate} 0"},
			[]string{"redisson_lock_queue:{gate}", "redisson_lock_timeout:{gate}"}},
		{"redisson rw, the only reader", "rates",
			"HSET rates mode read " + owner + " 2; PEXPIRE rates 30000; SET {rates}:" + owner + ":rwlock_timeout:1 1 PX 30000; " +
				"SET {rates}:" + owner + ":rwlock_timeout:2 1 PX 30000",
			[]string{"redisson_rwlock:{rates} 1"}, nil},
		{"locktop reentrant", "ledger", "HSET ledger " + token + " 2; PEXPIRE ledger 30000", []string{"{ledger}:free ledger"}, nil},
		{"locktop", "jobs", "SET jobs " + token + " PX 30000", []string{"{jobs}:free jobs"}, nil},
		{"locktop fair", "{f}:row", "SET {f}:row " + token + " PX 30000; ZADD {f}:row::waiters 1 " + waiter, []string{"{f}:row::free {f}:row"}, []string{"{f}:row::waiters"}},
		{"locktop fair, of an older version", "{f}:line",
			"SET {f}:line " + token + " PX 30000; ZADD {f}:line::queue 1 dead 2 " + waiter +
				"; ZADD {f}:line::alive {ms-1} dead {ms+5000} " + waiter,
			[]string{"{f}:line::free:{process} {waiter}"}, []string{"{f}:line"}},
		{"locktop semaphore, over its limit", "pool",
			"ZADD pool {ms-1000} " + waiter + " {ms+20000} " + token + " +inf locktop-limit:1; PEXPIRE pool 30000", []string{"{pool}:free pool"}, nil},
		{"redisson permits", "{gpu}:timeout",
			"SET gpu 0; " +
				"ZADD {gpu}:timeout {ms+60000} \x00\x9dperm1\xfe\x01\x02\x03\x04\x05\x06\x07\x08" +
				" {ms+20000} \x00\x9dperm2\xfe\x01\x02\x03\x04\x05\x06\x07\x08",
			[]string{"redisson_sc:{gpu} 2"}, []string{"gpu"}},
		{"spring", "my-registry:orders:42", "SET my-registry:orders:42 0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e PX 60000",
			[]string{"my-registry-channel:my-registry:orders:42 my-registry:orders:42"}, nil},
		{"redfour, in a namespace with a colon", "app:jobs:lock:7", "HSET app:jobs:lock:7 index 41; PEXPIRE app:jobs:lock:7 30000; SET app:jobsindex 43; SET appindex 3",
			[]string{"app:jobs-release app:jobs:lock:7"}, []string{"app:jobsindex", "appindex"}},
		{"lynx", "{lynx:lock:a}:owner", "SET {lynx:lock:a}:owner vm-10.0.0.7-4242-3-" + hex32 + " PX 30000; SET {lynx:lock:a}:count 2 PX 30000; SET {lynx:lock:a}:token 3",
			nil, []string{"{lynx:lock:a}:token"}},
		{"redis-lock-py", "lock:a", "SET lock:a " + hex32 + " PX 30000", []string{"rlock-channel:lock:a ok"}, nil},
		{"effect-distributed-lock", "semaphore:a", "ZADD semaphore:a {ms-0} " + uuidA + "_0 {ms-0} " + uuidA + "_1; PEXPIRE semaphore:a 30000",
			[]string{"semaphore:a:released 2"}, nil},
		{"set nx without a registry", "lock", "SET lock 0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e PX 60000", nil, nil},
		{"locktop rw, its writer", "book", "HSET book v locktop-rw-1 w 1:{ms+20000}:" + token + " s 1; PEXPIRE book 30000",
			[]string{"{book}:free book", "{book}:open book"}, []string{"book"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := clock(t, rdb)
			seen := placed(t, rdb, c.key, now, commandsOf(c.commands))
			got := heard(t, rdb, func() { check.Must(releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0))(t) })
			filled := formats.At(keyspace.Sample{Commands: [][]string{{waiter}}}, now).Commands[0][0]
			for i, w := range c.want {
				w = strings.ReplaceAll(w, "{process}", filled[max(0, len(filled)-12):])
				c.want[i] = strings.ReplaceAll(w, "{waiter}", filled)
			}
			check.True(t, slices.Equal(got, c.want), "heard %q, want %q", got, c.want)
			check.DeepEqual(t, slices.Sorted(slices.Values(rdb.Keys(t.Context(), "*").Val())), c.left, "it left")
			for _, f := range everyFormat {
				if f.Name == seen.Format && f.ReleaseChannel != nil {
					announced(t, f, seen.Key, got)
				}
			}
		})
	}
}

// In a cluster of Redis 7, the waiters of some libraries subscribe to sharded channels.
func TestWaitersOnShardedChannelsAreWoken(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	if known := check.Must(rdb.Do(t.Context(), "COMMAND", "INFO", "SPUBLISH").Slice())(t); known[0] == nil {
		t.Skip("Redis 6 has no sharded channels: put a redis-server of version 7 or later on PATH")
	}
	const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:52"
	for key, commands := range map[string]string{
		"orders:1":         "HSET orders:1 " + owner + " 2",
		"rates":            "HSET rates mode read " + owner + " 2; SET {rates}:" + owner + ":rwlock_timeout:1 1 PX 30000; SET {rates}:" + owner + ":rwlock_timeout:2 1 PX 30000",
		"{gpu}:timeout":    "SET gpu 0; ZADD {gpu}:timeout {ms+20000} \x00\x9dperm2\xfe\x01\x02\x03\x04\x05\x06\x07\x08",
		"lock:{ior4_0a}:7": "HSET lock:{ior4_0a}:7 index 41; PEXPIRE lock:{ior4_0a}:7 30000; SET lock:{ior4_0a}:index 43",
	} {
		seen := placed(t, rdb, key, clock(t, rdb), commandsOf(commands))
		check.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		check.Must(releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
		check.Contains(t, rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_spublish:calls=1", "a release of %s", key)
	}
}

// announced checks that a watcher can read from a message which lock it is about.
func announced(t *testing.T, f keyspace.Format, key string, heard []string) {
	t.Helper()
	for _, m := range heard {
		channel, payload, _ := strings.Cut(m, " ")
		got, ok := f.ReleaseChannel.Key(channel, payload)
		check.True(t, ok && got == key, "%q is taken for a message about %q", m, got)
	}
}

func TestOneHolderOfSeveralIsReleased(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for _, f := range everyFormat {
		for _, s := range formats.Samples(f.Name) {
			if f.Actions == nil || len(s.Want.Holders) < 2 {
				continue
			}
			t.Run(f.Name+"/"+s.Name, func(t *testing.T) {
				seen := placed(t, rdb, s.Want.Key, clock(t, rdb), s.Commands)
				others := seen.Holders[1:]
				seen.Holders = seen.Holders[:1]
				check.Must(releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
				left := holders(t, rdb)
				check.Require(t, len(left) == len(others), "%d holders are left, want %d", len(left), len(others))
				for i, h := range left {
					check.True(t, h.ID == others[i].ID && h.Depth == others[i].Depth && h.Mode == others[i].Mode,
						"left is %+v, want %+v", h, others[i])
				}
			})
		}
	}
}

// holders returns the holders of all locks.
func holders(t *testing.T, rdb server.Client) []keyspace.Holder {
	t.Helper()
	var all []keyspace.Holder
	for _, l := range scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible}).Locks {
		all = append(all, l.Holders...)
	}
	return all
}

// A token of Ruby's redis-semaphore is a number that is used again. A hold that
// began at another time is another hold.
func TestATokenThatWasTakenAgainIsAnotherHold(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	now := clock(t, rdb)
	seen := placed(t, rdb, "SEMAPHORE:x:GRABBED", now, [][]string{{"HSET", "SEMAPHORE:x:GRABBED", "1", "{f-7000}"}})
	placed(t, rdb, "SEMAPHORE:x:GRABBED", now, [][]string{{"HSET", "SEMAPHORE:x:GRABBED", "1", "{f-1000}"}})
	_, err := releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0)
	check.True(t, errors.Is(err, keyspace.ErrChanged), "broken: %v", err)
}

// Of three servers that had a token, two have another token now. That one stays.
func TestARedlockThatMostServersHaveTakenAnewIsNotReleased(t *testing.T) {
	const seen, next = "3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d", "0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e"
	nodes := make(map[string]inspect.Client)
	lock := keyspace.Lock{Key: "lock:a", Format: "set-nx", Kind: keyspace.Redlock, Holders: []keyspace.Holder{{ID: seen, Depth: 1}}}
	for _, has := range []string{next, seen, next} {
		rdb := connect(t, servertest.RedisForTest(t).Addr())
		load(t, rdb, []string{"SET", "lock:a", has, "PX", "60000"})
		nodes[servertest.AddrOf(rdb)] = rdb
		lock.Votes = append(lock.Votes, keyspace.Vote{Node: servertest.AddrOf(rdb), Token: seen})
	}
	written := &memoryLog{}
	_, err := release.NewExecutor(always(nodes), everyFormat, written).Act(t.Context(), keyspace.ForceRelease, lock, 0)
	check.ErrorIs(t, err, keyspace.ErrChanged)
	check.ErrorContains(t, err, "1 of 3 servers")
	check.ErrorContains(t, err, next)
	for i, want := range []string{next, "", next} {
		check.Equal(t, nodes[lock.Votes[i].Node].Get(t.Context(), "lock:a").Val(), want, "server %d has", i+1)
	}
	last := written.lines[len(written.lines)-1]
	check.True(t, last.Outcome == keyspace.Changed && len(last.Nodes) == 1, "written down: %+v", last)
}

// A waiter that blocks on a list receives the element that is left in it. When one of several holders is released, the
// others stay as after a release by the library: with the same count, and with their own deadlines.
func TestAReleaseLeavesWhatTheLibraryWould(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	const write, shorter = "q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8l9Z0x1C=", "Zx9+Yv8/Wu7Tt6Ss5Rr4Qq3Pp2Oo1Nn0Mm9Ll8Kk7Jj="
	const goes, stays = "lock_token:0f6a3d52-8b1c-4e7f-a2d9-6c5b4a392817", "lock_token:d94c1e2b-6f7a-4b3c-8d5e-1f0a9b8c7d6e"
	now := clock(t, rdb)
	partly := map[string]struct {
		goes  string        // the holder that alone is released
		lasts time.Duration // of the key
	}{"one reader of go-redislock": {goes, 5 * time.Minute}, "the last reader of symfony's": {write, 2 * time.Minute}}
	for _, c := range []struct {
		name, key string
		commands  string
		left      []string // in the format of everything
	}{
		{"one reader of go-redislock", "page:home", "HSET page:home mode read rcount 3 r:" + goes + " 1 r:" + stays + " 2; PEXPIRE page:home 300000",
			[]string{`hash "page:home" map[mode:read r:` + stays + `:2 rcount:2] never=false`}},
		{"the last reader of symfony's", "invoice:1", "ZADD invoice:1 {ms+300000} " + write + " {ms+120000} " + shorter + "; PEXPIREAT invoice:1 {ms+300000}",
			[]string{fmt.Sprintf(`zset "invoice:1" [{%v %s}] never=false`, float64(now.UnixMilli()+120_000), shorter)}},
		{"sidekiq-unique-jobs", "uniquejobs:0f6a:LOCKED",
			"SET uniquejobs:0f6a 4f2b8c6a1d4e; HSET uniquejobs:0f6a:LOCKED 4f2b8c6a1d4e {f-7000}; SET uniquejobs:0f6a:INFO {}; ZADD uniquejobs:digests 1 uniquejobs:0f6a 2 uniquejobs:other",
			[]string{`list "uniquejobs:0f6a:QUEUED" [1] never=false`, `zset "uniquejobs:digests" [{2 uniquejobs:other}] never=true`}},
		{"sidekiq-unique-jobs in a namespace", "app:uniquejobs:0f6a:LOCKED",
			"HSET app:uniquejobs:0f6a:LOCKED 4f2b8c6a1d4e {f-7000}; SET app:uniquejobs:0f6a 4f2b8c6a1d4e; ZADD app:uniquejobs:digests 1 app:uniquejobs:0f6a 2 other",
			[]string{`list "app:uniquejobs:0f6a:QUEUED" [1] never=false`, `zset "app:uniquejobs:digests" [{2 other}] never=true`}},
		{"python-redis-lock", "lock:feed", "SET lock:feed bT9zQ0hXa2p4Vm1yTn+cAb3d", []string{`list "lock-signal:feed" [1] never=false`}},
		{"walrus", "lock:crawl", "SET lock:crawl \x02\xf1walrus\x00\x9d\xa4raw\xfe32\x10bytes...012345", []string{`list "lock.event:crawl" [1] never=true`}},
		{"redis-semaphore (Ruby)", "SEMAPHORE:x:GRABBED", "HSET SEMAPHORE:x:GRABBED 1 {f-7000}; SET SEMAPHORE:x:EXISTS 2",
			[]string{`list "SEMAPHORE:x:AVAILABLE" [1] never=true`, `string "SEMAPHORE:x:EXISTS" 2 never=true`}},
		{"a writer of symfony's", "invoice:1", "ZADD invoice:1 {ms+300000} " + write + " {ms+300000} __write__; PEXPIRE invoice:1 300000", nil},
		{"redisson permits", "{gpu}:timeout", "SET gpu 1; ZADD {gpu}:timeout {ms+60000} \x00\x9dperm1\xfe\x01\x02\x03\x04\x05\x06\x07\x08",
			[]string{`string "gpu" 2 never=true`}},
		{"go-redislock fair", "{print}", "SET {print} req-1 PX 30000; ZADD {print}:queue 1 req-1 2 req-2",
			[]string{`zset "{print}:queue" [{2 req-2}] never=true`}},
		{"magento", "sess_1", "HSET sess_1 lock 3 pid shop-01|3121", []string{`hash "sess_1" map[lock:0 pid:shop-01|3121] never=true`}},
		{"mlanett", "lock:owner:report", "SET lock:owner:report web-01:4242; SET lock:expire:report {s+9000}", nil},
		{"rueidislock", "rueidislock:0:r",
			"SET rueidislock:0:r \x8f\x01\xd2rueidis\x00\x91lock\xfe24bytes PX 5000; " +
				"SET rueidislock:2:r \x8f\x01\xd2rueidis\x00\x91lock\xfe24bytes PX 5000",
			nil},
		{"valkeylock", "valkeylock:0:r",
			"SET valkeylock:0:r \x8f\x01\xd2rueidis\x00\x91lock\xfe24bytes PX 5000; " +
				"SET valkeylock:2:r \x8f\x01\xd2rueidis\x00\x91lock\xfe24bytes PX 5000",
			nil},
		{"simple-redis-mutex", "@simple-redis-mutex:lock-a",
			"SET @simple-redis-mutex:lock-a 0.8130532169470143 PX 5000; SET @simple-redis-mutex:fencing-tokens 7",
			[]string{`string "@simple-redis-mutex:fencing-tokens" 7 never=true`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := placed(t, rdb, c.key, now, commandsOf(c.commands))
			one, some := partly[c.name]
			if some {
				seen.Holders = slices.DeleteFunc(seen.Holders, func(h keyspace.Holder) bool { return h.ID != one.goes })
			}
			check.Must(releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
			got, want := everything(t, rdb), strings.Join(c.left, "\n")
			check.True(t, got == want, "it left\n%s\nwant\n%s", got, want)
			if some {
				check.AtMost(t, (rdb.PTTL(t.Context(), c.key).Val() - one.lasts).Abs(), time.Minute, "it should last for %v, and that is off by", one.lasts)
			}
		})
	}
}

func TestADeadlineForOnePermitShortensNoOther(t *testing.T) {
	for name, rdb := range clients(t) {
		t.Run(name, func(t *testing.T) {
			const endless, timed = "\x8a\x1f\xc7\x00\x9b\xe2\x13\xf4\xd0\x81\x07\xee\x5c\xb9\xa4\x21", "\x31\xa9\xfe\x12\x88\xc0\x6d\x9e\x02\xd7\x4b\xff\x95\x10\xe3\x7a"
			seen := placed(t, rdb, "{gpu}:timeout", clock(t, rdb), [][]string{
				{"SET", "gpu", "1"}, {"ZADD", "{gpu}:timeout", "9223372036854775807", endless, "{ms+7200000}", timed},
			})
			check.Must(releaser(rdb).Act(t.Context(), keyspace.Expire, seen, time.Minute))(t)
			now := only(t, rdb, "{gpu}:timeout")
			for id, want := range map[string]time.Duration{endless: time.Minute, timed: 2 * time.Hour} {
				h, _ := now.Holder(id)
				check.AtMost(t, (h.Expires.Sub(clock(t, rdb)) - want).Abs(), 5*time.Second,
					"%s should have %v left, and that is off by", id, want)
			}
		})
	}
}
