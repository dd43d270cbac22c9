package formats_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

func TestMain(m *testing.M) {
	servertest.Tests{M: m, Parallel: 12}.Run()
}

// everyFormat is made once: a format reads the files of its scripts.
var everyFormat = formats.All()

// clients returns clients of an empty embedded server and of an empty redis-server.
func clients(t *testing.T) map[string]server.Client {
	t.Helper()
	return map[string]server.Client{
		"embedded": connect(t, servertest.EmbeddedForTest(t).Addr()),
		"real":     connect(t, servertest.RedisForTest(t).Addr()),
	}
}

func connect(t testing.TB, addr string) server.Client {
	t.Helper()
	rdb := server.NewClient(addr, server.ClientOptions{})
	t.Cleanup(func() { check.ErrorIs(t, rdb.Close(), nil) })
	return rdb
}

// load sends commands and fails the test if one returns an error.
func load(t testing.TB, rdb server.Client, commands ...[]string) {
	t.Helper()
	for _, argv := range commands {
		args := make([]any, len(argv))
		for i := range argv {
			args[i] = argv[i]
		}
		check.NoError(t, rdb.Do(t.Context(), args...).Err(), "%q", argv)
	}
}

// seed returns the commands that load the samples of all formats. Sent again, they renew
// the locks, or change the holder if the token contains the time.
func seed(now time.Time) (all [][]string) {
	for _, f := range everyFormat {
		for _, s := range formats.Samples(f.Name) {
			all = append(all, formats.At(s, now).Commands...)
		}
	}
	return all
}

// scan returns all locks that are at least likely.
func scan(t testing.TB, rdb server.Client) keyspace.Snapshot {
	t.Helper()
	return scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat})
}

func scanFor(t testing.TB, rdb server.Client, o inspect.ScanOptions) keyspace.Snapshot {
	t.Helper()
	return check.Must(inspect.NewScanner(rdb, o).Scan(t.Context()))(t)
}

// clock returns the time of the server.
func clock(t testing.TB, rdb server.Client) time.Time {
	t.Helper()
	return check.Must(rdb.Time(t.Context()).Result())(t)
}

// checkLock compares a decoded lock with the lock of a sample, of which the test has known the
// time since began.
func checkLock(t *testing.T, got, want keyspace.Lock, at, began time.Time, ttl time.Duration) {
	t.Helper()
	left, ok := got.TTL(at)
	check.True(t, ok == (ttl > 0) && ((left-ttl).Abs() <= tolerance(got)+time.Since(began) || !ok), "%s: %v left (%v), want %v", got.Key, left, ok, ttl)
	check.False(t, got.Format != "" && (len(got.Evidence) == 0 || !slices.Equal(got.Evidence[1:], want.Evidence)),
		"%s: goes by %q, want what it tells and %q", got.Key, got.Evidence, want.Evidence)
	check.True(t, bare(got) == bare(want), "%s: found\n%s, want\n%s", got.Key, bare(got), bare(want))
}

// tolerance returns how far a deadline may be off: some formats store whole seconds.
func tolerance(l keyspace.Lock) time.Duration {
	if slices.Contains([]string{"mlanett", "resque-lock-timeout", "resque-lonely-job", "cronlock", "mediawiki"}, l.Format) {
		return time.Second
	}
	return 100 * time.Millisecond
}

func TestEverySampleIsFoundAsItIs(t *testing.T) {
	t.Parallel()
	for name, rdb := range clients(t) {
		t.Run(name, func(t *testing.T) {
			for _, f := range everyFormat {
				for _, sample := range placesOf(f) {
					t.Run(f.Name+"/"+sample.Name, func(t *testing.T) {
						load(t, rdb, []string{"FLUSHALL"})
						began := time.Now()
						sample = formats.At(sample, clock(t, rdb))
						sample.Want.Format, sample.Want.NoTTL = f.Name, f.NoTTL
						sample.Want.NoExtend = f.Actions == nil || f.Actions.Extend == ""
						sample.Want.Unchecked = sample.Want.Unchecked || f.Unchecked
						load(t, rdb, sample.Commands...)
						snap := scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: sample.Want.Confidence})
						check.Require(t, len(snap.Locks) == 1, "found %d locks, want one: %v", len(snap.Locks), keys(snap))
						checkLock(t, *snap.Locks[0], sample.Want, snap.At, began, sample.TTL)
					})
				}
			}
		})
	}
}

