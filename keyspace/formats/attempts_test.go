package formats_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// An attempt is a command that a client sends, as words with a blank between them, the key of
// the lock and the token.
type attempt struct{ command, key, token string }

// sent lists what libraries send when they try to acquire a lock, by format. Those of redsync,
// redislock, rueidislock, redis-py, redlock, redis-semaphore and of package lock were copied from
// MONITOR; the others are from the sources of the libraries.
var sent = map[string][]attempt{
	"locktop": {
		{"evalsha 6268ce 1 load:a client-1~01a20e37-d12f-7743-b2a6-c9e1c60bb87b 5000", "load:a", "client-1~01a20e37-d12f-7743-b2a6-c9e1c60bb87b"},
		{"set load:a client-1~01a20e37-d1c8-7506-bd35-be98deb1d25b nx px 5000", "load:a", "client-1~01a20e37-d1c8-7506-bd35-be98deb1d25b"},
		{"evalsha 6268ce 1 load:a client-2~01a20e37-d131-74b5-bc45-bf929834dbb8 5000 1 load:{a}:free vm:15320~75f3f53624bf 1 c", "load:a", "client-2~01a20e37-d131-74b5-bc45-bf929834dbb8"},
		{"evalsha a243d9 3 load:a {load:a}:queue {load:a}:alive {load:a}:free 1000 1 client-1~01a20e37-f47b-79df-8fde-7089c460936d 5000 0 vm:15440~7089c460936d", "load:a", "client-1~01a20e37-f47b-79df-8fde-7089c460936d"},
		{"evalsha 51c3d9 1 load:a client-1~01a20e37-f47b-79df-8fde-7089c460936d 5000 {load:a}:free 1 - ", "load:a", "client-1~01a20e37-f47b-79df-8fde-7089c460936d"},
	},
	"locktop-reentrant": {{"evalsha 64d22b 1 load:a client-1~01a20e37-dcf5-7916-be9e-81129f27068f 5000 1", "load:a", "client-1~01a20e37-dcf5-7916-be9e-81129f27068f"}},
	"locktop-rw":        {{"evalsha 536e6e 1 load:a w client-1~01a20e37-e8b3-7736-b89d-325473879bb2 5000 1 client-1~76a51ad10e08 750 {load:a}:free vm:1~76a51ad10e08 1", "load:a", "client-1~01a20e37-e8b3-7736-b89d-325473879bb2"}},
	"locktop-semaphore": {{"evalsha a3ac9b 1 load:a client-3~01a20e38-0040-72ef-bda0-d6cbc4014bb0 5000 2 {load:a}:limit", "load:a", "client-3~01a20e38-0040-72ef-bda0-d6cbc4014bb0"}},
	"redsync":           {{"set load:a kFdoYH0xKruSNwCHu3t97w== ex 5 nx", "load:a", "kFdoYH0xKruSNwCHu3t97w=="}},
	"redislock":         {{"evalsha 80a1b5 1 load:a TE6ccP0c-qqCCEvqLmjPJA 22 5000", "load:a", "TE6ccP0c-qqCCEvqLmjPJA"}, {"SET load:a worker-3 NX PX 5000", "load:a", "worker-3"}, {"eval x 1 load:a hmJKBqn2+RZWqvlXzOoj01 5000", "load:a", "hmJKBqn2+RZWqvlXzOoj01"}}, // the others are of dineshgowda24/redislock and @redis-kit/lock
	"redis-py":          {{"SET load:a 6bfcad0ae81d11f1875b02fc00000001 PX 5000 NX", "load:a", "6bfcad0ae81d11f1875b02fc00000001"}},
	"rueidislock":       {{"EVAL script 1 rueidislock:0:a \xdf?\x9b\xb5:.y\xfdg\xfb\xb2\x0b\xfe\xd2\x06\xab\xed\b\xd5\x00_\xd0NG 1795534837691", "rueidislock:0:a", "\xdf?\x9b\xb5:.y\xfdg\xfb\xb2\x0b\xfe\xd2\x06\xab\xed\b\xd5\x00_\xd0NG"}},
	"lynx":              {{"EVALSHA 3c1a 3 {lynx:lock:a}:owner {lynx:lock:a}:count {lynx:lock:a}:token vm-10.0.0.7-4242-1-" + hex32 + " 10000 604800000", "{lynx:lock:a}:owner", "vm-10.0.0.7-4242-1-" + hex32}},
	"set-nx": {
		{"SET load:a b369994d-b49e-4000-9c25-09d6a547c345 PX 5000 NX", "load:a", "b369994d-b49e-4000-9c25-09d6a547c345"},
		{"SET lock:a 14806 NX PX 5000", "lock:a", "14806"},
		{"SETNX lock:a web-1:4711", "lock:a", "web-1:4711"},
		{"EVALSHA 6f1c 1 lock:a b369994d-b49e-4000-9c25-09d6a547c345 5000", "lock:a", "b369994d-b49e-4000-9c25-09d6a547c345"},
	},
	"go-zero":               {{"EVALSHA 5f0c 1 lock:a x9KfQ2mB7tZrW4Lp 5500", "lock:a", "x9KfQ2mB7tZrW4Lp"}},
	"redisson":              {{"EVALSHA 7782 1 orders:1 5000 a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1", "orders:1", "a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1"}, {"EVAL script 3 orders:1 redisson_lock_queue:{orders:1} redisson_lock_timeout:{orders:1} 30000 a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1 300000 1795534837691", "orders:1", "a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1"}},
	"redisson-rw":           {{"EVALSHA 1f0c 2 rw:a {rw:a}:a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1:rwlock_timeout 30000 a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1 a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1:write", "rw:a", "a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1"}, {"EVALSHA 2f0c 1 rw:a 30000 a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1:write", "rw:a", "a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1:write"}},
	"symfony":               {{"evalsha 9c1d 1 invoice:1 1795534837.6912 q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8l9Z0x1C= 300000", "invoice:1", "q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8l9Z0x1C="}},
	"huey":                  {{"HSETNX huey.results.shop shop.lock.reindex 1", "huey.results.shop", "shop.lock.reindex"}},
	"getset":                {{"SETNX lock:ledger 1795534837", "lock:ledger", "1795534837"}, {"GETSET lock:ledger 1795534837", "lock:ledger", "1795534837"}},
	"go-redislock-rw":       {{"evalsha 8d1c 1 page:home lock_token:" + uuidA + " 30000", "page:home", "lock_token:" + uuidA}},
	"redisson-queue":        {{"EVALSHA 7782 3 printer:attic redisson_lock_queue:{printer:attic} redisson_lock_timeout:{printer:attic} 30000 a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1 300000 1795534837691", "printer:attic", "a8c0d125-75a0-45e0-95c2-ef02f74af9ce:1"}},
	"node-redlock":          {{"evalsha 4a1c 2 lock:a lock:b 9f86d081884c7d659a2feaa0c55ad015 10000", "lock:b", "9f86d081884c7d659a2feaa0c55ad015"}, {"evalsha 4a1c 1 lock:b 0 547fadae36418ea663bf9bcbeade56da 10000", "lock:b", "547fadae36418ea663bf9bcbeade56da"}},
	"redis-semaphore-mutex": {{"set mutex:a " + uuidA + " PX 10000 NX", "mutex:a", uuidA}},
	"redis-semaphore":       {{"evalsha 5a1c 1 semaphore:a 3 " + uuidA + " 10000 1795534837691", "semaphore:a", uuidA}},
}

