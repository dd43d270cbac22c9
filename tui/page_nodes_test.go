package tui

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/loadgen"
)

// redlockConfig returns a Config with a Redlock on five servers, two of which are
// down.
func redlockConfig(w Config) Config {
	v := &fakeServer{}
	var names []string
	for i := range 5 {
		addr := fmt.Sprintf("127.0.0.1:700%d", i+1)
		names = append(names, addr)
		n := keyspace.Node{Server: keyspace.Server{Addr: addr, Role: "master", Version: "7.0.15"}, Up: true, Ping: 180 * time.Microsecond, Keys: 12, Locks: 3}
		if i == 1 || i == 4 {
			n = keyspace.Node{Server: keyspace.Server{Addr: addr}, Error: "dial tcp: connection refused"}
		}
		v.nodes = append(v.nodes, n)
	}
	lock := func(key, owner string, tokens ...string) keyspace.Lock {
		l := mutex(key, owner, 8*time.Second)
		l.Kind, l.Format, l.Node = keyspace.Redlock, "redsync", strings.Join(names, ",")
		for i, token := range tokens {
			l.Votes = append(l.Votes, keyspace.Vote{Node: names[i], Token: token, Unreachable: token == "?", Expires: l.Expires})
			if token == "?" {
				l.Votes[i].Token = ""
			}
		}
		return l
	}
	v.locks = []keyspace.Lock{
		lock("redlock:invoices", "9f3c", "9f3c", "?", "9f3c", "9f3c", "?"),
		lock("redlock:orphan", "77aa", "77aa", "?", "", "", "?"),
		lock("redlock:split", "1111", "1111", "?", "2222", "", "?"),
	}
	w.Source, w.Quorum = v, names
	return w
}

func TestAVoteOfEachServerIsShown(t *testing.T) {
	drive(t, redlockConfig(testConfig()), func(d *driver) {
		d.press("4").want("5 nodes", "2 down", "connection refused", "a majority is 3")
		for key, want := range map[string][]string{
			"redlock:invoices": {"A", "✗", "A", "A", "✗", "3/5", "✓"},
			"redlock:orphan":   {"B", "✗", "·", "·", "✗", "1/5", "◐"},
			"redlock:split":    {"C", "✗", "D", "·", "✗", "1/5", "◐"},
		} {
			got := strings.Fields(d.line(key))
			check.True(t, strings.Join(got[1:8], " ") == strings.Join(want, " "), "%s: %q, want %q", key, got, want)
		}
	})
}

func TestNodesOfTheDemoCanBeTakenDown(t *testing.T) {
	w, g := played()
	drive(t, w, func(d *driver) {
		d.press("4", "j", "j", "d").want("fault injected: node-down").press("e").want("fault injected: node-restart-empty")
		check.Require(t, len(g.injected) == 2, "struck: %+v", g.injected)
		down, empty := g.injected[0], g.injected[1]
		check.True(t, down.Kind == loadgen.NodeDown && down.Node == 3 && empty.Kind == loadgen.RestartEmpty, "struck: %+v", g.injected)
	})
}

func TestNodesOfALostConnectionAreNotUp(t *testing.T) {
	v := sampleServer()
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("4").want("● up")
		v.err = errors.New("connection refused")
		d.wait(4*time.Second).want("connection lost", "127.0.0.1:6379  ", "✗ lost  ").wantNot("● up")
		v.err = nil
		d.wait(retryAfter + tickInterval).want("● up")
	})
}

// A server that does not say its role and version, as an embedded one, has no such columns.
func TestUnknownRolesHaveNoColumn(t *testing.T) {
	v := sampleServer()
	v.nodes = []keyspace.Node{{Server: keyspace.Server{Addr: "127.0.0.1:6379"}, Up: true, Ping: 20 * time.Microsecond, Keys: 54, Locks: 8}}
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("4").want("STATE", "<0.1 ms").wantNot("ROLE", "VERSION")
		v.nodes[0].Role = "master"
		d.wait(2*time.Second).want("ROLE", "master")
	})
}

// What this user may not read is on the page of the servers, and the page of the locks points to it.
func TestTheScreenSaysWhatItDoesNotSee(t *testing.T) {
	v := sampleServer()
	drive(t, Config{Source: v}, func(d *driver) {
		d.wantNot("not all is seen").press("4").wantNot("what locktop does not see").press("1")
		v.unseen = []string{"this user may not run HGETALL"}
		d.wait(2*time.Second).want("not all is seen (4)").press("4").want("what locktop does not see", "may not run HGETALL")
		d.press("p").wantNot("HGETALL")
	})
}
