// Package certify tests lock clients. Each test of a fixed list runs clients of one library,
// as processes that speak the protocol of package external, against servers of its own, and
// gives a verdict with evidence.
//
// A test either follows a fixed order of steps (client-1 locks, is frozen, client-2 asks …)
// or is a load of package loadgen. The oracle of the load generator judges both: two clients
// are inside at once only if both leases are valid by what the clients reported.
//
// A verdict says what was observed. A pass does not prove that a lock is correct.
package clienttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen/external"
)

// Outcome is the result of a test.
type Outcome string

// Outcomes.
const (
	Pass         Outcome = "pass"
	Fail         Outcome = "fail"         // the client, or its lock, broke a promise that the test names; in two of three runs, unless two clients were inside at once
	Observed     Outcome = "observed"     // a fact without a judgement
	Unsupported  Outcome = "unsupported"  // the client, or this machine, lacks what the test needs
	Inconclusive Outcome = "inconclusive" // the test did not come to its end, in three tries
)

// Verdict is the result of one test of one client.
type Verdict struct {
	Test     string       `json:"test"`
	Outcome  Outcome      `json:"outcome"`
	Overlap  bool         `json:"overlap"`  // a failure: two clients were inside at once, within their leases
	Evidence string       `json:"evidence"` // what was observed, with figures, or the reason; may hold text of the client
	Took     Milliseconds `json:"took_ms"`
	Timeline []Span       `json:"timeline,omitempty"` // in order of From

	long bool // an overlap was longer than a reply may be under way
}

// SpanKind is the kind of a span.
type SpanKind string

// Kinds of spans.
const (
	Waiting SpanKind = "wait"    // a lock request without a reply
	Holding SpanKind = "hold"    // from the reply to the release, at most to the end of the lease
	Late    SpanKind = "late"    // work after the end of the lease
	Request SpanKind = "request" // another request without a reply, such as a release
	Faulty  SpanKind = "fault"   // something that the test broke
	Told    SpanKind = "told"    // a moment: the client reported a loss; From = To
	Note    SpanKind = "note"    // another moment; From = To

	Violated SpanKind = "violation" // the failure, or the moment at which the test saw it; Row is empty
)

// Span is a period of a test, of one client or server.
type Span struct {
	Row   string       `json:"row"`     // client-1, or a server; empty: all
	From  Milliseconds `json:"from_ms"` // since the begin of the test
	To    Milliseconds `json:"to_ms"`   // not before From
	Kind  SpanKind     `json:"kind"`
	Label string       `json:"label,omitempty"` // may hold text of the client
}

// Client is a client with its hello.
type Client struct {
	Name    string         `json:"name"`    // of the library, with its version; the command if there was no hello
	Command string         `json:"command"` // for the shell
	Hello   external.Hello `json:"hello"`
	Extends bool           `json:"extends"`         // it extended a lease when asked to
	Error   string         `json:"error,omitempty"` // why no test could run; may hold text of the client
}

// Result is a column of the card.
type Result struct {
	Client   Client    `json:"client"`
	Verdicts []Verdict `json:"verdicts"` // in the order of the tests of the card
}

// Verdict returns the verdict of a test.
func (r Result) Verdict(test string) (v Verdict, found bool) {
	i := slices.IndexFunc(r.Verdicts, func(v Verdict) bool { return v.Test == test })
	if i < 0 {
		return Verdict{}, false
	}
	return r.Verdicts[i], true
}

// Count returns the number of verdicts with an outcome.
func (r Result) Count(o Outcome) int {
	n := 0
	for _, v := range r.Verdicts {
		if v.Outcome == o {
			n++
		}
	}
	return n
}

// CardVersion is the version of [Card] as JSON.
const CardVersion = 1

// Card is the result of [Run].
type Card struct {
	Version int       `json:"version"`
	Date    time.Time `json:"date"`
	Locktop string    `json:"locktop"` // version; set by the caller
	Server  string    `json:"server"`  // of the tests, like "redis-server 7.0.15"
	Seed    uint64    `json:"seed"`
	Tests   []Test    `json:"tests"` // that were chosen
	Clients []Result  `json:"clients"`
}

