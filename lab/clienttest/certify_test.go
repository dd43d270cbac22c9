//go:build unix

package clienttest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen/external"
)

// flaws names for each historic form the tests that show the flaw of its doc comment.
var flaws = map[string][]string{
	"classic/setnx-expire":     {"between-acquire", "lost-acquire"},
	"classic/exists-set":       {"late-unlock"},
	"classic/getset":           {"clock", "late-unlock"},
	"classic/blind-delete":     {"late-unlock"},
	"classic/get-then-del":     {"between-release"},
	"classic/counted":          {"renewal", "relock"},
	"classic/two-key-rw":       {"readers"},
	"classic/stamp-rw":         {"readers", "clock"},
	"classic/quorum-semaphore": {"permits-nodes", "clock"},
}

// run runs tests on a client of a kind and logs the verdicts.
func run(t *testing.T, kind string, tests ...string) Result {
	t.Helper()
	return runWith(t, kind, Options{Tests: tests})
}

// runWith is run with options.
func runWith(t *testing.T, kind string, o Options) Result {
	t.Helper()
	o.Commands, o.Waiters = []string{command(kind)}, 10
	if testtier.Proving() && !strings.HasPrefix(kind, "test:") {
		o.Waiters = 100
	}
	card := check.Must(Run(t.Context(), o))(t)
	result := card.Clients[0]
	for _, v := range result.Verdicts {
		t.Logf("%s: %-16s %-12s %4.1fs %s", kind, v.Test, v.Outcome, float64(v.Took)/1e9, v.Evidence)
	}
	return result
}

func TestTheFlawOfEachHistoricFormIsFound(t *testing.T) {
	testtier.Long(t, "it runs tests on each historic form")
	t.Parallel()
	for kind, tests := range flaws {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, test := range tests {
				v := fails(t, kind, test, "")
				if v.Outcome != Fail {
					continue
				}
				check.True(t, slices.ContainsFunc(v.Timeline, func(s Span) bool { return s.Kind == Violated && s.Label != "" }),
					"the timeline of %s does not show the failure: %+v", v.Test, v.Timeline)
			}
		})
	}
}

// fails returns the failure that a client must have in a test, for the reason that a regular
// expression describes. On a busy machine a flaw may stay hidden in one run.
func fails(t *testing.T, kind, test, reason string) (v Verdict) {
	t.Helper()
	for range mostTries {
		v = runWith(t, kind, Options{Tests: []string{test}, once: true}).Verdicts[0]
		if v.Outcome == Fail && regexp.MustCompile(reason).MatchString(v.Evidence) {
			return v
		}
		if v.Outcome == Unsupported && strings.Contains(v.Evidence, server.ErrNotInstalled.Error()) {
			servertest.SkipUninstalled(t)
		}
	}
	t.Errorf("%s of %s, want a failure that says %q: %s", v.Outcome, test, reason, v.Evidence)
	return v
}

// The deadline of a client that renews moves on until its process ends.
func TestAnInterruptEndsRequestsForALockThatIsRenewed(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	r := &rig{ctx: ctx, profile: profile{Command: command("test:renewer")}, ttl: standardTTL, began: time.Now()}
	t.Cleanup(r.close)
	r.judgeBy(1)
	check.NoError(t, r.open(oneServer))
	holder, other := r.actor(), r.actor()
	h := holder.mustLock()
	interrupt()
	_, err := other.ask(h)
	check.True(t, err != nil && !errors.Is(err, external.ErrHeld), "an interrupted request ends with %v", err)
}

func TestSoundKindsPass(t *testing.T) {
	testtier.Long(t, "it runs all tests on all kinds")
	t.Parallel()
	kinds := map[string][]string{"mutex": nil, "redlock": {"nodes-2-down", "nodes-3-down", "nodes-lost", "node-frozen"}, "rw": {"reentrant", "reentrant-lost", "readers-crash"}}
	runs := 1
	if testtier.Proving() {
		kinds = map[string][]string{"mutex": nil, "reentrant": nil, "rw": nil, "fair": nil, "redlock": nil, "semaphore": nil, "all": nil}
		runs = 3
	}
	for kind, tests := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for range runs {
				soundKindPasses(t, kind, tests)
			}
		})
	}
}

// concluded runs the tests again that came to no end: the machine was too slow for them.
func concluded(t *testing.T, kind string, r Result) []Verdict {
	t.Helper()
	for i, v := range r.Verdicts {
		if v.Outcome == Inconclusive {
			r.Verdicts[i] = run(t, kind, v.Test).Verdicts[0]
		}
	}
	return r.Verdicts
}

func soundKindPasses(t *testing.T, kind string, tests []string) {
	t.Helper()
	for _, v := range concluded(t, kind, run(t, kind, tests...)) {
		check.True(t, v.Outcome != Fail && v.Outcome != Inconclusive, "%s: %s: %s %s", kind, v.Test, v.Outcome, v.Evidence)
		check.True(t, v.Outcome != Unsupported || strings.HasPrefix(v.Evidence, "hello"), "%s: %s: %s", kind, v.Test, v.Evidence)
	}
}

