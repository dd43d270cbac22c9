package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/keyspace/recording"
	"locktop/loadgen"
	"locktop/loadgen/fit"
)

// fitOptions are the flags of scenarios that fit one to a recording.
type fitOptions struct {
	from   string
	at     string
	window time.Duration
	match  []string
	names  bool
	json   bool // of the list
}

func (o *fitOptions) flags() *pflag.FlagSet {
	set := flagSection("From a recording")
	set.StringVar(&o.from, "from", "", "fit a scenario to this recording: a `file` of locktop record or a directory of locktop export --record")
	set.StringVar(&o.at, "at", "", "`time` at which the window begins: "+humanize.MomentForms+" (default: where replay begins)")
	set.DurationVar(&o.window, "for", 0, "`length` of the window (default: to the end of the recording)")
	set.StringArrayVar(&o.match, "match", nil, "only keys that match this `glob`; may be repeated")
	set.BoolVar(&o.json, "json", false, "print the list as one JSON document; errors are JSON, too")
	set.BoolVar(&o.names, "names", false, "name the busiest keys and owners in the comments")
	return set
}

// check returns an error for flags that contradict each other.
func (o *fitOptions) check(args []string) error {
	switch {
	case o.from == "" && (o.at != "" || o.window != 0 || len(o.match) > 0 || o.names):
		return usageErrorf("", "--at, --for, --match and --names need --from RECORDING")
	case o.from != "" && len(args) > 0:
		return usageErrorf("", "--from fits a scenario, and %s names another one", args[0])
	case o.json && (o.from != "" || len(args) > 0):
		return usageErrorf("", "--json prints the list of scenarios: a scenario is YAML")
	}
	return checkFor(o.window)
}

// fitScenario prints the scenario that fits a part of a recording.
func (p output) fitScenario(o *fitOptions) error {
	r, err := recording.Open(o.from)
	if err != nil {
		return fmt.Errorf("open %s: %w%s", o.from, err, targetsIn(o.from))
	}
	defer r.Close()
	first, last := r.Span()
	begin, err := beginOf(r, o.at)
	if err != nil {
		return err
	}
	begin = keyspace.Later(begin, first)
	window := last.Sub(begin)
	if o.window > 0 {
		window = min(o.window, window)
	}
	c := newHoldCollector(o, begin, window)
	if err := c.read(r); err != nil {
		return err
	}
	if err := r.Damage(); err != nil {
		p.notes.warning("%s is %v; the figures are those of the intact part", o.from, err)
	}
	f, err := fit.Scenario(c.holds, c.window)
	if errors.Is(err, fit.ErrNoHolds) {
		return fmt.Errorf("%w in the %s from %s on", err, humanize.Setting(c.window), begin.Local().Format(time.DateTime))
	}
	if err != nil {
		return fmt.Errorf("fit a scenario: %w", err)
	}
	f.Note("name", "Fitted by locktop to %s from %s on.", humanize.Setting(c.window), begin.Local().Format("2006-01-02 15:04:05 MST"))
	if ping := median(c.pings); ping > 0 {
		f.Note("hold", "A round trip, %s as the recorder measured it, is subtracted: clients hold a lock so much longer than they work.", ping.Round(10*time.Microsecond))
	}
	if c.polled > 0 {
		f.Note("name", "For %s of it, changes were not reported by the server, or not recorded: holds are missing.", humanize.Setting(c.polled))
	}
	classes := make(map[string]int)
	for key := range c.keys {
		number(classes, keyspace.ClassOf(key))
	}
	if len(classes) > 1 {
		f.Note("name", "The keys are of %d classes. --match fits one of them.", len(classes))
	}
	if o.names {
		f.Note("keys", "%s", c.busiest(c.keys, func(h fit.Hold) int { return h.Key }))
		f.Note("clients", "%s", c.busiest(c.owners, func(h fit.Hold) int { return h.Owner }))
	}
	_, err = p.out.Write(f.YAML())
	return err
}

// holdCollector collects the holds that began in a window of a recording.
type holdCollector struct {
	*fitOptions
	begin        time.Time
	window       time.Duration
	polled       time.Duration   // time without pushed changes, or without frames
	pings        []time.Duration // round trips of the recorder
	ledger       holds.Ledger
	locks        map[keyspace.ID]keyspace.Lock // those of the holds, as they were acquired last
	seen         []seenHold
	holds        []fit.Hold
	keys, owners map[string]int // numbers of names
}

func newHoldCollector(o *fitOptions, begin time.Time, window time.Duration) *holdCollector {
	c := &holdCollector{fitOptions: o, begin: begin, window: window, locks: map[keyspace.ID]keyspace.Lock{}, keys: map[string]int{}, owners: map[string]int{}}
	c.ledger.Ended, c.ledger.OfLock = c.add, 1
	return c
}

// seenHold is a hold of the ledger in the form for a fit, before [holdCollector.settle]. It takes a third of the memory.
type seenHold struct {
	fit.Hold
	read       time.Duration // when its acquire was read
	alone      bool          // it excludes others
	handedOver bool          // to a waiter of the queue: the token of the next hold is older than that
}

// frameStep is the time between two reads of the state of a recording.
const frameStep = time.Second

