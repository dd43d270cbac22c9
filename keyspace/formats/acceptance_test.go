package formats_test

import (
	"slices"
	"testing"
	"time"

	"locktop/keyspace"
	"locktop/server"
)

const (
	client = "3ac1b6a2-93a5-4f0f-8f2e-0d6a4f1c2b33"
	other  = "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77"
)

// acceptance is five locks as somebody writes them by hand.
var acceptance = [][]string{
	{"SET", "lock:a", "5d2e9a14-7c3b-4f6a-9e81-0b2c4d6e8f10", "PX", "60000"},
	{"HSET", "lock:b", "holder-7", "2"},
	{"PEXPIRE", "lock:b", "45000"},
	{"HSET", "orders:42", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "3"},
	{"PEXPIRE", "orders:42", "30000"},
	{"HSET", "catalog", "mode", "read", client + ":1", "1", client + ":2", "2", other + ":1", "1"},
	{"PEXPIRE", "catalog", "20000"},
	{"SET", "lock:nightly", "0c9d1e7a-4f2b-4c8d-8a6e-1f3b5d7f9a20"},
}

func TestLocksWrittenByHandAreNamed(t *testing.T) {
	rdb := connect(t, server.ForTest(t).Addr())
	load(t, rdb, acceptance...)
	snap := scan(t, rdb)
	want := []struct {
		lock keyspace.Lock
		ttl  time.Duration
	}{
		{keyspace.Lock{
			Key: "catalog", Format: "redisson-rw", Confidence: keyspace.Certain, Kind: keyspace.RW,
			Holders: []keyspace.Holder{
				{ID: client + ":1", Count: 1, Mode: keyspace.Read},
				{ID: client + ":2", Count: 2, Mode: keyspace.Read},
				{ID: other + ":1", Count: 1, Mode: keyspace.Read},
			},
		}, 20 * time.Second},
		{keyspace.Lock{
			Key: "lock:a", Format: "set-nx", Confidence: keyspace.Likely, Kind: keyspace.Mutex,
			Holders: []keyspace.Holder{{ID: "5d2e9a14-7c3b-4f6a-9e81-0b2c4d6e8f10", Count: 1}},
		}, 60 * time.Second},
		{keyspace.Lock{
			Key: "lock:b", Format: "hash-reentrant", Confidence: keyspace.Likely, Kind: keyspace.Reentrant,
			Holders: []keyspace.Holder{{ID: "holder-7", Count: 2}},
		}, 45 * time.Second},
		{keyspace.Lock{
			Key: "lock:nightly", Format: "set-nx", Confidence: keyspace.Likely, Kind: keyspace.Mutex,
			Holders: []keyspace.Holder{{ID: "0c9d1e7a-4f2b-4c8d-8a6e-1f3b5d7f9a20", Count: 1}},
		}, 0},
		{keyspace.Lock{
			Key: "orders:42", Format: "redisson", Confidence: keyspace.Certain, Kind: keyspace.Reentrant,
			Holders: []keyspace.Holder{{ID: "8743c9c0-0795-4907-87fd-6c719a6b4586:52", Count: 3}},
		}, 30 * time.Second},
	}
	if len(snap.Locks) != len(want) {
		t.Fatalf("found %q", keys(snap))
	}
	for i, w := range want {
		check(t, snap.Locks[i], w.lock, snap.At, w.ttl)
	}
	var states []keyspace.State
	for _, l := range snap.Locks {
		states = append(states, l.State())
	}
	if !slices.Equal(states, []keyspace.State{keyspace.Reading, keyspace.Held, keyspace.Held, keyspace.Stuck, keyspace.Held}) {
		t.Errorf("their states are %v", states)
	}
	findings := keyspace.Findings(snap)
	if len(findings) != 1 || findings[0].ID != "never-expires" || findings[0].Lock.Key != "lock:nightly" {
		t.Errorf("found %+v", findings)
	}
}

func TestHostileKeysAndValuesSurviveVerbatim(t *testing.T) {
	rdb := connect(t, server.ForTest(t).Addr())
	const (
		key   = "lock:\x1b[2J\x1b]0;x\x07"
		value = "\x00\xff\x1b[31m\x9b\xe2\x80\xae\r\n~~~"
	)
	load(t, rdb, []string{"SET", key, value}, []string{"HSET", "lock:\xff\x00", "\x1b]52;c;\x07", "2"})
	snap := scan(t, rdb)
	if len(snap.Locks) != 2 {
		t.Fatalf("found %q", keys(snap))
	}
	if l := snap.Locks[0]; l.Key != key || l.Holders[0].ID != value || l.Kind != keyspace.Unknown {
		t.Errorf("found %+v", l)
	}
	if l := snap.Locks[1]; l.Key != "lock:\xff\x00" || l.Holders[0].ID != "\x1b]52;c;\x07" || l.Count() != 2 {
		t.Errorf("found %+v", l)
	}
}

// What is stored by sessions, caches, queues, limiters and the like.
func TestNothingElseIsTakenForALock(t *testing.T) {
	rdb := connect(t, server.ForTest(t).Addr())
	load(t, rdb, innocent...)
	for _, l := range scan(t, rdb).Locks {
		t.Errorf("%q is taken for a lock of %s", l.Key, l.Format)
	}
}

