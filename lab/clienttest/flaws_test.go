//go:build unix

package clienttest

import (
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/loadgen"
)

// flawed is a client with one flaw, and the test that finds it.
type flawed struct {
	client string // style/flaw, see testClient
	test   string
	names  string // the cause, as the evidence says it: a regular expression
}

// flawedClients are the flaws of locks that people use, each with the row of the card whose
// text leads to it.
var flawedClients = []flawed{
	{"set/open", "hot-key", `while another client was inside`},                                                                                       // grants every lock
	{"set/open", "permits", `client-3 got the lock`},                                                                                                 //
	{"set/forever", "crash", `did not get the lock within .* after the crash`},                                                                       // sets no TTL
	{"signal/notify-only", "crash", `did not get the lock within .* after the crash`},                                                                // does not look when the TTL is over
	{"semaphore/sem-counts-expired", "crash", `did not get the lock within .* after the crash`},                                                      // permits of the dead count
	{"set/seconds-floor", "lease-end", `for 2\.4. s.* inside at once`},                                                                               // sets whole seconds, and reports milliseconds
	{"set/seconds-zero", "lease-end", `did not get the lock within .*\(TTL 300 ms\)`},                                                                // takes a TTL of less than 1 s for none
	{"set/seconds-ceil-valid", "lease-end", `for 2\.9. s.* inside at once`},                                                                          // reports whole seconds
	{"set/quiet", "freeze", `did not tell it of the loss`},                                                                                           // does not tell, although its hello says so
	{"set/unlock-always-ok", "freeze", `release reported success .* after the end of its lease`},                                                     // does not read the reply to a release
	{"set/blind", "late-unlock", `late release of client-1 reported success\. The key .* was missing then.*client-3 got`},                            // releases with DEL
	{"set/token-same", "late-unlock", `late release of client-1 reported success\. The key .* was missing then`},                                     // all clients have one token
	{"set/extend-set-xx", "late-extend", `extension by client-1 reported success\. But client-2 had the lock`},                                       // extends with SET XX
	{"set/extend-blind", "late-extend", `extension by client-1 reported success\. But client-2 had the lock`},                                        // extends with PEXPIRE
	{"renewer/renew-blind", "late-extend", `after the crash of client-2, while client-1, .* the library renews`},                                     // renews with PEXPIRE
	{"set/remembers", "relock", `client-1 asked again\. client-1 got the lock while client-2 was inside`},                                            // does not ask the server for a lock that it had
	{"set/token-reuse", "second-hold", `late release of its first hold reported success\. The key .* was missing`},                                   // one token for each process
	{"renewer/silent-renewer", "partition", `does not tell of a loss`},                                                                               // renews and does not tell
	{"recovers/retry-acquire-get", "lost-acquire", `client-1 then got the lock, by its valid_ms for .* inside at once`},                              // finds its token after an error, and takes the lease for a whole one
	{"sequential/valid-from-reply", "slow-acquire", `Each reply to client-1 took .* inside at once`},                                                 // counts the lease from the reply
	{"set/repeats", "lost-release", `release whose reply was lost`},                                                                                  // repeats DEL until it has a reply
	{"set/setnx-expire", "between-acquire", `crash of client-3 before PEXPIRE`},                                                                      //
	{"set/wait-two-commands", "between-wait", `crash of client-\d, a waiter, .*PEXPIRE\)`},                                                           // is only careful if the lock is free
	{"set/get-then-del", "between-release", `frozen before DEL`},                                                                                     //
	{"set/queue", "waiter-killed", `A waiter was killed`},                                                                                            // waits behind a waiter that is dead
	{"set/orphan", "waiter-gives-up", `client-2 gave up.* did not get the lock .*although no client was inside`},                                     // its last attempt goes on
	{"set/cleanup-deletes", "waiter-gives-up", `client-2 gave up\. The key .* was missing then`},                                                     // a waiter that gives up deletes the key
	{"set/cached", "script-flush", `After SCRIPT FLUSH the release`},                                                                                 // does not load its script again
	{"set/cached", "failover", `after it was connected again, failed: .*NOSCRIPT`},                                                                   //
	{"set/blind", "flushall", `Then client-1 released\. client-3 got the lock`},                                                                      //
	{"set/per-server", "failover", `took the place of its master\. client-2 got the lock`},                                                           // its key has the run ID of the server
	{"set/all-nodes", "nodes-2-down", `did not get the lock`},                                                                                        // needs every node
	{"set/fail-open", "nodes-3-down", `client-1 got the lock`},                                                                                       // grants a lock if a server does not answer
	{"sequential/minority", "nodes-3-down", `client-1 got the lock`},                                                                                 // needs one node
	{"set/half", "nodes-3-down", `client-1 got the lock`},                                                                                            // needs two of five
	{"sequential/rl-minority", "nodes-3-down", `Then these two had 2 keys.* it and both that client-1 had asked. .*did not get the lock`},            // does not undo a failed attempt
	{"set/rl-unlock-any", "nodes-lost", `3 of them lost it.* release reported success`},                                                              // one node is enough for a release
	{"set/rl-extend-any", "nodes-lost", `An extension reported success\. Then client-2 got the lock`},                                                // and for an extension
	{"set/waits-for-all", "node-frozen", `With 1 of 5 nodes frozen`},                                                                                 // has no limit for a node
	{"sequential/rl-noelapsed", "nodes-slow", `Each reply to client-1 took .* inside at once`},                                                       // does not subtract the time that the nodes took
	{"renewer/renew-after-unlock", "renewal", `after the release\. It was inside for 750 ms\. Then the client told client-2 that the lock was lost`}, // its renewal goes on
	{"set/no-renewal", "renewal", `without any fault`},                                                                                               // does not renew, although its hello says so
	{"set/recreates", "renewal-lost", `the next extension reported success`},                                                                         // renews with SET
	{"set/extend-lies", "renewal-lost", `the next extension reported success`},                                                                       // does not read the reply to an extension
	{"reentrant/re-first-frees", "reentrant", `Its first release reported success\. client-2 got the lock`},                                          // does not count
	{"reentrant/re-retry", "reentrant-lost", `second acquire was lost; .* did not get the lock .*although no client was`},                            // counts a repeated acquire twice
	{"reentrant/re-release-retry", "reentrant-lost", `reply to its first release was lost.* client-2 got the lock while`},                            // counts a repeated release twice
	{"set/exclusive-reader", "readers", `did not get the lock to read`},                                                                              // knows no readers, although its hello says so
	{"rw/rw-all-readers", "readers", `Then a writer asked. client-3 got the lock while client-\d was inside`},                                        // one reader frees the lock of all
	{"rw/rw-read-ttl", "readers-crash", `to write .* inside at once`},                                                                                // the TTL of the first reader is that of all
	{"rw/readers-forever", "readers-crash", `did not get the lock within .* last of two readers`},                                                    // readers have no TTL
	{"rw/rw-persist", "writer-crash", `after the crash of the writer client-1, beside which the reader`},                                             // a refused reader removes the TTL of the writer
	{"semaphore/sem-off-by-one", "permits", `client-3 got the lock`},                                                                                 //
	{"semaphore/client-clock", "clock", `clock of client-\d is 3 s (ahead|behind)`},                                                                  // judges leases by its own clock
	{"set/orphan", "cancel", `client-3 did not get the lock within .* although no client was inside`},                                                // its attempt goes on
	{"set/forever", "wait-limit", `did not get the lock within .* after a command of an acquire that client-1 had given up`},                         //
	{"sequential/valid-from-reply", "late-grant", `Its lease was valid for another`},                                                                 //
	{"set/token-retry", "unlock-retry", `client-2 got the lock while client-1 was inside`},                                                           // one token for each process, and the release is tried again
	{"set/token-name", "restart", `client-2 got the lock while client-1 was inside`},                                                                 // the name is the token
	{"renewer/renews-each-second", "short-ttl", `without any fault`},                                                                                 // the interval does not depend on the TTL
	{"fenced/fence-constant", "crash", `a fence was not larger`},                                                                                     //
}