// placesOf returns the samples of a format. If its names have a fixed beginning, each sample follows once more, with
// its keys in the namespace of an application: they are found there as well.
func placesOf(f keyspace.Format) (all []keyspace.Sample) {
	for _, s := range formats.Samples(f.Name) {
		all = append(all, s)
		if f.Prefixes == nil {
			continue
		}
		s.Name, s.Want.Key, s.Commands = s.Name+", in a namespace", "shop_prod:"+s.Want.Key, slices.Clone(s.Commands)
		s.Want.Evidence = append([]string{`it is in the namespace "shop_prod:"`}, s.Want.Evidence...)
		for i, argv := range s.Commands {
			s.Commands[i] = append([]string{argv[0], "shop_prod:" + argv[1]}, argv[2:]...)
		}
		all = append(all, s)
	}
	return all
}

func TestAllSamplesLiveInOneServer(t *testing.T) {
	for name, rdb := range clients(t) {
		t.Run(name, func(t *testing.T) {
			now := clock(t, rdb)
			load(t, rdb, seed(now)...)
			load(t, rdb, seed(now.Add(time.Second))...) // a second time, which changes nothing
			var want []string
			kinds := make(map[keyspace.Kind]bool)
			for _, f := range everyFormat {
				for _, sample := range formats.Samples(f.Name) {
					if sample.Want.Confidence == keyspace.Possible {
						continue
					}
					want = append(want, sample.Want.Key)
					kinds[sample.Want.Kind] = true
				}
			}
			slices.Sort(want)
			check.DeepEqual(t, keys(scan(t, rdb)), want, "found")
			check.True(t, len(slices.Compact(want)) >= 8 && len(kinds) >= 4,
				"%d locks of %d kinds are too few for a demo", len(want), len(kinds))
		})
	}
}

// A token is made before the wait: its time is the earliest begin of the hold. What a library stores apart is exact.
func TestTokensWithATimeGiveTheEarliestBeginOfTheHold(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	load(t, rdb, seed(clock(t, rdb))...)
	want := map[string]time.Duration{
		"orders:4712": 9 * time.Second, "orders:4713": 9 * time.Second, "{fleet}:dispatch": 9 * time.Second, "ledger:2026": 4 * time.Second,
		"rates:eur": 9 * time.Second, "rates:usd": 9 * time.Second, "gpu:0": 9 * time.Second, "{gpu}:1": 9 * time.Second, "rwlock:prices": time.Second,
		"job:nightly": 192 * time.Minute, ":1:thumbnails": 3 * time.Second, "redbeat::lock": time.Minute,
		"qo_reports.build_day-2026-11-20": 70 * time.Second, "_lockprices:eur": 800 * time.Millisecond,
		"campaign:9": 2500 * time.Millisecond, "invoice:run:lock": 5 * time.Second, "transfer:acct-1881": 4 * time.Second,
		"drupal:lock:cron": 4 * time.Second, "stocktaking:hall-2": 2 * time.Second,
		"job-lock:default:nightlyReport": 9 * time.Minute, "SEMAPHORE:encoder:GRABBED": 7 * time.Second,
		"uniquejobs:0f6a3d528b1c4e7fa2d96c5b4a392817:LOCKED": 12 * time.Second,
		"RedisLock::default": 3 * time.Second, "lock:task_384": 3 * time.Second,
		"LOCKED_RECORD_INFO_SYSTEM_CONFIG": 95 * time.Second, "set:SEARCH": 3 * time.Second,
	}
	for _, l := range scan(t, rdb).Locks {
		if l.Format == "suo" {
			continue // its time is not text
		}
		age, timed := want[l.Key]
		got := max(l.Age(clock(t, rdb)).Duration, l.Age(clock(t, rdb)).Most)
		fromToken := l.Holders != nil && (l.Format == "redis-py" || l.Format == "locktop" || l.Format == "redis-mutex-ex" || l.Format == "redlock-php")
		check.True(t, !fromToken || l.Age(clock(t, rdb)).AtLeast, "the begin of %s is that of its token", l.Key)
		check.True(t, (!timed || (got-age).Abs() <= 2*time.Second) && (timed || got == 0), "%s is held for %v, want %v", l.Key, got, age)
	}
}

