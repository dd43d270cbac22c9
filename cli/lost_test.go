package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// manyKeys sets so many keys on a server, if they are in its slots. A scan with
// a budget of 1% takes some seconds for them.
func manyKeys(t *testing.T, addr string) {
	t.Helper()
	const most = 60_000
	rdb := clientTo(t, addr)
	p := rdb.Pipeline()
	for i := range most {
		p.Set(t.Context(), fmt.Sprint("ordinary:", i), "value", time.Hour)
	}
	_, _ = p.Exec(t.Context()) // other nodes have the rest
	n := rdb.DBSize(t.Context()).Val()
	check.Require(t, n >= most/5, "there are only %d keys", n)
}

func TestAServerThatDiesUnderALookMakesItIncomplete(t *testing.T) {
	testtier.Long(t, "every command loses its server")
	t.Parallel()
	type rig struct {
		flags  []string
		victim *server.Child
	}
	for name, build := range map[string]func(*testing.T) rig{
		"server": func(t *testing.T) rig {
			s := server.ForTest(t)
			return rig{[]string{"-u", "redis://" + s.Addr()}, s}
		},
		"cluster": func(t *testing.T) rig {
			c := server.ClusterForTest(t, server.ClusterOptions{NodeTimeout: time.Minute})
			return rig{[]string{"--cluster", "-u", "redis://" + c.Addrs()[0]}, c.Nodes()[1]}
		},
		"sentinel": func(t *testing.T) rig {
			w := server.SentinelGroupForTest(t, server.SentinelOptions{})
			return rig{sentinelFlags(w), w.Master()}
		},
		"redlock": func(t *testing.T) rig {
			n := server.IndependentForTest(t, 3)
			return rig{redlockFlags(n), n.Nodes()[1]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := build(t)
			manyKeys(t, r.victim.Addr())
			l := start(t, slices.Concat([]string{"list", "--json", "--progress", "--budget", "1%", "--timeout", timeoutOfTrouble.String()}, r.flags)...)
			l.errors.sees(t, `"note":"[1-9].* to go`)
			check.NoError(t, r.victim.Kill())
			began := time.Now()
			var got int
			select {
			case got = <-l.code:
			case <-time.After(patience):
				t.Fatal("it goes on and on")
			}
			if took := time.Since(began); testtier.Proving() && took > 3*timeoutOfTrouble && name != "redlock" && name != "cluster" { // these scan their other nodes first
				t.Errorf("it took %v to say so", took)
			}
			said := l.errors.String()
			last := said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]
			check.True(t, got != exitFine && strings.Contains(last, r.victim.Addr()) && strings.Contains(last, `"error":`),
				"exit code %d: %s", got, last)
			var doc render.Document
			if text := l.out.String(); text != "" {
				doc = decoded[render.Document](t, text)
				check.False(t, doc.Complete, "%v", text)
			}
			several := name == "cluster" || name == "redlock"
			check.True(t, !several || len(doc.Nodes) == 3 && len(strings.Fields(nodesUp(doc))) == 2, "nodes %+v", doc.Nodes)
		})
	}
}

func TestWhatWasSeenOfAServerThatDiedIsShown(t *testing.T) {
	testtier.Long(t, "servers die under every command")
	t.Parallel()
	s := server.ForTest(t)
	for i := range 2000 {
		send(t, s.Addr(), "SET", fmt.Sprint("lock:", i), token, "PX", "600000")
	}
	manyKeys(t, s.Addr())
	l := start(t, "list", "--json", "--progress", "--budget", "2%", "--timeout", "1s", "-u", "redis://"+s.Addr())
	l.errors.sees(t, `"note":"[1-9].* [1-9][0-9,]* locks.* to go`)
	check.NoError(t, s.Kill())
	l.exits(t, exitFailure)
	doc := decoded[render.Document](t, l.out.String())
	check.True(t, !doc.Complete && len(doc.Locks) != 0 && len(doc.Locks) < 2000 && len(doc.Problems) != 0,
		"complete %v, %d locks, %q", doc.Complete, len(doc.Locks), doc.Problems)
}
