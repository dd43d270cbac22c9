// Package fit fits a scenario to holds that were recorded. Its input is plain numbers,
// without the names of keys and owners. Its figures say on how many holds they rest.
package fit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"locktop/loadgen"
)

// Hold is one hold that began in the window. Times count from the begin of the window.
type Hold struct {
	Key, Owner int // numbers; owner 0 is unknown
	Kind       loadgen.Kind
	Permits    int // of a semaphore; 0 = unknown
	Reader     bool
	Begin, End time.Duration // End: or when the hold was seen last
	Ending     Ending
	TTL        time.Duration // of the first lease; 0 = none
	Renewals   int           // that were seen
	Renewed    time.Duration // the last of them
}

// Ending is how a hold ended.
type Ending int

// Endings.
const (
	Running  Ending = iota // it did not end, or its holder did not end it: a deletion, a failover
	Released               // by its holder
	Expired                // at its deadline: its holder has crashed, or worked for longer
)

// Fit is a scenario with notes.
type Fit struct {
	Scenario loadgen.Scenario
	Notes    map[string][]string // sentences by the key of the scenario file; name: about the file
}

// Note adds a sentence about a key of the scenario file.
func (f *Fit) Note(key, format string, args ...any) {
	f.Notes[key] = append(f.Notes[key], fmt.Sprintf(format, args...))
}

// YAML returns the scenario as a file, with the notes as comments.
func (f *Fit) YAML() []byte {
	var b strings.Builder
	for line := range strings.Lines(string(f.Scenario.Marshal())) {
		key, _, _ := strings.Cut(line, ":")
		for _, n := range f.Notes[key] {
			b.WriteString("# " + n + "\n")
		}
		b.WriteString(line)
	}
	return []byte(b.String())
}

// ErrNoHolds means that no hold began in the window.
var ErrNoHolds = errors.New("no hold began")

// Scenario fits a scenario, in the open model, to the holds that began in a window. Those
// that began before it are left out: mostly the long ones are seen there.
func Scenario(holds []Hold, window time.Duration) (*Fit, error) {
	if len(holds) == 0 {
		return nil, ErrNoHolds
	}
	slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	f := &Fit{Notes: make(map[string][]string)}
	f.Scenario.Name = "recorded"
	f.Scenario.Caption = "A load with the figures of a recording. The comments of its file say how well they fit."
	f.arrivals(holds, window)
	f.keys(holds)
	f.lock(holds)
	f.times(holds, window)
	return f, f.Scenario.Validate()
}

// arrivals sets the rate, its stages and the spacing.
func (f *Fit) arrivals(holds []Hold, window time.Duration) {
	s, n := &f.Scenario, float64(len(holds))
	f.Note("rate", "From %d holds. Attempts were not seen: the rate is a lower bound.", len(holds))
	s.Rate, s.Duration = tidy(n/window.Seconds(), 0.005), max(window.Round(time.Second), time.Second)
	bins := max(min(60, len(holds)/20), 1)
	counts := make([]float64, bins)
	for _, h := range holds {
		counts[min(int(h.Begin)*bins/int(window), bins-1)]++
	}
	ends := splits(counts)
	part := window.Seconds() / float64(bins)
	from, before := 0, 0.0
	var times []float64 // of the begins, if each stage had a rate of 1/s
	for _, end := range ends {
		inside := 0.0
		for _, c := range counts[from:end] {
			inside += c
		}
		stage := loadgen.Stage{For: seconds(float64(end-from) * part), Rate: tidy(max(inside, 0.5)/(float64(end-from)*part), 0.005)} // 0 would be the rate before
		for _, h := range holds[int(before):int(before+inside)] {
			times = append(times, before+inside*(h.Begin.Seconds()-float64(from)*part)/(float64(end-from)*part))
		}
		from, before = end, before+inside
		s.Stages = append(s.Stages, stage)
	}
	if len(s.Stages) == 1 {
		s.Stages = nil
	} else {
		f.Note("stages", "Between two stages the rate changes by 30 %% or more.")
		s.Duration = 0
	}
	s.Arrivals = loadgen.Poisson
	if len(times) < 100 {
		f.Note("arrivals", "There are too few holds to tell how they are spaced.")
		return
	}
	cells := make([]float64, max(20, min(100, len(times)/50)))
	index, mean := 0.0, n/float64(len(cells))
	for _, t := range times {
		cells[min(int(t/mean), len(cells)-1)]++
	}
	for _, c := range cells {
		index += (c - mean) * (c - mean) / mean / float64(len(cells)-1)
	}
	if index < 0.5 {
		s.Arrivals = loadgen.Even
	}
	fits := map[bool]string{true: ", a bad fit: they come in bursts"}[index > 2]
	f.Note("arrivals", "The index of dispersion of the begins is %.2f (even 0, poisson 1)%s.", index, fits)
}