func TestEachHolderHasItsOwnDeadline(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	load(t, rdb, seed(clock(t, rdb))...)
	const jobs, mine = "uniquejobs:0f6a:LOCKED", "lock:mine"
	load(t, rdb, []string{"HSET", jobs, "4f2b8c6a1d4e", "1795800000.5", "9c5d8e0f4f2b", "1795800000.5"}, []string{"HSET", mine, "web-1:11", "2"})
	wanted := map[string][]time.Duration{"rw:catalog": {11 * time.Second, 21 * time.Second, 30 * time.Second}, "rates:eur": {21 * time.Second, 25 * time.Second}, jobs: nil}
	if rdb.HPExpire(t.Context(), jobs, 40*time.Second, "4f2b8c6a1d4e").Err() == nil { // Redis 7.4 and Valkey 9
		check.NoError(t, errors.Join(rdb.HPExpire(t.Context(), jobs, 50*time.Second, "9c5d8e0f4f2b").Err(), rdb.HPExpire(t.Context(), mine, 40*time.Second, "web-1:11").Err()))
		wanted[jobs], wanted[mine] = []time.Duration{40 * time.Second, 50 * time.Second}, []time.Duration{40 * time.Second}
	}
	refused := rdb.Info(t.Context(), "errorstats").Val()
	for key, deadlines := range wanted {
		snap := scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, Match: []string{key}})
		check.Require(t, len(snap.Locks) == 1, "found %v", keys(snap))
		l := snap.Locks[0]
		for i, want := range deadlines {
			h := l.Holders[i]
			check.AtMost(t, (h.Expires.Sub(snap.At) - want).Abs(), time.Second, "%s of %s should have %v left, and that is off by", h.ID, key, want)
		}
		check.True(t, key != "rates:eur" || l.Expires.Equal(l.Holders[len(l.Holders)-1].Expires),
			"the lock ends at %v, and its last holder at %v: its key exists for longer", l.Expires, l.Holders[len(l.Holders)-1].Expires)
		_, err := keyspace.Scripts(everyFormat, keyspace.Extend, *l, time.Hour)
		check.True(t, key != mine || errors.Is(err, keyspace.ErrReleaseOnly), "an extension of %s: %v", key, err)
	}
	check.Equal(t, rdb.Info(t.Context(), "errorstats").Val(), refused, "a server without deadlines of fields was asked for them")
}

// The lease of a reader is over once its timeout is gone: it does not get the deadline of the hash, which others renew.
func TestALeaseOfAReaderEndsWithItsTimeout(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	load(t, rdb, seed(clock(t, rdb))...)
	read := func() keyspace.Snapshot {
		return scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, Match: []string{"rw:catalog"}})
	}
	before := read()
	load(t, rdb, []string{"DEL", "{rw:catalog}:" + before.Locks[0].Holders[1].ID + ":rwlock_timeout:1"})
	over := keyspace.CarryOver(before, read())
	h := over.Locks[0].Holders[1]
	check.True(t, !h.Expires.After(over.At) && over.Locks[0].Expires.After(over.At.Add(20*time.Second)), "its lease ends at %v, at %v", h.Expires, over.At)
	over = over.Shifted(-time.Minute) // the others renew the hash since
	h = over.Locks[0].Holders[1]
	later := keyspace.CarryOver(over, read()).Locks[0].Holders[1]
	check.True(t, later.Expires.Equal(h.Expires) && later.Renewed.IsZero(), "it ends at %v, then at %v, renewed at %v", h.Expires, later.Expires, later.Renewed)
}

var isSource = regexp.MustCompile(`^(git(hub|lab)\.com/[\w.-]+/[\w.-]+@[\w.-]+: [\w./-]+(, [\w./-]+)*|package locktop/.+|redis\.io/.+|common practice|source not public)$`)

