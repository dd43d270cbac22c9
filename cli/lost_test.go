package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// An outage begins with the last answer, not when it is noticed.
func TestAnOutageCountsFromTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snap := keyspace.Snapshot{At: time.Now(), Complete: true, Nodes: []keyspace.Node{
			{Server: keyspace.Server{Addr: "a:1"}, Up: true, AnsweredAt: time.Now().Add(-time.Minute)},
			{Server: keyspace.Server{Addr: "b:1"}, Up: true, AnsweredAt: time.Now().Add(-8 * time.Second)},
		}}
		n := 0
		source := &multiEventSource{down: make(map[string]bool), fleet: sourceFunc(func(context.Context) (keyspace.Snapshot, error) {
			if n++; n == 2 {
				return keyspace.Snapshot{}, errors.New("i/o timeout")
			}
			return snap, nil
		})}
		said := new(bytes.Buffer)
		w := &watcher{source: source, selection: &selection{}, output: output{notes: messages{to: said}}, title: "x"}
		for range 3 {
			_, notices, _ := source.Next(t.Context())
			for _, n := range notices {
				w.note(n)
			}
		}
		check.True(t, strings.Contains(said.String(), "back on x after 8.1 s"), "it said\n%s", said)
	})
}

// A server of several that was away is named, once when it is lost and once when it is back. What its watcher has
// noted meanwhile comes with the first snapshot after that.
func TestAWatchNamesTheServerOfSeveralThatWasAway(t *testing.T) {
	now := time.Now()
	a, b := keyspace.Node{Server: keyspace.Server{Addr: "a:1"}, Up: true}, keyspace.Node{Server: keyspace.Server{Addr: "b:1"}, Up: true}
	down := b
	down.Up, down.Error = false, "i/o timeout"
	late := []keyspace.Notice{{Kind: keyspace.ServerLost, Node: "b:1", Text: "i/o timeout"},
		{Kind: keyspace.ServerBack, Node: "b:1", At: now, Since: now.Add(-12 * time.Second), Text: "it was restarted"}, {Kind: keyspace.WatchModeChanged, Node: "b:1", Text: "changes are now detected by polling"}}
	said := new(bytes.Buffer)
	source := &multiEventSource{down: make(map[string]bool)}
	w := &watcher{output: output{notes: messages{to: said}}, title: "redlock of a:1, b:1", several: true}
	for _, snap := range []keyspace.Snapshot{{Nodes: []keyspace.Node{a, b}}, {Nodes: []keyspace.Node{a, down}}, {Nodes: []keyspace.Node{a, b}, Notices: late}} {
		for _, n := range source.nodeChanges(snap) {
			w.note(n)
		}
	}
	want := "b:1 cannot be read: i/o timeout\nb:1 answers again after 12 s: it was restarted\nb:1: changes are now detected by polling\n"
	check.Equal(t, strings.ReplaceAll(said.String(), "locktop: redlock of a:1, b:1: ", ""), want, "it said")
}