// splits divides counts of equal times into parts of different rates, and returns their
// ends: it splits where the likelihood of Poisson counts gains most, until nothing is
// gained or the rates differ by less than 30 % (binary segmentation, Scott and Knott, 1974).
func splits(counts []float64) []int {
	term := func(n, cells float64) float64 { return n * math.Log(max(n, 1)/cells) }
	var divide func(from, to int) []int
	divide = func(from, to int) []int {
		all, left, most, at := 0.0, 0.0, 3*math.Log(float64(len(counts))), 0
		for _, c := range counts[from:to] {
			all += c
		}
		for i := from + 1; i < to; i++ {
			left += counts[i-1]
			a, b := float64(i-from), float64(to-i)
			if gain := term(left, a) + term(all-left, b) - term(all, a+b); gain > most && max(left/a, (all-left)/b) > 1.3*min(left/a, (all-left)/b) {
				most, at = gain, i
			}
		}
		if at == 0 {
			return []int{to}
		}
		return append(divide(from, at), divide(at, to)...)
	}
	return divide(0, len(counts))
}

// lock sets the kind of lock, its TTL, the renewals and the share of readers.
func (f *Fit) lock(holds []Hold) {
	s, l := &f.Scenario, &f.Scenario.Lock
	kinds, readers := make(map[loadgen.Kind]int), 0
	var ttls []time.Duration
	var renewing time.Duration
	renewals, long := 0, 0
	for _, h := range holds {
		if kinds[h.Kind]++; kinds[h.Kind] > kinds[l.Kind] {
			l.Kind = h.Kind
		}
		if h.Reader {
			readers++
		}
		if h.TTL > 0 {
			ttls = append(ttls, h.TTL)
		}
		if h.Renewals > 0 {
			renewals, renewing = renewals+h.Renewals, renewing+h.Renewed-h.Begin
		} else if h.End-h.Begin > h.TTL*2/3 {
			long++
		}
	}
	f.Note("lock", "%d of %d holds are of the kind %s. How clients wait is unknown: notify is assumed.", kinds[l.Kind], len(holds), l.Kind)
	switch l.Kind {
	case loadgen.RW:
		s.Reads = tidy(float64(readers)/float64(kinds[l.Kind]), 0.005)
		f.Note("reads", "From %d readers.", readers)
	case loadgen.Semaphore:
		l.Permits = slices.MaxFunc(holds, func(a, b Hold) int { return a.Permits - b.Permits }).Permits
	}
	l.TTL = 5 * time.Second
	f.Note("lock", "%d holds have a TTL.", len(ttls))
	if n := len(ttls); n > 0 {
		slices.Sort(ttls)
		// A recording sees a TTL of 5 s as 4.998 s.
		l.TTL = max(time.Duration(tidy(float64(ttls[n/2]), 0.01)).Round(time.Millisecond), 10*time.Millisecond)
		f.Note("lock", "In half of them it is at most %s, in 90 %% from %s to %s.", l.TTL, ttls[n/20].Round(time.Millisecond), ttls[n*19/20].Round(time.Millisecond))
	}
	switch {
	case renewals > 0:
		every := renewing / time.Duration(renewals)
		l.Renew.PerTTL = max(int(math.Round(float64(l.TTL)/float64(every))), 2)
		if part := l.TTL / time.Duration(l.Renew.PerTTL); (part-every).Abs() > part/10 && every < l.TTL {
			l.Renew = loadgen.Renew{Every: seconds(every.Seconds())}
		}
		f.Note("lock", "%d renewals were seen, one every %s.", renewals, seconds(every.Seconds()))
	case long > 0:
		l.Renew.Off = true
		f.Note("lock", "%d holds lasted for more than 2/3 of their TTL, and none was renewed.", long)
	default:
		f.Note("lock", "No hold lasted long enough to show whether holders renew.")
	}
}

// times sets the time for which a lock is held and, from the times between the holds of
// an owner, the think time. It also sets the number of clients.
func (f *Fit) times(holds []Hold, window time.Duration) {
	s := &f.Scenario
	ends, busy, all := make(map[Ending]int), make(map[int]time.Duration), time.Duration(0)
	for _, h := range holds {
		ends[h.Ending]++
		busy[h.Key] += h.End - h.Begin
		all += h.End - h.Begin
	}
	var held, gaps []sample
	last := make(map[int]Hold)
	for _, h := range holds {
		ended := h.Ending == Released || h.Ending == Expired && ends[Expired] > ends[Released]
		held = append(held, sample{max((h.End - h.Begin).Seconds(), 1e-4), !ended})
		if before, known := last[h.Owner]; known && before.Ending == Released && h.Begin > before.End {
			gaps = append(gaps, sample{(h.Begin - before.End).Seconds(), false})
		}
		if h.Owner > 0 {
			last[h.Owner] = h
		}
	}
	var note string
	s.Hold, note = distribution(held)
	f.Note("hold", "%s %d holds ended by a release, %d by expiry.", note, ends[Released], ends[Expired])
	for _, b := range busy {
		if s.Lock.Limit() == 1 && s.Reads == 0 && b > window*95/100 {
			f.Note("rate", "A key was held for %.0f %% of the time: many more attempts may have failed.", 100*b.Seconds()/window.Seconds())
		}
	}
	s.Clients = min(20+int(20*all.Seconds()/window.Seconds()), 10_000)
	f.Note("clients", "Clients that serve the arrivals: 20, and 20 for each lock that is held on average.")
	if len(gaps) < 20 || len(gaps) < 2*len(last) {
		return
	}
	for _, h := range last {
		if h.Ending == Released && h.End < window {
			gaps = append(gaps, sample{(window - h.End).Seconds(), true})
		}
	}
	s.Think, note = distribution(gaps)
	f.Note("think", "Counts only without a rate, and with %d clients: so many owners were seen. It contains their waits. %s", len(last), note)
}