const uuidA = "0f6a3d52-8b1c-4e7f-a2d9-6c5b4a392817"

// without lists the formats for which MONITOR shows no attempts, with the reason.
var without = map[string]string{
	"redisson-multi": "one hash for many locks", "redisson-permits": "a permit has no owner", "redisson-count": "a count has no owner",
	"go-redislock": "KEYS has the name without its braces", "go-redislock-fair": "KEYS has the name without its braces",
	"medallion-writer": "several scripts", "medallion-readers": "several scripts", "medallion-semaphore": "several scripts",
	"magento": "HINCRBY counts the attempts", "suo": "WATCH and MULTI", "redis-semaphore-rb": "BLPOP, without a token",
	"sidekiq-unique-jobs": "the digest is the key", "redfour": "the server makes the token", "dramatiq": "a count has no owner", "oversized": "it is no lock",
	"read-write-keys": "INCR", "stamp-rw": "any command", "hash-rw": "any command", "hash-reentrant": "any command",
	"magento-cache": "HMSET in any case", "seata": "a script of its own", "juicefs": "WATCH and MULTI", "advanced-semaphores": "several scripts",
	"sidekiq-throttled": "nobody waits", "marqo": "nobody waits", "gocraft-work-jobs": "a script for all jobs",
	"tasktiger": "nobody waits", "bottleneck": "several scripts", "mediawiki": "a script for all paths",
	"custom-hash": "any command", "custom-zset": "any command", "custom-set": "any command",
}

