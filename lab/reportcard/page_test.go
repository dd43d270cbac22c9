//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/lab/clients"
	"locktop/lab/clienttest"
	"locktop/loadgen/external"
)

// The page has every cell, the evidence of each failure with its confirmation, and the
// reasons for everything that was not tested. Text of clients cannot change its form.
func TestThePageSaysWhatWasObserved(t *testing.T) {
	defer func(old map[string]string) { confirmed["redis-cli"] = old }(confirmed["redis-cli"])
	confirmed["redis-cli"] = map[string]string{"late-unlock": "SET, PEXPIRE, DEL by hand."}
	verdicts := func(outcomes ...clienttest.Outcome) (all []clienttest.Verdict) {
		for i, o := range outcomes {
			all = append(all, clienttest.Verdict{Test: []string{"freeze", "late-unlock", "node-empty"}[i], Outcome: o, Evidence: "why " + string(o) + " | <b> [x](y) *z*"})
		}
		return all
	}
	column := func(name string, hello external.Hello, v []clienttest.Verdict) clienttest.Result {
		return clienttest.Result{Client: clienttest.Client{Name: name, Command: "bin/x", Hello: hello}, Verdicts: v}
	}
	p := page{
		machine: "2 logical CPUs", all: []clienttest.Test{{Name: "freeze"}, {Name: "waiters"}}, missing: []string{"redlock: node is missing"},
		clients: []clients.Client{{Name: "redsync ", Group: clients.Library}, {Name: "redis-cli ", Group: clients.Recipe}, {Name: "locktop fair", Group: clients.Own}},
		card: clienttest.Card{
			Date: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Server: "redis 7.0.15", Seed: 7,
			Tests: []clienttest.Test{{Name: "freeze", Title: "a holder is frozen"}, {Name: "late-unlock", Title: "a late release"}, {Name: "node-empty", Title: "a node is empty"}},
			Clients: []clienttest.Result{
				column("redsync 4 <i>", external.Hello{Kinds: []string{"mutex", "redlock"}}, verdicts(clienttest.Pass, clienttest.Observed, clienttest.Inconclusive)),
				column("redis-cli 7 | 8", external.Hello{Kinds: []string{"mutex"}, Tells: true}, verdicts(clienttest.Fail, clienttest.Fail, clienttest.Unsupported)),
				column("locktop fair", external.Hello{Kinds: []string{"fair"}, Fences: true, Renews: true}, verdicts(clienttest.Pass, clienttest.Pass, clienttest.Unsupported)),
			},
		},
	}
	p.limit = 300
	p.search = clienttest.Search{Date: p.card.Date, Server: p.card.Server, Faults: 2, Clients: []clienttest.SearchResult{
		{Client: p.card.Clients[0].Client, Plays: []clienttest.Played{{Play: "release", Orders: []int{4, 60, 236}, Left: 9, Other: 3, Slow: 2}, {Play: "again", Orders: []int{5, 70}, Doubtful: 1}}},
		{Client: p.card.Clients[1].Client, Plays: []clienttest.Played{
			{Play: "release", Orders: []int{4, 6}, Found: &clienttest.Counterexample{Order: "release/a.af.b.a", Faults: 1, Finding: "x <b>", Seen: 2, Runs: 3}},
			{Play: "again", Orders: []int{1}, Error: "it <i>exited"},
		}},
		{Client: p.card.Clients[2].Client, Plays: []clienttest.Played{{Play: "release", Orders: []int{4}}}},
	}}
	got := p.markdown()
	golden.Check(t, "report-card.md", got)
	for _, link := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(got, -1) {
		check.Equal(t, strings.Count(got, `<a id="`+link[1]+`"></a>`), 1, "#%s leads nowhere", link[1])
	}
	check.True(t, !strings.Contains(got, "<b>") && !strings.Contains(got, "<i>") && !strings.Contains(got, " [x](y)"),
		"text of a client is markdown:\n%s", got)
}
