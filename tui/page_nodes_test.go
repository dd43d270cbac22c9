package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
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