const (
	someUUID = "3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d"
	hex32    = "9f86d081884c7d659a2feaa0c55ad015"
	hex64    = hex32 + hex32
	alnum20  = "aB3dE6gH9jK2mN5pQ8sT"
	jid      = "4f2b8c6a1d4e9a7b9c5d8e0f"
	base16   = "qL3xN0b2Zf8dYw5tKcVj6Q=="
)

var innocent = [][]string{
	// sessions
	{"SET", "session:" + someUUID, `{"uid":42}`, "EX", "1800"},
	{"SET", "session:pointer:7", someUUID, "EX", "1800"},
	{"SET", "sess:" + alnum20 + "xyz", `{"cookie":{"originalMaxAge":null},"passport":{"user":7}}`, "EX", "86400"},
	{"SET", "PHPREDIS_SESSION:abc123sess", "user|i:42;", "EX", "1440"},
	{"SET", ":1:django.contrib.sessions.cache" + hex32, "\x80\x04\x95\x10\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.", "EX", "1209600"},
	{"HSET", "sess_9a1b", "data", "x", "lock", "0", "writes", "3"},
	{"HSET", "spring:session:sessions:" + someUUID, "creationTime", "1763651000000", "lastAccessedTime", "1763651000000"},
	{"SET", "spring:session:sessions:expires:" + someUUID, "", "EX", "1800"},
	// tokens and secrets
	{"SET", "csrf:" + someUUID, base16, "EX", "1800"},
	{"SET", "xsrf-token:42", hex32, "EX", "3600"},
	{"SET", "refresh_token:42", someUUID, "EX", "1209600"},
	{"SET", "oauth:state:" + alnum20, "Zk3_vN0b2Qf8dYw5tKcV-A", "EX", "600"},
	{"SET", "password_reset:42", alnum20, "EX", "900"},
	{"SET", "otp:42", "482913", "EX", "300"},
	{"SET", "apikey:partner", hex64},
	{"SET", "nonce:42", base16, "EX", "60"},
	{"SET", "user:42:id", someUUID},
	{"SET", "device:42", someUUID, "EX", "86400"},
	{"SET", "page:home:etag", base16, "EX", "600"},
	{"SET", "shortlink:promo", "aB3dE6gH", "EX", "86400"},
	// counters and limits
	{"SET", "ratelimit:10.0.0.1", "7", "EX", "60"},
	{"SET", "rate:user:42", "1763651003.25", "EX", "10"},
	{"SET", "login_attempts:bob", "3", "EX", "900"},
	{"SET", "feature:flag", "1"},
	{"SET", "maintenance", "true"},
	{"SET", "stat:processed", "10231"},
	{"SET", "visits:2026-11-20", "311", "EX", "157680000"},
	{"SET", "last_seen:42", "1763651003123", "EX", "86400"},
	{"HSET", "stats:2026-11-20", "page:/home", "17", "page:/about", "3"},
	{"HSET", "cart:42", "sku-9", "2"},
	{"HSET", "votes:poll-3", someUUID, "1"},
	{"HSET", "inventory", "sku-9", "40", "sku-10", "2"},
	{"ZADD", "throttle:10.0.0.1", "1763651003123", someUUID},
	// things called almost like locks
	{"SET", "clock:offset", "12"},
	{"SET", "blocked:user:42", "1", "EX", "3600"},
	{"SET", "blocklist:version", someUUID},
	{"SET", "flock:geese", "17"},
	{"SET", "deadlocks:seen", "3"},
	{"HSET", "blocks:btc", "height", "870000"},
	// caches and objects
	{"SET", "cache:user:42", someUUID, "EX", "300"},
	{"SET", "cache:fragment:" + hex32, hex32, "EX", "300"},
	{"SET", "user:42:name", "Zoe", "EX", "300"},
	{"SET", "greeting", "hello~world", "EX", "300"},
	{"SET", "path:of:home", "/var/www/~deploy", "EX", "300"},
	{"SET", "host:db", "db-01:5432"},
	{"HSET", "user:42", "name", "Zoe", "mode", "read"},
	{"HSET", "file:7", "mode", "write"},
	{"HSET", "file:8", "mode", "read", "owner", "8743c9c0-0795-4907-87fd-6c719a6b4586:52"},
	{"HSET", "members:room-7", someUUID, "online"},
	// queues
	{"SET", "bull:mail:stalled-check", "1763651003123", "PX", "30000"},
	{"SET", "celery-task-meta-" + someUUID, `{"status": "SUCCESS", "result": 3}`, "EX", "86400"},
	{"SADD", "_kombu.binding.celery", "celery\x06\x16\x06\x16celery"},
	{"HSET", "web-01:812:" + jid, "info", `{"hostname":"web-01"}`, "busy", "2", "beat", "1763651003.1"},
	{"LPUSH", "queue:default", `{"class":"W","jid":"` + jid + `"}`},
	{"ZADD", "delayed_jobs", "1763651033000", someUUID},
	{"ZADD", "schedule", "1763651063.2", `{"class":"W"}`},
	{"SET", "rq:clean_registries:default", "1", "EX", "899"},
}
