package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/keyspace/order"
)

// selection holds the flags that select locks.
type selection struct {
	scan   inspect.ScanOptions // what all scans have in common
	lock   []string
	format string
	owner  string
	all    bool
	stuck  bool
	limits limits
	budget budget

	snoozedOrders []string // of a context; see order.Graph

	databases bool // more than one; lines for people name the database
}

func (s *selection) flags() *pflag.FlagSet {
	set := flagSection("Selection")
	set.StringArrayVar(&s.scan.Match, "match", nil, "only keys that match this `glob`; may be repeated")
	set.StringVar(&s.format, "format", "", "only locks of the format with this `name`; locktop formats lists them")
	set.StringVar(&s.owner, "owner", "", "only locks of this `holder`, by its label, its token, or the client in its token")
	set.StringArrayVar(&s.lock, "lock", nil, "treat keys that match this `glob` as locks, whatever their value; GLOB=owner:FIELD,until:FIELD says what fields of a hash or a JSON object mean: owner, mode, count, since or until; may be repeated")
	set.BoolVar(&s.all, "all", false, "also show keys that may be locks, except names that hundreds of keys share")
	set.BoolVar(&s.stuck, "stuck", false, "only locks with a finding; the column FINDINGS names it")
	set.Func("overdue", "limit of a hold as `GLOB=TIME`, like jobs:*=2h or leader=never, or 30m for all keys; may be repeated, the first match counts", s.limits.Set)
	set.Func("budget", "`share` of the server's CPU time that locktop may use, as 2% or full", s.budget.Set)
	set.Lookup("budget").DefValue = fmt.Sprint(100*inspect.DefaultShare, "%")
	return set
}

// check returns an error for an unknown format or an empty glob.
func (s *selection) check() error {
	if slices.Contains(s.lock, "") {
		return usageErrorf("as in --lock 'myapp:mutex:*'", "--lock needs a glob")
	}
	if s.format != "" && !slices.Contains(formatNames(), s.format) {
		return usageErrorf(nearest(s.format), "unknown format %q", s.format)
	}
	return nil
}

// nearest returns a hint with the formats whose names have a similar spelling, contain
// name or are part of it. If none or too many do, the hint names locktop formats.
func nearest(name string) string {
	known := formatNames()
	like := alike(name, known)
	for _, k := range known {
		if name != "" && strings.Contains(k, name) || len(k) > 2 && strings.Contains(name, k) {
			like = append(like, k)
		}
	}
	slices.Sort(like)
	like = slices.Compact(like)
	if len(like) == 0 || len(like) > maxHints {
		return "locktop formats lists them"
	}
	return "there is " + strings.Join(like, ", ")
}

const (
	maxHints    = 6 // greatest number of names in a hint
	maxMisspelt = 2 // greatest number of wrong letters in a name
)

// alike returns the known names that resemble name, by cobra's rule for commands.
func alike(name string, known []string) []string {
	all := cobra.Command{SuggestionsMinimumDistance: maxMisspelt}
	for _, k := range known {
		all.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	return all.SuggestionsFor(name)
}

// formats returns the formats with the patterns of --lock.
func (s *selection) formats() []keyspace.Format { return formats.WithUserPatterns(s.lock) }

// options returns the options of a scan for the selection. They do not restrict the
// format, because a key's format is known only after a test of all formats.
func (s *selection) options(db int, pace *inspect.Budget) inspect.ScanOptions {
	o := s.scan
	o.Formats, o.DB, o.Overdue, o.Budget = s.formats(), db, s.limits, pace
	if s.all {
		o.MinConfidence = keyspace.Possible
	}
	return o
}

// keyOptions returns the options to read single keys, whatever they hold.
func (s *selection) keyOptions(db int) inspect.ScanOptions {
	o := s.options(db, nil)
	o.Match, o.MinConfidence = nil, keyspace.Possible
	return o
}

// scanner returns a scanner for the selection in one database of one server.
func (s *selection) scanner(rdb inspect.Client, db int) *inspect.Scanner {
	o := s.options(db, s.budget.pace())
	o.Order = &order.Graph{Snoozed: s.snoozedOrders}
	return inspect.NewScanner(rdb, o)
}

// matches reports whether a lock with these findings is selected.
func (s *selection) matches(l *keyspace.Lock, found []keyspace.Finding) bool {
	return (s.format == "" || s.format == l.Format) && (!s.stuck || len(found) > 0) && (s.owner == "" || slices.ContainsFunc(l.Holders, s.owns))
}

// owns reports whether h is the holder of --owner.
func (s *selection) owns(h keyspace.Holder) bool {
	return h.ID == s.owner || h.Label == s.owner || h.ClientID() == s.owner
}

// filter returns the selected part of a snapshot.
func (s *selection) filter(snap keyspace.Snapshot) render.View {
	p := render.NewView(snap, s.databases)
	p.Locks, p.Events = nil, nil
	for _, e := range snap.Events {
		l := e.Lock
		l.Holders = append(slices.Clip(l.Holders), e.Holder) // who had it until then
		if s.matches(&l, p.Findings[e.Lock.ID()]) {
			p.Events = append(p.Events, e)
		}
	}
	for _, l := range snap.Locks {
		if s.matches(l, p.Findings[l.ID()]) {
			p.Locks = append(p.Locks, l)
		}
	}
	return p
}

// formatNames returns the names that --format takes. Many commands have the flag, and the formats
// are expensive to make.
var formatNames = sync.OnceValue(func() []string {
	return slices.Compact(render.Each(formats.WithUserPatterns([]string{"*"}), func(f keyspace.Format) string { return f.Name }))
})

// limits is the value of --overdue: the ages at which holds are overdue.
type limits []inspect.Overdue

// never is longer than any hold, and any run.
const never time.Duration = math.MaxInt64

// Set adds a limit. The glob may contain =, the duration may not.
func (l *limits) Set(s string) error {
	glob, text := "*", s
	if i := strings.LastIndexByte(s, '='); i >= 0 {
		glob, text = s[:i], s[i+1:]
	}
	after, err := time.ParseDuration(text)
	if text == "never" {
		after, err = never, nil
	}
	if err != nil || after <= 0 || glob == "" {
		return errors.New("not a limit like jobs:*=2h")
	}
	*l = append(*l, inspect.Overdue{Glob: glob, After: after})
	return nil
}

// budget is the value of --budget: the share of a server's time that scans may
// use. Zero means the default.
type budget float64

// Set parses the value of the flag.
func (b *budget) Set(s string) error {
	if s == "full" {
		*b = 1
		return nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(percent > 0) || percent > 100 {
		return errors.New("not a share")
	}
	*b = budget(percent / 100)
	return nil
}

// pace returns a new inspect.Budget with this share.
func (b budget) pace() *inspect.Budget {
	return inspect.NewBudget(cmp.Or(float64(b), inspect.DefaultShare))
}
