package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/keyspace"
)

func TestOnlyACommandOfTheHolderIsAProof(t *testing.T) {
	t.Parallel()
	const random = "billing-7~0199f3a4-6f00-7000-8000-000000000001"
	for _, c := range []struct{ token, command, want string }{
		{random, `"SET" "k" "` + random + `" "PX" "100"`, ofHolder},
		{random, `"SET" "k" "` + random + `" "xx" "PX" "100"`, ofHolder},
		{random, `"SET" "k" "` + random + `" "NX" "PX" "100"`, mayHaveFail},
		{random, `"SETNX" "k" "` + random + `"`, mayHaveFail},
		{random, `"evalsha" "ab" "1" "k" "` + random + `" "100"`, ofHolder},
		{random, `"EVALSHA_RO" "ab" "1" "k" "` + random + `"`, onlyReads},
		{random, `"HEXISTS" "k" "` + random + `"`, onlyReads},
		{random, `"HINCRBY" "k" "` + random + `" "1"`, ofHolder},
		{random, `"NEWCOMMAND" "k" "` + random + `"`, notKnown},
		{"1", `"SET" "k" "1"`, sharedValue},
		{"1", `"EVAL" "script" "1" "k" "100"`, sharedValue},
		{"web-1", `"EVAL" "script" "1" "k" "web-1"`, sharedValue},
		{"web-1", `"EVAL" "script" "1" "k" "web-10"`, "none"},
		{random, `"EVAL" "script" "1" "k" "x` + random + `"`, "none"},
		{random, `"EVAL" "return '` + random + `'" "1" "k"`, "none"},
		{random, `"EVAL" "script" "1" "other" "k" "` + random + `"`, ofHolder},
		{"k", `"GET" "k"`, "none"},
		{"k", `"SET" "k" "k"`, sharedValue},
	} {
		s, ok := MonitorQuery{Key: "k", Tokens: []string{c.token}}.judge("+1700000000.250000 [0 10.2.3.4:1] " + c.command + "\r\n")
		got := s.Doubt
		check.True(t, (ok || c.want == "none") && (!ok || got == c.want), "%s: %v, %q, want %q", c.command, ok, got, c.want)
	}
}

func TestTokensOfLibrariesLookRandomAndNamesDoNot(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]bool{
		"0199f3a4-6f00-7000-8000-000000000001":   true,
		"6ba7b810-9dad-41d1-80b4-00c04fd430c8:1": true, // Redisson
		"7c9e6679f3b14f0d9d1a2c3b4e5f6071":       true, // redis-py, node-redlock
		"q3Jx0ZtW8yYbB1nS6mPZ2g==":               true, // redsync
		"Xy7pQ2mN9bV4kL1z":                       true, // go-zero
		"1":                                      false, "locked": false, "web-1": false, "worker-1": false, "invoice-worker-3": false,
		"billing-worker-host-01": false, "billingworkerhost01": false, "ip-10-0-113-24.eu-west-1.compute.internal": false,
		"2026-11-23T10:15:30.123Z": false, "1700000000123": false, "host-1:12345": false, "aaaaaaaaaaaaaaaaaaaaaaaa": false,
	} {
		check.Equal(t, keyspace.LooksRandom(token), want, "%q looks random", token)
	}
}

// addrOf returns the address of the connection of a client.
func addrOf(t *testing.T, c *redis.Client) string {
	t.Helper()
	id := c.ClientID(t.Context()).Val()
	for line := range strings.Lines(c.ClientList(t.Context()).Val()) {
		if addr, found := strings.CutPrefix(line, fmt.Sprintf("id=%d addr=", id)); found {
			addr, _, _ = strings.Cut(addr, " ")
			return addr
		}
	}
	t.Fatal("CLIENT LIST does not show the holder")
	return ""
}

// Contenders and readers are busy, and the holder sends nothing or renews. MONITOR names no
// other client than the holder.
func TestMonitorNamesNoClientThatDoesNotHoldTheLock(t *testing.T) {
	t.Parallel()
	child := server.ForTest(t)
	client := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: child.Addr(), PoolSize: 1, MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		return c
	}
	renew := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	acquire := redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	random := "0199f3a4-6f00-7000-8000-00000000000"
	rounds := 1
	if os.Getenv("LOCKTOP_PROOF") != "" {
		rounds = 20
	}
	for round := range rounds {
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
			{"lock:orders:4711", "4711", "4711", false},
			{"lock:b", random + "1", "x" + random + "1", true},
			{"lock:b", "x" + random + "1", random + "1", false},
			{"lock:c", random + "1", random + "1", false}, // one that reads it, and uses it in vain
		} {
			t.Run(fmt.Sprint(round, "/", i), func(t *testing.T) {
				t.Parallel()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				key := fmt.Sprint(c.key, ":", round, ":", i)
				holder, contender := client(), client()
				addr := addrOf(t, holder)
				check.NoError(t, holder.Set(ctx, key, c.holder, time.Minute).Err())
				go func() {
					for ctx.Err() == nil {
						contender.SetNX(ctx, key, c.contender, time.Second)
						contender.Get(ctx, key)
						contender.PTTL(ctx, key)
						if c.contender != c.holder || !keyspace.LooksRandom(c.contender) { // scripts with a token that looks random belong to its holder
							acquire.Run(ctx, contender, []string{key}, c.contender, 1000)
						}
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
				seen, err := Monitor(ctx, watcher, MonitorQuery{Key: key, Tokens: []string{c.holder}, Window: window})
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
}