// Test is a row of the card.
type Test struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	About string `json:"about"` // what happens, and what is a failure

	ttl    time.Duration        // of a lease; 0 = standardTTL
	takes  time.Duration        // usual time, for the progress
	alone  bool                 // no other test runs at the same time
	layout layout               // servers
	needs  func(profile) string // why the client does not have what the test needs; nil or "": it has
	run    func(*rig) Verdict   // Verdict.Test and Took are set by the caller
}

// Options describes a run of tests.
type Options struct {
	Commands []string // of the clients, for the shell
	Tests    []string // names; empty: all
	Seed     uint64   // of random choices; 0 = 1
	// Server is the program of the servers. Empty: redis-server, or the embedded server if it
	// is not on PATH. With {port}, it is a command for the shell that starts one server of any
	// kind: then the tests that stop or replicate servers do not run.
	Server string
	// Together is how many tests of a client may run at once, each on its own servers,
	// except those that need the machine for themselves. Default 8. Clients are tested one
	// after another.
	Together int
	// Waiters is the number of client processes of the test waiters. Default 100.
	Waiters int
	// Progress is called after each change; nil: not at all. The calls do not overlap.
	Progress func(Progress)

	once bool // a failure needs no second run: for tests of what is a failure
}

// Progress is how far a run has come.
type Progress struct {
	Client  string // name or command
	Running []string
	Done    int // verdicts
	Total   int
	Left    time.Duration // estimate
}

// Choose returns the tests with these names, in the order of the card; all if there is no
// name. It returns an error about the first unknown name.
func Choose(names []string) ([]Test, error) {
	all := Tests()
	var known []string
	for _, t := range all {
		known = append(known, t.Name)
	}
	return slices.DeleteFunc(all, func(t Test) bool { return len(names) > 0 && !slices.Contains(names, t.Name) }), unknown("test", names, known)
}

// unknown returns an error about the first of some names that is not known.
func unknown(noun string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no %s %q; there are %s", noun, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Run runs tests on all clients. When it returns, no server and no process of it is left.
// If ctx ends, it returns the verdicts so far and the error of ctx; all other tests are
// Inconclusive. Other errors are about o or about servers that could not be started: the
// card is then empty.
func Run(ctx context.Context, o Options) (Card, error) {
	tests, err := Choose(o.Tests)
	if err != nil {
		return Card{}, err
	}
	if len(o.Commands) == 0 {
		return Card{}, errors.New("there is no client to test")
	}
	o.Seed = cmp.Or(o.Seed, 1)
	o.Together = cmp.Or(o.Together, 8)
	o.Waiters = cmp.Or(o.Waiters, 100)
	r := &runner{options: o, tests: tests, now: Progress{Total: len(tests) * len(o.Commands)}}
	for _, t := range tests {
		r.left += o.share(t) * time.Duration(len(o.Commands))
	}
	name, err := serverName(ctx, o.Server)
	if err != nil && ctx.Err() == nil {
		return Card{}, err
	}
	card := Card{Version: CardVersion, Date: time.Now().UTC(), Server: name, Seed: o.Seed, Tests: tests}
	for _, command := range o.Commands {
		card.Clients = append(card.Clients, r.client(ctx, command))
	}
	return card, ctx.Err()
}

// share returns how much longer a run usually takes with a test.
func (o Options) share(t Test) time.Duration {
	if t.alone {
		return t.takes
	}
	return t.takes / time.Duration(o.Together)
}

// runner runs tests and reports the progress.
type runner struct {
	options Options
	tests   []Test

	mu   sync.Mutex
	now  Progress
	left time.Duration // usual time of the tests that are not over
}

// client runs all tests on one client.
func (r *runner) client(ctx context.Context, command string) Result {
	r.report(func() { r.now.Client = command })
	p := probe(ctx, command, r.options.Server)
	for again := 1; again < mostTries && p.Error != "" && p.Hello.Name != "" && ctx.Err() == nil; again++ {
		p = probe(ctx, command, r.options.Server)
	}
	if ctx.Err() != nil {
		p.Error = "" // that of the interrupt
	}
	r.report(func() { r.now.Client = p.Name })
	result := Result{Client: p, Verdicts: make([]Verdict, len(r.tests))}
	var together, alone []int
	for i, t := range r.tests {
		v, decided := r.without(ctx, t, p)
		switch {
		case decided:
			v.Test = t.Name
			result.Verdicts[i] = v
			r.over(t)
		case t.alone:
			alone = append(alone, i)
		default:
			together = append(together, i)
		}
	}
	// The longest first, so that none of them runs at the end alone.
	slices.SortStableFunc(together, func(a, b int) int { return int(r.tests[b].takes - r.tests[a].takes) })
	places := make(chan struct{}, r.options.Together)
	var all sync.WaitGroup
	for _, i := range together {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			result.Verdicts[i] = r.test(ctx, r.tests[i], p)
		})
	}
	all.Wait()
	for _, i := range alone {
		result.Verdicts[i] = r.test(ctx, r.tests[i], p)
	}
	return result
}

