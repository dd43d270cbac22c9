package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

func TestTheLineWithKeyAndTokenIsFound(t *testing.T) {
	t.Parallel()
	q := MonitorQuery{Key: "lock:a\n\"\xff", Token: "tok\\en~3f2a9c0d7b1e4f86", DB: 3}
	key, token := `"lock:a\n\"\xff"`, `"tok\\en~3f2a9c0d7b1e4f86"`
	for _, c := range []struct{ line, want string }{
		{`+1700000000.250000 [3 10.2.3.4:52312] "EVALSHA" "ab" "1" ` + key + ` ` + token + "\r\n+1700000000.250001 [3 lua] \"PEXPIRE\" " + key + ` "5000"`, "10.2.3.4:52312 evalsha"},
		{`+1700000000.250000 [3 [::1]:52312] "SET" ` + key + ` ` + token + ` "PX" "100"`, "[::1]:52312 set"},
		{`+1700000000.250000 [3 unix:/run/redis.sock] "set" ` + key + ` ` + token, "unix:/run/redis.sock set"},
		{`+1700000000.250000 [0 10.2.3.4:1] "SET" ` + key + ` ` + token, ""},
		{`+1700000000.250000 [3 lua] "SET" ` + key + ` ` + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:52312] "eval" "if redis.call("get", KEYS[1]) == ARGV[1] then\n" "1" ` + key + ` ` + token + "\r\n+1700000000.250001 [3 lua] \"PEXPIRE\" " + key + ` "5000"`, "10.2.3.4:52312 eval"}, // of Valkey 8.1
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" ` + key + ` "another"`, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" "lock:ab" ` + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" "x` + key[1:] + ` ` + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" ` + key + ` ` + token + ` "PX" "100" "nx"`, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "GET" ` + key, ""},
		{`+OK`, ""},
		{`garbage [3 x] "` + key + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:52312] "FCALL" "f" "1" ` + key + ` "0" ` + token + "\r\n+1.0 [3 lua] \"GET\" " + key + "\r\n+1.0 [3 lua] \"DEL\" " + key, "10.2.3.4:52312 fcall"},
		{`+1700000000.250000 [3 10.2.3.4:1] "EVALSHA" "ab" "1" ` + key + ` ` + token + "\r\n+1.0 [3 lua] \"GET\" " + key, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "EVALSHA" "ab" "1" ` + key + ` ` + token + "\r\n+1.0 [3 lua] \"SET\" " + key + ` ` + token + ` "NX"`, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "EVALSHA" "ab" "1" ` + key + ` ` + token + "\r\n+1.0 [3 10.2.3.5:1] \"PING\"\r\n+1.0 [3 lua] \"DEL\" " + key, ""},
	} {
		got, err := q.read(bufio.NewReaderSize(strings.NewReader("+1.0 [3 1.1.1.1:1] \"GET\" \"x\"\r\n"+c.line+"\r\n"), 4096))
		said := strings.TrimSpace(got.Addr + " " + got.Command)
		check.True(t, said == c.want, "%s: %q, %v, want %q", c.line, said, err, c.want)
		check.True(t, c.want == "" || got.At.Equal(time.UnixMilli(1_700_000_000_250)), "it was at %v", got.At)
	}
}

// endless sends lines of MONITOR that match nothing.
type endless struct{ line string }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.line), nil }

func TestMonitorReceivesNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	q := MonitorQuery{Key: "a", Token: "b"}
	for _, line := range []string{"+1.0 [0 x] \"GET\" \"" + strings.Repeat("c", 1000) + "\"\r\n", strings.Repeat("without an end", 100)} {
		counted := &counter{from: endless{line}}
		_, err := q.read(bufio.NewReaderSize(counted, 4096))
		check.True(t, err != nil && strings.Contains(err.Error(), "64 MiB"), "the error is %v", err)
		check.True(t, counted.bytes <= maxMonitorBytes+1<<20, "it received %d bytes", counted.bytes)
	}
}

type counter struct {
	from  io.Reader
	bytes int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += n
	return n, err
}

func TestMonitorEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	q := MonitorQuery{Key: "a", Token: "b", Window: 200 * time.Millisecond}
	began := time.Now()
	_, err := Monitor(t.Context(), rdb, q)
	check.True(t, errors.Is(err, ErrNotSighted) && time.Since(began) >= 200*time.Millisecond, "after %v, the error is %v", time.Since(began), err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(rdb.ClientList(ctx).Val(), "flags=O") {
			if ctx.Err() != nil {
				return
			}
		}
		cancel()
	}()
	q.Window = time.Minute
	_, err = Monitor(ctx, rdb, q)
	check.ErrorIs(t, err, context.Canceled)
	onDial := *rdb.Options()
	ctx, cancel = context.WithCancel(t.Context())
	onDial.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := rdb.Options().Dialer(ctx, network, addr)
		cancel()
		return conn, err
	}
	early := redis.NewClient(&onDial)
	defer early.Close()
	_, err = Monitor(ctx, early, q)
	check.ErrorIs(t, err, context.Canceled, "canceled between dial and AUTH")
	waitFor(t, func() bool { return !strings.Contains(rdb.ClientList(t.Context()).Val(), "flags=O") })
}

func TestMonitorSaysThatItIsRefused(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	check.NoError(t, servertest.SetUser(t.Context(), rdb, "tester", "reset", "on", ">secret", "~*", "+ping"))
	for pass, want := range map[string]string{"secret": "this user may not run MONITOR", "wrong": "AUTH: WRONGPASS"} {
		as := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, Username: "tester", Password: pass})
		_, err := Monitor(t.Context(), as, MonitorQuery{Key: "a", Token: "b", Window: time.Minute})
		check.True(t, err != nil && strings.HasPrefix(err.Error(), want), "the error is %v, want %s", err, want)
		as.Close()
	}
}

func TestOnlyACommandOfTheHolderIsAProof(t *testing.T) {
	t.Parallel()
	const random = "billing-7~0199f3a4-6f00-7000-8000-000000000001"
	for _, c := range []struct{ token, command, want string }{
		{random, `"SET" "k" "` + random + `" "PX" "100"`, ofHolder},
		{random, `"SET" "k" "` + random + `" "xx" "PX" "100"`, ofHolder},
		{random, `"SET" "k" "` + random + `" "NX" "PX" "100"`, mayHaveFail},
		{random, `"SETNX" "k" "` + random + `"`, mayHaveFail},
		{random, `"evalsha" "ab" "1" "k" "` + random + `" "100"`, changesNone},
		{random, `"EVALSHA_RO" "ab" "1" "k" "` + random + `"`, onlyReads},
		{random, `"HEXISTS" "k" "` + random + `"`, onlyReads},
		{random, `"HINCRBY" "k" "` + random + `" "1"`, ofHolder},
		{random, `"NEWCOMMAND" "k" "` + random + `"`, notKnown},
		{"1", `"SET" "k" "1"`, ofHolder},
		{"1", `"EVAL" "script" "1" "k" "100"`, changesNone},
		{"web-1", `"EVAL" "script" "1" "k" "web-1"`, changesNone},
		{"web-1", `"EVAL" "script" "1" "k" "web-10"`, "none"},
		{random, `"EVAL" "script" "1" "k" "x` + random + `"`, "none"},
		{random, `"EVAL" "return '` + random + `'" "1" "k"`, "none"},
		{random, `"EVAL" "script" "1" "other" "k" "` + random + `"`, changesNone},
		{"k", `"GET" "k"`, "none"},
		{"k", `"SET" "k" "k"`, ofHolder},
	} {
		s, ok := MonitorQuery{Key: "k", Token: c.token}.judge("+1700000000.250000 [0 10.2.3.4:1] " + c.command + "\r\n")
		got := s.Doubt
		check.True(t, (ok || c.want == "none") && (!ok || got == c.want), "%s: %v, %q, want %q", c.command, ok, got, c.want)
	}
}

// addrOf returns the address of the connection of a client.
func addrOf(t *testing.T, c *redis.Client) string {
	t.Helper()
	id, all := c.ClientID(t.Context()).Val(), keyspace.ParseClients(c.ClientList(t.Context()).Val())
	i := slices.IndexFunc(all, func(one keyspace.Client) bool { return one.ID == id })
	check.Require(t, i >= 0, "CLIENT LIST does not show the holder")
	return all[i].Addr
}

// Contenders and readers are busy, and the holder sends nothing or renews. MONITOR names no
// other client than the holder.
func TestMonitorNamesNoClientThatDoesNotHoldTheLock(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	client := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: child.Addr(), PoolSize: 1, MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		return c
	}
	renew := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	acquire := redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	random := "0199f3a4-6f00-7000-8000-00000000000"
	for i, c := range []struct {
		key, holder, contender string
		renews                 bool
	}{
		{"lock:a", random + "1", random + "2", true},
		{"lock:a", random + "1", random + "2", false},
		{"lock:lead", "web-1", "web-10", false},
		{"lock:lead", "worker-11", "worker-1", false},
		{"lock:lead", "worker-1", "worker-1", false},
		{"lock:cron", "1", "1", false},
		{"lock:cron", "1", "1", true},
		{"lock:lead", "worker-1", "worker-1", true},
		{"lock:orders:4711", "4711", "4711", false},
		{"lock:b", random + "1", "x" + random + "1", true},
		{"lock:b", "x" + random + "1", random + "1", false},
		{"lock:c", random + "1", random + "1", false}, // one that reads it, and uses it in vain
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			key := fmt.Sprint(c.key, ":", i)
			holder, contender := client(), client()
			addr := addrOf(t, holder)
			check.NoError(t, holder.Set(ctx, key, c.holder, time.Minute).Err())
			go func() {
				for ctx.Err() == nil {
					contender.SetNX(ctx, key, c.contender, time.Second)
					contender.Get(ctx, key)
					contender.PTTL(ctx, key)
					acquire.Run(ctx, contender, []string{key}, c.contender, 1000)
				}
			}()
			go func() {
				for c.renews && ctx.Err() == nil {
					renew.Run(ctx, holder, []string{key}, c.holder, 60_000)
				}
			}()
			watcher := client()
			window := 100 * time.Millisecond
			if c.renews {
				window = 30 * time.Second // it ends with the first sighting
			}
			seen, err := Monitor(ctx, watcher, MonitorQuery{Key: key, Token: c.holder, Window: window})
			switch {
			case !c.renews && !errors.Is(err, ErrNotSighted):
				t.Errorf("%+v, %v: the holder has sent nothing", seen, err)
			case c.renews && err != nil:
				t.Errorf("%v, want the holder", err)
			case c.renews && seen.Addr != addr:
				t.Errorf("%+v is not the holder", seen)
			}
		})
	}
}

func TestOnlyCommandsWithTheKeyOfALockArePassedOn(t *testing.T) {
	t.Parallel()
	m := NewLockMonitor([]string{"set", "evalsha", "del"}, 0)
	m.Add("lock:a\n\"\xff", "job")
	key := `"lock:a\n\"\xff"`
	for line, want := range map[string]string{
		`+1700000000.250000 [3 10.2.3.4:52312] "SET" ` + key + ` "tok\"en" "nx"`: "3 10.2.3.4:52312 [SET lock:a\n\"\xff tok\"en nx]",
		`+1700000000.250000 [0 [::1]:52312] "evalsha" "ab" "1" "job" "x"`:        "0 [::1]:52312 [evalsha ab 1 job x]",
		`+1700000000.250000 [0 lua] "DEL" "job"`:                                 "0  [DEL job]",
		`+1700000000.250000 [0 10.2.3.4:1] "GET" "job"`:                          "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET" "job2" "job\""`:                 "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET" "x" "y \"job\" z"`:              "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET" "x" "job`:                       "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET"`:                                "",
		`+1700000000.250000 [0 10.2.3.4:1] "job"`:                                "",
		`+OK`: "",
	} {
		got := ""
		err := m.read(bufio.NewReaderSize(strings.NewReader(line+"\r\n"), 4096), time.Now, func(c Command) error {
			got = fmt.Sprint(c.DB, " ", c.Addr, " ", c.Args)
			check.True(t, c.At.Equal(time.UnixMilli(1_700_000_000_250)), "it was at %v", c.At)
			return nil
		})
		check.True(t, got == want && err != nil,
			"%s: %q, %v, want %q", line, got, err, want) // the text ends, as if the server closed the connection
	}
}

// ticking is a text of lines of MONITOR whose clock goes on with each line.
type ticking struct {
	line  string
	lines int
	every time.Duration
	now   time.Time
}

func (r *ticking) Read(p []byte) (int, error) {
	if r.lines--; r.lines < 0 {
		return 0, io.EOF
	}
	r.now = r.now.Add(r.every)
	return copy(p, r.line), nil
}

// The limit is 100 commands per second for 5 s.
func TestABusyServerEndsMonitor(t *testing.T) {
	t.Parallel()
	for perSecond, want := range map[int]bool{90: false, 110: true} {
		m := NewLockMonitor([]string{"set"}, 100)
		text := &ticking{line: "+1.0 [0 10.2.3.4:1] \"GET\" \"x\"\r\n", lines: 20 * perSecond, every: time.Second / time.Duration(perSecond)}
		err := m.read(bufio.NewReaderSize(text, 4096), func() time.Time { return text.now }, nil)
		busy, is := errors.AsType[BusyError](err)
		check.True(t, is == want && (!is || busy.PerSecond == int64(perSecond)), "with %d commands per second the error is %v", perSecond, err)
	}
}

// A lock becomes known after its first hold has begun: the attempts before are passed on, too.
func TestTheAttemptsBeforeALockIsKnownArePassedOn(t *testing.T) {
	t.Parallel()
	m := NewLockMonitor([]string{"set"}, 0)
	var got []string
	line := func(key, token string) string {
		return fmt.Sprintf("+1.0 [0 10.2.3.4:1] \"SET\" %q %q \"NX\"\r\n", key, token)
	}
	feed := func(text string) {
		_ = m.read(bufio.NewReaderSize(strings.NewReader(text), 4096), time.Now, func(c Command) error {
			got = append(got, c.Args[1]+c.Args[2])
			return nil
		})
	}
	feed(line("a", "1") + line("b", "1") + line("a", "2"))
	m.Add("a")
	feed(line("b", "2") + line("a", "3"))
	m.Add("a", "b")
	feed(line("a", "4"))
	check.DeepEqual(t, got, []string{"a1", "a2", "a3", "b1", "b2", "a4"}, "it passes on")
	for range 40_000 {
		feed(line("c", strings.Repeat("x", 100)))
	}
	check.True(t, m.keptBytes <= maxKept && len(m.kept) >= 1000, "it keeps %d lines of %d bytes", len(m.kept), m.keptBytes)
}

func TestALockMonitorPassesOnWhatARealServerRuns(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	m := NewLockMonitor([]string{"set", "eval", "del"}, 0)
	m.Add("lock:a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := m.Run(ctx, rdb, time.Minute, func() error {
		go func() {
			for _, key := range []string{"other", "lock:a"} {
				rdb.SetNX(ctx, key, "token", time.Minute)
				rdb.Eval(ctx, "return redis.call('DEL', KEYS[1])", []string{key})
			}
		}()
		return nil
	}, func(c Command) error {
		who := "script"
		if c.Addr != "" {
			who = "client"
		}
		if got = append(got, who+" "+strings.ToLower(c.Args[0])); len(got) == 3 {
			cancel()
		}
		return nil
	})
	want := []string{"client set", "client eval", "script del"}
	check.True(t, slices.Equal(got, want) && errors.Is(err, context.Canceled), "it passes on %q, %v, want %q", got, err, want)
	check.ErrorIs(t, m.Run(t.Context(), rdb, 50*time.Millisecond, func() error { return nil }, nil), nil, "the end of the window is an error")
}