// quick are tests that take about a second each, on one server and on five.
var quick = []string{"second-hold", "readers", "clock", "nodes-3-down"}

// The first tier runs the quick tests, the long one a client for each test, and the proof all clients.
func TestEveryTestFindsAFlaw(t *testing.T) {
	t.Parallel()
	ran := make(map[string]bool)
	for _, f := range flawedClients {
		if ran[f.test] && !testtier.Proving() || !testtier.InLong() && !slices.Contains(quick, f.test) {
			continue
		}
		ran[f.test] = true
		t.Run(f.client+"/"+f.test, func(t *testing.T) {
			t.Parallel()
			fails(t, "test:"+f.client, f.test, f.names)
		})
	}
}

// No client without a flaw is accused. The first tier runs the quick tests, the long one most
// tests, and the proof all tests of each style three times.
func TestSoundClientsPass(t *testing.T) {
	t.Parallel()
	most := slices.DeleteFunc(testNames(), func(name string) bool { return name == "waiters" || name == "hot-key" })
	pass := func(style string, tests ...string) {
		result := run(t, "test:"+style, tests...)
		t.Logf("%s: %d passed, %d observed", style, result.Count(Pass), result.Count(Observed))
		for _, v := range concluded(t, "test:"+style, result) {
			check.True(t, v.Outcome != Fail && v.Outcome != Inconclusive, "%s: %s: %s: %s", style, v.Test, v.Outcome, v.Evidence)
		}
	}
	if !testtier.InLong() {
		pass("set", quick...)
		return
	}
	if !testtier.Proving() {
		pass("set", most...)
		pass("fenced", "flushall")             // the fences begin again
		pass("set/persistent", "lost-acquire") // it gets the lock after its lost one
		pass("set/retries", "unlock-retry")    // each hold has a token of its own
		return
	}
	for range 3 {
		for _, style := range styles {
			pass(style)
		}
	}
}

