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
	case o.window < 0:
		return usageErrorf("", "--for must not be negative")
	}
	return nil
}

// fitScenario prints the scenario that fits a part of a recording.
func (p *program) fitScenario(o *fitOptions) error {
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
	c := holdCollector{fitOptions: o, begin: begin, window: last.Sub(begin), open: map[openHold]int{}, keys: map[string]int{}, owners: map[string]int{}}
	if o.window > 0 && o.window < c.window {
		c.window = o.window
	}
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
	polled       time.Duration // time without pushed changes, or without frames
	seen         []seenHold
	pings        []time.Duration // round trips of the recorder
	holds        []fit.Hold
	open         map[openHold]int // positions of the holds that have not ended
	keys, owners map[string]int   // numbers of names
}

// seenHold is a hold as the recording has it.
type seenHold struct {
	fit.Hold
	lock       keyspace.ID
	read       time.Duration // when its acquire was read
	alone      bool          // it excludes others
	handedOver bool          // to a waiter of the queue: the token of the next hold is older than that
}

// openHold is a hold that has not ended.
type openHold struct {
	lock   keyspace.ID
	holder string
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
		for _, e := range snap.Events {
			if e.Kind == keyspace.Acquired {
				c.acquired(e)
			} else if e.Kind.Ends() {
				c.finished(e)
			}
		}
		for _, l := range snap.Locks {
			if i, known := c.open[openHold{l.ID().OnAnyNode(), l.SoleHolder()}]; known && l.Renewals > 0 {
				c.seen[i].Renewals, c.seen[i].Renewed = l.Renewals, l.Renewed.Sub(c.begin)
			}
		}
	}
	for _, i := range c.open {
		c.seen[i].End = c.window
	}
	c.settle()
	return nil
}

// acquired adds a hold.
func (c *holdCollector) acquired(e keyspace.Event) {
	l, id := e.Lock, e.Lock.ID().OnAnyNode()
	if globs := c.match; len(globs) > 0 && !slices.ContainsFunc(globs, func(g string) bool { return keyspace.MatchGlob(g, l.Key) }) {
		return
	}
	h := seenHold{lock: id, read: e.At.Sub(c.begin)}
	h.Kind, h.Permits, h.Reader, h.Begin = loadgen.Kind(l.Kind), l.Limit, e.Holder.Mode == keyspace.Read, h.read
	if since := e.Holder.Since; !since.IsZero() && since.Before(e.At) {
		h.Begin = since.Sub(c.begin) // the token contains it
	}
	h.alone = len(l.Holders) == 1 && !h.Reader
	h.Key = number(c.keys, l.Key)
	if e.Holder.Label != "" {
		h.Owner = number(c.owners, e.Holder.Label)
	}
	if !e.Holder.Expires.IsZero() {
		h.TTL = e.Holder.Expires.Sub(c.begin) - h.Begin
	}
	if !slices.Contains(loadgen.Kinds(), h.Kind) {
		h.Kind = loadgen.Mutex
	}
	c.open[openHold{id, e.Holder.ID}] = len(c.seen)
	c.seen = append(c.seen, h)
}

// finished ends a hold.
func (c *holdCollector) finished(e keyspace.Event) {
	id := openHold{e.Lock.ID().OnAnyNode(), e.Holder.ID}
	i, known := c.open[id]
	if !known {
		return
	}
	delete(c.open, id)
	h := &c.seen[i]
	h.End, h.handedOver = e.Ended().Sub(c.begin), e.Kind == keyspace.HandedOver
	switch e.Kind {
	case keyspace.Released, keyspace.HandedOver, keyspace.Replaced:
		h.Ending = fit.Released
	case keyspace.Expired:
		h.Ending = fit.Expired
	}
}

// settle corrects the times of the holds, and keeps those that began in the window. A token
// contains when its hold was asked for: of a lock that was free it is the begin, and it tells
// how much later the recorder reads a change.
func (c *holdCollector) settle() {
	lag, ping := c.lag(), median(c.pings)
	last := make(map[keyspace.ID]*seenHold)
	for i := range c.seen {
		h := &c.seen[i]
		if h.Begin == h.read {
			h.Begin -= lag
		}
		if h.Ending == fit.Released {
			h.End -= lag
		}
		if was := last[h.lock]; was != nil && h.alone {
			if h.Begin < was.End && h.Begin > was.Begin && !was.handedOver {
				was.End = h.Begin
			}
			h.Begin = max(h.Begin, was.End)
		}
		h.End = max(h.End, h.Begin)
		last[h.lock] = h
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
	ends := make(map[keyspace.ID]time.Duration)
	for _, h := range c.seen {
		if end, known := ends[h.lock]; h.alone && h.Begin < h.read && (!known || h.Begin > end) {
			lags = append(lags, h.read-h.Begin)
		}
		ends[h.lock] = h.End
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