func TestEachFormatKnowsTheAttemptsOfItsLibrary(t *testing.T) {
	t.Parallel()
	for _, f := range everyFormat {
		if why, none := without[f.Name]; none != (f.Attempts == nil) {
			t.Errorf("%s has %d shapes of attempts, and the reason %q", f.Name, len(f.Attempts), why)
			continue
		}
		if f.Attempts == nil {
			continue
		}
		all := sent[f.Name]
		if all == nil { // SET NX of the sample
			s := formats.At(formats.Samples(f.Name)[0], time.UnixMilli(1_795_534_837_691))
			args := append(slices.Clone(s.Commands[0]), "NX")
			token, ok := f.Attempt(args, args[1])
			check.True(t, ok && token == args[2], "%s: %q is an attempt: %v, with the token %q", f.Name, args, ok, token)
			_, ok = f.Attempt(s.Commands[0], args[1])
			check.False(t, ok, "%s: %q sets the key in any case", f.Name, s.Commands[0])
			continue
		}
		for _, a := range all {
			args := strings.Split(a.command, " ")
			token, ok := f.Attempt(args, a.key)
			check.True(t, ok && token == a.token, "%s: %q is an attempt: %v, with the token %q", f.Name, args, ok, token)
			_, ok = f.Attempt(args, a.key+"x")
			check.False(t, ok, "%s: %q is an attempt at another lock", f.Name, args)
		}
	}
}

// Releases, renewals and reads are no attempts.
func TestOtherCommandsAreNoAttempts(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string][]string{
		"locktop": {
			"evalsha a7851f 1 load:a client-1~01a20e37-d12f-7743-b2a6-c9e1c60bb87b {load:a}:free vm:15320~5414cf6580bd",
			"evalsha 1632a8 3 load:a {load:a}:queue {load:a}:alive {load:a}:free 1000 1 client-1~01a20e37-f47b-79df-8fde-7089c460936d 7089c460936d 5000",
			"evalsha 1632a8 1 load:a client-1~01a20e37-f47b-79df-8fde-7089c460936d {load:a}:free vm:1~7089c460936d 1  5000",
			"get load:a", "pttl load:a", "del load:a",
		},
		"locktop-reentrant": {"evalsha 56c467 1 load:a client-1~01a20e37-dcf5-7916-be9e-81129f27068f 0 {load:a}:free vm:15385~7af3b357f200"},
		"locktop-rw":        {"evalsha fc031c 1 load:a w client-1~01a20e37-e8b3-7736-b89d-325473879bb2 0 {load:a}:open {load:a}:free vm:1~76a51ad10e08"},
		"locktop-semaphore": {"evalsha aec697 1 load:a client-2~01a20e38-003e-7880-bfe0-003529967b2a 2 {load:a}:free vm:15457~5daabe5f32dd"},
		"redsync":           {"evalsha e95083 1 load:a kFdoYH0xKruSNwCHu3t97w==", "set load:a kFdoYH0xKruSNwCHu3t97w== ex 5 xx"},
		"redislock":         {"evalsha 1f 1 load:a TE6ccP0c-qqCCEvqLmjPJA"},
		"lynx":              {"evalsha 4d 2 load:a load:b vm-10.0.0.7-4242-1-" + hex32 + " 0", "evalsha 5e 2 load:a load:b vm-10.0.0.7-4242-1-" + hex32 + " 10000"},
		"set-nx":            {"SET load:a nx", "SET", "EVAL", "EVAL x", "EVAL x 99 load:a b369994d-b49e-4000-9c25-09d6a547c345 5000", "EVAL x -1 load:a", "SET load:a b369994d-b49e-4000-9c25-09d6a547c345 PX 5000 XX"},
	} {
		f := format(t, name)
		for _, c := range commands {
			token, ok := f.Attempt(strings.Split(c, " "), "load:a")
			check.True(t, !ok, "%s: %s is an attempt with the token %q", name, c, token)
		}
	}
}

func format(t *testing.T, name string) keyspace.Format {
	t.Helper()
	all := everyFormat
	i := slices.IndexFunc(all, func(f keyspace.Format) bool { return f.Name == name })
	check.Require(t, i >= 0, "there is no format %s", name)
	return all[i]
}
