package tui

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestTheLockPageShowsWhatIsStored(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		d.size(100, 60).press("j", "enter").wait(tickInterval)
		d.wantOrder("stored as", "lock:orders:4711 · hash · TTL", "holder = 3", "lock:orders:4711:queue · list · no TTL", "waiter-11", "and 28 more elements")
		d.wantNot("waiter-12").press("p").wantNot("stored as", "holder = 3")
	})
	w := testConfig()
	w.Store = storeFunc(func(keyspace.Lock) ([]RawEntry, error) { return nil, errors.New("read keys: \x1b[31mNOPERM") })
	drive(t, w, func(d *driver) { d.size(100, 60).press("enter").wait(tickInterval).want(`read keys: \x1b[31mNOPERM`) })
}

func TestOneRawValueIsRequestedAtATime(t *testing.T) {
	w := testConfig()
	reads := 0
	w.Store = countingStore(&reads, 0)
	drive(t, w, func(d *driver) {
		d.wait(2 * time.Second)
		check.True(t, reads == 0, "%d were asked for while the table alone was shown", reads)
		d.press("enter").wait(30 * time.Second)
		check.True(t, reads >= 2 && reads <= 4, "asked %d times in 30 s, want once in 10 s", reads)
	})
}

// A read between two holds finds no key.
func TestAMissingKeyOfAHeldLockIsReadAgainSoon(t *testing.T) {
	w := testConfig()
	w.Store = countingStore(new(int), 1)
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("j", "enter").wait(tickInterval).wantOrder("stored as", "nothing: the key is gone")
		d.wait(2*tickInterval).wantOrder("stored as", "holder = 3")
	})
}

func TestTheLockPageShowsTheHoldTimes(t *testing.T) {
	v := sampleServer()
	w := testConfig()
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("/").enter("sku9").press("enter", "enter").wantNot("since start ──")
		held := v.locks
		for range 3 {
			v.locks = held[:3]
			d.wait(2 * tickInterval)
			v.locks = held
			for i := range v.locks {
				if strings.Contains(v.locks[i].Key, "sku9") {
					v.locks[i].Holders[0].Since = time.Now()
				}
			}
			d.wait(4 * tickInterval)
		}
		d.want("since start", "held", "free", "p50", "owners", "9f3c2b1a ×3")
	})
}

// fakeConnector connects to another server, and records the request.
type fakeConnector struct {
	asked []Target
	to    Config
	err   error
}

func TestTheTargetCanBeChanged(t *testing.T) {
	g := &fakeConnector{to: Config{Source: holding(mutex("other", "x", time.Minute)), Title: "redis://127.0.0.1:6379/3"}}
	w := testConfig()
	w.Connector = g
	drive(t, w, func(d *driver) {
		d.size(160, 45).press("t", ":").enter("db 3").press("enter").wait(2*tickInterval).want("1 lock ", "other", "6379/3").wantNot("nightly", "tagged")
		d.press(":").enter("match other*").press("enter").wait(tickInterval).want("other")
		check.True(t, len(g.asked) == 2 && g.asked[0] == (Target{DB: "3"}) && g.asked[1] == (Target{Match: "other*"}),
			"asked for %+v", g.asked)
		d.press(":").enter("db three").press("enter").want("a number from 0 on, or all")
		g.err = errors.New("no database 99")
		d.press(":").enter("db 99").press("enter").wait(tickInterval).want("no database 99", "other")
	})
	drive(t, testConfig(), func(d *driver) { d.press(":").enter("db 3").press("enter").want("cannot be changed") })
}

func (g *fakeConnector) Connect(_ context.Context, v Target) (Config, error) {
	g.asked = append(g.asked, v)
	return g.to, g.err
}

// countingStore counts the reads. empty is the number of the read that finds no key, from 1.
func countingStore(reads *int, empty int) Store {
	return storeFunc(func(l keyspace.Lock) ([]RawEntry, error) {
		if *reads++; *reads == empty {
			return nil, nil
		}
		return storedHash(l)
	})
}

// The screen shows the command exactly as it copies it: backslashes of a key
// are not doubled as Plain does, and the flags of the connection are included.
func TestTheCommandIsShownAsItIsCopied(t *testing.T) {
	const key, line = `App\Jobs\it's`, `redis-cli -h 10.0.0.9 -p 6380 -n 3 --tls EVAL 'return 1' 1 'App\Jobs\it'\''s' me`
	w, _ := writeConfig()
	w.RedisCLI = []string{"--tls"}
	w.Source = &fakeServer{locks: []keyspace.Lock{{
		Key: key, Format: "set-nx", Kind: keyspace.Mutex, Confidence: keyspace.Certain, Node: "10.0.0.9:6380", DB: 3,
		Expires: after(time.Minute), Holders: []keyspace.Holder{{ID: "me", Count: 1}},
	}}}
	drive(t, w, func(d *driver) {
		d.size(140, 60).wantNot("redis-cli").press("y").want(line, `App\\Jobs\\it's`).press("r")
		check.Equal(t, w.Clipboard.(*fakeClipboard).copied, line, "copied")
		d.press("x", "r").want("still believe", line).press("enter")
		d.press("enter").want("to release it safely", line)
	})
}

// The stored value has its age, and is read again soon after a renewal: the page must not show two
// different TTLs for longer than that.
func TestTheStoredValueFollowsARenewal(t *testing.T) {
	v := holding(mutex("a", "x", 14*time.Second))
	store := storeFunc(func(l keyspace.Lock) ([]RawEntry, error) {
		return []RawEntry{{l.Node, keyspace.Entry{Key: l.Key, Type: "hash", Expires: v.locks[0].Expires}}}, nil
	})
	drive(t, Config{Source: v, Store: store, Every: tickInterval}, func(d *driver) {
		d.size(100, 60).press("enter").wait(2*tickInterval).want("stored as", "read 0.", " s ago").wantNot("─ now ─ ")
		for range 8 {
			v.locks = []keyspace.Lock{mutex("a", "x", time.Since(midnight)+29*time.Second)}
			d.wait(3*tickInterval).want("hash · TTL 28.").wantLine("time left", "28.")
		}
	})
}