func TestWithoutRedisServerTheEmbeddedServerIsUsed(t *testing.T) {
	testtier.Long(t, "it runs tests for seconds")
	sh := check.Must(exec.LookPath("sh"))(t)
	dir := t.TempDir()
	check.NoError(t, os.Symlink(sh, filepath.Join(dir, "sh")))
	t.Setenv("PATH", dir)
	card, err := Run(t.Context(), Options{Commands: []string{command("rw"), command("classic/two-key-rw")}, Tests: []string{"script-flush", "readers", "nodes-2-down", "failover"}})
	check.NoError(t, err)
	check.True(t, strings.HasPrefix(card.Server, "embedded"), "the server is %s", card.Server)
	for i, want := range []map[string]Outcome{
		{"script-flush": Pass, "readers": Pass, "nodes-2-down": Unsupported, "failover": Unsupported},
		{"script-flush": Pass, "readers": Fail, "nodes-2-down": Unsupported, "failover": Unsupported},
	} {
		for _, v := range card.Clients[i].Verdicts {
			check.Equal(t, v.Outcome, want[v.Test], "%s: %s: %s", card.Clients[i].Client.Name, v.Test, v.Evidence)
		}
	}
}

func TestAnInterruptedRunReturnsTheVerdictsSoFar(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	card, err := Run(ctx, Options{
		Commands: []string{command("mutex"), command("fair")}, Tests: []string{"script-flush", "crash"}, Together: 1,
		Progress: func(p Progress) {
			if p.Done == 1 && len(p.Running) == 1 {
				cancel()
			}
		},
	})
	check.ErrorIs(t, err, context.Canceled, "error")
	check.Require(t, len(card.Clients) == 2 && len(card.Clients[1].Verdicts) == 2, "the card is not complete: %+v", card)
	cut := 0
	for _, c := range card.Clients {
		for _, v := range c.Verdicts {
			if v.Outcome == Inconclusive && v.Evidence == "it was interrupted" {
				cut++
			}
		}
	}
	check.Equal(t, cut, 3, "interrupted verdicts: %+v", card.Clients)
}

func TestAFailureWithoutAnOverlapNeedsASecondRun(t *testing.T) {
	fail := Verdict{Outcome: Fail, Evidence: "late."}
	overlap := Verdict{Outcome: Fail, Overlap: true, long: true, Evidence: "two."}
	short := Verdict{Outcome: Fail, Overlap: true, Evidence: "two, but short."}
	pass, unclear := Verdict{Outcome: Pass, Evidence: "fine."}, Verdict{Outcome: Inconclusive, Evidence: "slow."}
	for name, c := range map[string]struct {
		runs     []Verdict
		want     Outcome
		evidence string
	}{
		"pass":              {[]Verdict{pass}, Pass, "fine."},
		"overlap":           {[]Verdict{overlap}, Fail, "two."},
		"short overlap":     {[]Verdict{short, pass, pass}, Pass, "fine. (One of 3 runs failed: two, but short.)"},
		"short overlaps":    {[]Verdict{short, short}, Fail, "two, but short."},
		"twice":             {[]Verdict{fail, fail}, Fail, "late."},
		"two of three":      {[]Verdict{fail, pass, fail}, Fail, "late."},
		"one of three":      {[]Verdict{fail, pass, pass}, Pass, "fine. (One of 3 runs failed: late.)"},
		"unclear at first":  {[]Verdict{unclear, pass}, Pass, "fine."},
		"unclear":           {[]Verdict{unclear, unclear, unclear}, Inconclusive, "slow."},
		"failed, unclear":   {[]Verdict{fail, unclear, unclear}, Inconclusive, "slow. (One of 3 runs failed: late.)"},
		"overlap at second": {[]Verdict{fail, overlap}, Fail, "two."},
	} {
		n := 0
		v := decide(t.Context(), func() Verdict { n++; return c.runs[n-1] })
		check.True(t, v.Outcome == c.want && v.Evidence == c.evidence && n == len(c.runs),
			"%s: %s %q after %d runs", name, v.Outcome, v.Evidence, n)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, c := range []struct {
		run  Verdict
		want Outcome
	}{{fail, Inconclusive}, {short, Inconclusive}, {overlap, Fail}} {
		v := decide(ctx, func() Verdict { return c.run })
		check.True(t, v.Outcome == c.want, "%s %q after an interrupt, want %s", v.Outcome, v.Evidence, c.want)
	}
}

// Another server may have no arguments of redis-server, and so no replicas.
func TestAnotherServerRunsTheTestsWithOneServer(t *testing.T) {
	t.Parallel()
	if !installed() {
		servertest.SkipUninstalled(t)
	}
	r := runWith(t, "mutex", Options{Server: "redis-server --save '' --port {port}", Tests: []string{"script-flush", "nodes-2-down", "failover"}})
	for test, want := range map[string]Outcome{"script-flush": Pass, "nodes-2-down": Unsupported, "failover": Unsupported} {
		v, _ := r.Verdict(test)
		check.True(t, v.Outcome == want, "%s: %s %s", test, v.Outcome, v.Evidence)
	}
}