// read reads the window, and a little more: a frame has older events.
func (c *holdCollector) read(r *recording.Reader) error {
	for at := -frameStep; at < c.window+2*frameStep; at += frameStep {
		snap, err := r.At(c.begin.Add(at+frameStep), c.begin.Add(at))
		if err != nil {
			return err
		}
		if gap, _ := r.Gap(); at >= 0 && at < c.window && (snap.Watch.Mode != keyspace.Push || !gap.IsZero()) {
			c.polled += frameStep
		}
		for _, n := range snap.Nodes {
			c.pings = append(c.pings, n.Ping)
		}
		for i := range snap.Events {
			c.event(&snap.Events[i])
		}
		c.ledger.State(keyspace.Delta{Snapshot: snap})
	}
	c.settle()
	return nil
}

// event records a change of a lock.
func (c *holdCollector) event(e *keyspace.Event) {
	if globs := c.match; len(globs) > 0 && !slices.ContainsFunc(globs, func(g string) bool { return keyspace.MatchGlob(g, e.Lock.Key) }) {
		return
	}
	if id := e.Lock.ID().OnAnyNode(); e.Kind == keyspace.Acquired {
		c.locks[id] = keyspace.Lock{Kind: e.Lock.Kind, Limit: e.Lock.Limit}
	}
	c.ledger.Event(e)
}

// add adds a hold whose begin was seen.
func (c *holdCollector) add(lock keyspace.ID, h *holds.Hold) {
	read, _ := h.From.Latest()
	l, acquired := c.locks[lock]
	if h.From.Grade == holds.NotAfter || !acquired {
		return
	}
	s := seenHold{read: read.Sub(c.begin), alone: !h.Shared, handedOver: h.End.Kind == keyspace.HandedOver}
	s.Kind, s.Permits, s.Reader, s.Begin, s.End = loadgen.Kind(l.Kind), l.Limit, h.Holder.Mode == keyspace.Read, s.read, h.To.At.Sub(c.begin)
	if since := h.Holder.Since; !since.IsZero() && since.Before(read) {
		s.Begin = since.Sub(c.begin) // the token contains it
	}
	if !slices.Contains(loadgen.Kinds(), s.Kind) {
		s.Kind = loadgen.Mutex
	}
	s.Key = number(c.keys, lock.Key)
	if h.Holder.Label != "" {
		s.Owner = number(c.owners, h.Holder.Label)
	}
	s.TTL = h.TTL
	if n := len(h.Renewed); n > 0 && h.Renewed[n-1].Sub(read) > h.TTL/10 { // a lock that is handed over may get its deadline twice
		s.Renewals, s.Renewed = h.Renewals, h.Renewed[n-1].Sub(c.begin)
		if n == h.Renewals && h.Renewed[0].Sub(read) <= h.TTL/10 {
			s.Renewals--
		}
	}
	switch h.End.Kind {
	case keyspace.Released, keyspace.HandedOver, keyspace.Replaced:
		s.Ending = fit.Released
	case keyspace.Expired:
		s.Ending = fit.Expired
	}
	c.seen = append(c.seen, s)
}

// settle corrects the times of the holds, and keeps those that began in the window. A token
// contains when its hold was asked for: of a lock that was free it is the begin, and it tells
// how much later the recorder reads a change.
func (c *holdCollector) settle() {
	c.ledger.Halt(c.begin.Add(c.window))
	slices.SortStableFunc(c.seen, func(a, b seenHold) int { return cmp.Compare(a.read, b.read) })
	lag, ping := c.lag(), median(c.pings)
	last := make(map[int]*seenHold) // by key
	for i := range c.seen {
		h := &c.seen[i]
		if h.Begin == h.read {
			h.Begin -= lag
		}
		if h.Ending == fit.Released {
			h.End -= lag
		}
		if was := last[h.Key]; was != nil && h.alone {
			if h.Begin < was.End && h.Begin > was.Begin && !was.handedOver {
				was.End = h.Begin
			}
			h.Begin = max(h.Begin, was.End)
		}
		h.End = max(h.End, h.Begin)
		last[h.Key] = h
	}
	for i := range c.seen {
		h := c.seen[i].Hold
		if h.Ending == fit.Released { // the server sees the reply to the acquire and the release in it, too
			h.End = max(h.End-ping, h.Begin)
		}
		if h.End > c.window {
			h.End, h.Ending = c.window, fit.Running
		}
		if h.Begin >= 0 && h.Begin < c.window {
			c.holds = append(c.holds, h)
		}
	}
}

// lag returns how much later than it happens a change is read, in half of the cases.
func (c *holdCollector) lag() time.Duration {
	var lags []time.Duration
	ends := make(map[int]time.Duration) // by key
	for _, h := range c.seen {
		if end, known := ends[h.Key]; h.alone && h.Begin < h.read && (!known || h.Begin > end) {
			lags = append(lags, h.read-h.Begin)
		}
		ends[h.Key] = h.End
	}
	return median(lags)
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// number returns the number of a name, from 1.
func number(of map[string]int, name string) int {
	if of[name] == 0 {
		of[name] = len(of) + 1
	}
	return of[name]
}

// busiest returns the names with the most holds.
func (c *holdCollector) busiest(numbers map[string]int, of func(fit.Hold) int) string {
	holds := make(map[int]int)
	for _, h := range c.holds {
		holds[of(h)]++
	}
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int { return cmp.Or(holds[numbers[b]]-holds[numbers[a]], strings.Compare(a, b)) })
	names = names[:min(len(names), 10)]
	return "Most holds: " + strings.Join(render.Each(names, func(name string) string { return fmt.Sprintf("%q %d", name, holds[numbers[name]]) }), ", ")
}