// A function of a format that is not in the list is unused, which staticcheck reports.
func TestEachFormatIsListedOnce(t *testing.T) {
	listed := make(map[string]bool)
	for _, f := range everyFormat {
		check.True(t, !listed[f.Name], "%s is listed twice", f.Name)
		listed[f.Name] = true
		check.True(t, f.Library != "" && f.Source != "" && f.Signature != "" && f.Type != "" && f.Decode != nil && len(formats.Samples(f.Name)) != 0,
			"%s lacks its library, source, what tells it, type, decoder or samples", f.Name)
		for part := range strings.SplitSeq(f.Source, "; ") {
			check.True(t, isSource.MatchString(part), "the source of %s is %q; want repository@version: files", f.Name, part)
		}
	}
}

// keys returns the keys of the locks, in order.
func keys(s keyspace.Snapshot) []string {
	var all []string
	for _, l := range s.Locks {
		all = append(all, l.Key)
	}
	slices.Sort(all)
	return all
}

// bare returns a lock without its times and location as text, for comparison.
func bare(l keyspace.Lock) string {
	l.Expires, l.Stamped, l.ReadAt, l.Node, l.DB, l.Evidence = time.Time{}, false, time.Time{}, "", 0, nil
	l.Holders = slices.Clone(l.Holders)
	for i := range l.Holders {
		l.Holders[i].Since, l.Holders[i].Late, l.Holders[i].Expires = time.Time{}, 0, time.Time{}
	}
	l.Waiters = slices.Clone(l.Waiters)
	for i := range l.Waiters {
		l.Waiters[i].Since, l.Waiters[i].Expires = time.Time{}, time.Time{}
	}
	return fmt.Sprintf("%+v", l)
}

func TestFormatsSayWhetherTheyShowWaiters(t *testing.T) {
	for _, f := range everyFormat {
		shows := false
		for _, s := range formats.Samples(f.Name) {
			shows = shows || len(s.Want.Waiters) > 0 || s.Want.Waiting > 0
			check.True(t, !f.NoTTL || s.TTL <= 0 || f.Name == "python-redis-lock" || f.Type == "zset",
				"%s: a library that sets no TTL left %q with one", f.Name, s.Name)
		}
		check.True(t, !shows || f.ShowsWaiters, "%s: a sample has waiters, and the format does not say that it shows them", f.Name)
		if f.ShowsWaiters && !shows && f.Channels == nil && f.Name != "medallion-writer" { // no sample has a waiting writer
			t.Errorf("%s: no sample has waiters, and nothing is subscribed to, and the format says that it shows them", f.Name)
		}
	}
}

// These libraries delete the key of their lock whatever it contains, as their sources show. Locks whose value
// names no holder are like them.
func TestLibrariesThatUnlockWithoutACheckAreKnown(t *testing.T) {
	var names []string
	for _, f := range everyFormat {
		if f.Unchecked {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	check.DeepEqual(t, names, []string{"activejob-uniqueness", "arq", "celery-once", "celery-singleton", "django-cache", "gocraft-work", "horizon", "huey", "huey-expire", "hyperf-crontab", "jetcache", "laravel-schedule", "moodle", "ninja-mutex",
		"node-idempotency", "node-resque", "redash", "redis-lock-npm", "redis-objects", "redis-promise-lock", "resque-lock-timeout", "resque-lonely-job", "resque-loner", "rq-maintenance", "rq-scheduler", "saq",
		"seata", "simple-redis-lock", "spring-cache"}, "formats")
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for value, want := range map[string]bool{"*": true, "1": true, "locked": true, "TRUE": true, "7": false, "web-01:4242": false, "0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e": false} {
		load(t, rdb, []string{"SET", "medusa_lock:prod_1", value, "PX", "60000"})
		snap := scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})
		check.Require(t, len(snap.Locks) == 1, "%q: %d locks", value, len(snap.Locks))
		check.Equal(t, snap.Locks[0].Unchecked, want, "%q in the format %s", value, snap.Locks[0].Format)
	}
}