// without returns the verdict of a test that need not run.
func (r *runner) without(ctx context.Context, t Test, p profile) (v Verdict, decided bool) {
	if ctx.Err() != nil {
		return interrupted(), true
	}
	if p.Error != "" {
		return inconclusive("no test can run: %s", p.Error), true
	}
	if t.needs != nil {
		if why := t.needs(p); why != "" {
			return Verdict{Outcome: Unsupported, Evidence: why}, true
		}
	}
	if t.layout != oneServer && servertest.HasPort(r.options.Server) {
		return Verdict{Outcome: Unsupported, Evidence: "it needs several servers, and --server is a command for one"}, true
	}
	if t.layout != oneServer && r.options.Server == "" && !installed() {
		return Verdict{Outcome: Unsupported, Evidence: server.ErrNotInstalled.Error() + ", and the embedded server cannot be stopped or replicated"}, true
	}
	return Verdict{}, false
}

// interrupted returns the verdict of a test that did not run, or not to its end.
func interrupted() Verdict { return inconclusive("it was interrupted") }

// mostTries is how often a test runs at most.
const mostTries = 3

// decide runs a test until its result is certain. Two clients inside at once are a fact,
// unless a reply that was under way for longer than usual explains them. Another failure may
// come from a busy machine: it counts if two of three runs show it, and a single one is in
// the evidence. An inconclusive test runs again.
func decide(ctx context.Context, run func() Verdict) Verdict {
	var failed, last Verdict
	failures := 0
	for try := 1; try <= mostTries; try++ {
		last = run()
		switch {
		case last.Overlap && last.long:
			return last
		case ctx.Err() != nil: // the end of ctx may be the reason of a failure
			last.Outcome = Inconclusive
			return last
		case last.Outcome == Fail:
			failed = last
			if failures++; failures == 2 {
				return failed
			}
		case last.Outcome != Inconclusive && (failures == 0 || try == mostTries):
			try = mostTries
		}
	}
	if failures > 0 {
		last.Evidence += fmt.Sprintf(" (One of %d runs failed: %s)", mostTries, failed.Evidence)
	}
	return last
}

// test runs one test.
func (r *runner) test(ctx context.Context, t Test, p profile) Verdict {
	r.report(func() { r.now.Running = append(r.now.Running, t.Name) })
	began := time.Now()
	once := func() Verdict { return runTest(ctx, t, p, r.options) }
	v := Verdict{}
	if r.options.once {
		v = once()
	} else {
		v = decide(ctx, once)
	}
	v.Test, v.Took = t.Name, Milliseconds(time.Since(began))
	if ctx.Err() != nil && v.Outcome != Fail {
		v.Outcome, v.Evidence = Inconclusive, interrupted().Evidence
	}
	r.over(t)
	return v
}

// over reports that a test has a verdict.
func (r *runner) over(t Test) {
	r.report(func() {
		if i := slices.Index(r.now.Running, t.Name); i >= 0 {
			r.now.Running = slices.Delete(r.now.Running, i, i+1)
		}
		r.now.Done++
		r.left -= r.options.share(t)
	})
}

// report changes the progress and tells it.
func (r *runner) report(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	now := r.now
	now.Running = slices.Clone(now.Running)
	now.Left = r.left
	if r.options.Progress != nil {
		r.options.Progress(now)
	}
}

// YesNo formats a bool.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