// Every test that can fail has a client that fails it.
func TestEveryTestHasAClientThatFailsIt(t *testing.T) {
	known := []string{"failover-behind", "node-empty", "waiters"} // observations; see TestAWaiterThatStarvesIsAFailure
	for _, tests := range flaws {
		known = append(known, tests...)
	}
	for _, f := range flawedClients {
		known = append(known, f.test)
	}
	for _, name := range testNames() {
		check.True(t, slices.Contains(known, name), "no client fails %s", name)
	}
}

// redlock 5 counts the TTL from the begin of the wait.
func TestAWaiterWhoseLeaseHasEndedBeforeItGotTheLockLocksAgain(t *testing.T) {
	testtier.Long(t, "its client waits for its leases to end")
	t.Parallel()
	for _, test := range []string{"late-unlock", "relock"} {
		ended := false
		for try := 0; !ended && try < mostTries; try++ { // on a busy machine it may ask later
			v := run(t, "test:set/since-asking", test).Verdicts[0]
			check.Equal(t, v.Outcome, Pass, "%s: %s", v.Test, v.Evidence)
			ended = strings.Contains(v.Evidence, "client-2 got a lease that had ended")
		}
		check.True(t, ended, "%s: no lease had ended before its client got the lock", test)
	}
}

// A refused release of redlock 5 tries again for 2 s.
func TestALateReleaseThatTakesLongerThanTheLeaseOfTheNextHolder(t *testing.T) {
	testtier.Long(t, "its client tries a release for 2 s")
	t.Parallel()
	v := run(t, "test:set/patient", "late-unlock").Verdicts[0]
	check.True(t, v.Outcome == Pass, "%s %s", v.Outcome, v.Evidence)
}

// testNames returns the names of all tests.
func testNames() []string {
	var all []string
	for _, test := range Tests() {
		all = append(all, test.Name)
	}
	return all
}

func TestAWaiterThatStarvesIsAFailure(t *testing.T) {
	events := []loadgen.Event{{Kind: loadgen.Arrived, Client: 3}}
	for n := range 60 {
		client := n%2 + 1
		events = append(events, loadgen.Event{Kind: loadgen.Arrived, Client: client}, loadgen.Event{Kind: loadgen.Acquired, Client: client})
	}
	least, most, passed := fairness(events, 3)
	check.True(t, least == 0 && most == 30 && passed == 60, "%d to %d holds, passed over %d times", least, most, passed)
	m := loadgen.Metrics{}
	m.Acquired = 60
	v := new(rig).judgeWaiters(m, events, 3)
	check.True(t, v.Outcome == Fail, "%s: %s", v.Outcome, v.Evidence)
	if v := new(rig).judgeWaiters(m, append(events, loadgen.Event{Kind: loadgen.Acquired, Client: 3}), 3); v.Outcome != Observed {
		t.Errorf("%s: %s", v.Outcome, v.Evidence)
	}
}
