package tui

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// formField is a field of the scenario form. The user can change it in steps or type a value.
type formField struct {
	name  string
	shown func(loadgen.Scenario) bool // nil means always
	value func(loadgen.Scenario) string
	step  func(s *loadgen.Scenario, direction int)
	parse func(s *loadgen.Scenario, text string) error
}

// formFields returns the fields that apply to a scenario, from top to bottom.
func formFields(s loadgen.Scenario) []formField {
	return slices.DeleteFunc(allFormFields(), func(k formField) bool { return k.shown != nil && !k.shown(s) })
}

// own reports whether the clients are ours, and no processes.
func own(s loadgen.Scenario) bool { return s.Lock.Kind != loadgen.Exec }

func allFormFields() []formField {
	return []formField{
		{"lock", own,
			func(s loadgen.Scenario) string { return string(s.Lock.Kind) },
			func(s *loadgen.Scenario, d int) {
				setKind(s, cycle(loadgen.Kinds(), s.Lock.Kind, d))
			},
			func(s *loadgen.Scenario, text string) error {
				if !slices.Contains(loadgen.Kinds(), loadgen.Kind(text)) {
					return fmt.Errorf("%q is none of %s", text, strings.Join(mapped(loadgen.Kinds(), func(k loadgen.Kind) string { return string(k) }), " "))
				}
				setKind(s, loadgen.Kind(text))
				return nil
			},
		},
		{"clients", nil,
			func(s loadgen.Scenario) string {
				if s.Conns > 0 && s.Clients > s.Conns { // the other clients queue in memory, as goroutines of one process do
					return humanize.Count(s.Clients) + " on " + humanize.Plural(s.Conns, "connection")
				}
				return humanize.Count(s.Clients)
			},
			func(s *loadgen.Scenario, d int) { s.Clients = step(s.Clients, d) },
			func(s *loadgen.Scenario, text string) error { return number(&s.Clients, text) },
		},
		{"keys", nil,
			func(s loadgen.Scenario) string {
				if s.Keys.N == 1 {
					return "1 key"
				}
				return humanize.Plural(s.Keys.N, "key") + ", " + string(s.Keys.Pick)
			},
			func(s *loadgen.Scenario, d int) { s.Keys.N = max(step(s.Keys.N, d), s.Lock.KeysPerHold) },
			func(s *loadgen.Scenario, text string) error { return number(&s.Keys.N, text) },
		},
		{"permits", func(s loadgen.Scenario) bool { return s.Lock.Permits > 0 },
			func(s loadgen.Scenario) string { return humanize.Plural(s.Lock.Permits, "client") + " at once" },
			func(s *loadgen.Scenario, d int) { s.Lock.Permits = step(s.Lock.Permits, d) },
			func(s *loadgen.Scenario, text string) error { return number(&s.Lock.Permits, text) },
		},
		{"per hold", func(s loadgen.Scenario) bool { return s.Lock.KeysPerHold > 0 },
			func(s loadgen.Scenario) string { return humanize.Plural(s.Lock.KeysPerHold, "key") },
			func(s *loadgen.Scenario, d int) { s.Lock.KeysPerHold = min(step(s.Lock.KeysPerHold, d), s.Keys.N) },
			func(s *loadgen.Scenario, text string) error { return number(&s.Lock.KeysPerHold, text) },
		},
		{"lease", nil,
			func(s loadgen.Scenario) string { return humanize.Setting(s.Lock.TTL) },
			func(s *loadgen.Scenario, d int) {
				s.Lock.TTL = scaleDist(s.Lock.TTL, d)
				s.Lock.Renew.Every = 0
			},
			func(s *loadgen.Scenario, text string) error {
				s.Lock.Renew.Every = 0
				if err := duration(&s.Lock.TTL, text, ""); err != nil || s.Lock.TTL != 0 {
					return err
				}
				return errors.New("must be above 0") // 0 would stand for the default
			},
		},
		{"renewal", func(s loadgen.Scenario) bool { return s.Lock.Kind.Renews() },
			func(s loadgen.Scenario) string {
				switch {
				case s.Lock.Renew.Off:
					return "off"
				case s.Lock.Renew.Max > 0:
					return "at most " + humanize.Plural(s.Lock.Renew.Max, "time")
				default:
					return "on"
				}
			},
			func(s *loadgen.Scenario, _ int) { s.Lock.Renew = loadgen.Renew{Off: !s.Lock.Renew.Off} },
			func(s *loadgen.Scenario, text string) error { return onOff(&s.Lock.Renew.Off, text, "off", "on") },
		},
		{"waiting", func(s loadgen.Scenario) bool {
			return own(s) && s.Lock.Kind.Sound() && s.Lock.Kind != loadgen.Fair
		},
			func(s loadgen.Scenario) string {
				if s.Lock.Wait.Poll > 0 {
					return "polls every " + humanize.Setting(s.Lock.Wait.Poll)
				}
				return "notified"
			},
			func(s *loadgen.Scenario, _ int) {
				if s.Lock.Wait.Poll > 0 {
					s.Lock.Wait = loadgen.Wait{}
				} else {
					s.Lock.Wait = loadgen.Wait{Poll: 20 * time.Millisecond, Jitter: 0.5}
				}
			},
			func(s *loadgen.Scenario, text string) error { return duration(&s.Lock.Wait.Poll, text, "notified") },
		},
		{"fence", func(s loadgen.Scenario) bool { return s.Lock.Kind.Fences() },
			func(s loadgen.Scenario) string { return map[bool]string{true: "checked", false: "off"}[s.Lock.Fence] },
			func(s *loadgen.Scenario, _ int) { s.Lock.Fence = !s.Lock.Fence },
			func(s *loadgen.Scenario, text string) error { return onOff(&s.Lock.Fence, text, "checked", "off") },
		},
		{"hold", nil,
			func(s loadgen.Scenario) string { return dist(s.Hold) },
			func(s *loadgen.Scenario, d int) { s.Hold = nextStep(s.Hold, d) },
			func(s *loadgen.Scenario, text string) (err error) {
				s.Hold, err = loadgen.ParseDist(text)
				return err
			},
		},
		{"think", func(s loadgen.Scenario) bool { return s.Rate == 0 },
			func(s loadgen.Scenario) string { return dist(s.Think) },
			func(s *loadgen.Scenario, d int) { s.Think = nextStep(s.Think, d) },
			func(s *loadgen.Scenario, text string) (err error) {
				s.Think, err = loadgen.ParseDist(text)
				return err
			},
		},
		{"rate", nil,
			func(s loadgen.Scenario) string {
				if s.Rate == 0 {
					return "none: clients come back after think"
				}
				return fmt.Sprintf("%g arrivals/s", s.Rate)
			},
			func(s *loadgen.Scenario, d int) { s.Rate = rateAfter(s.Rate, d) },
			func(s *loadgen.Scenario, text string) (err error) {
				if text == "none" {
					text = "0"
				}
				s.Rate, err = loadgen.ParseRate(text)
				return err
			},
		},
		{"connections", nil,
			func(s loadgen.Scenario) string { return "at most " + humanize.Count(s.Conns) },
			func(s *loadgen.Scenario, d int) { s.Conns = step(s.Conns, d) },
			func(s *loadgen.Scenario, text string) error { return number(&s.Conns, text) },
		},
		{"reads", func(s loadgen.Scenario) bool { return s.Reads > 0 || s.Lock.Kind == loadgen.RW },
			func(s loadgen.Scenario) string { return fmt.Sprintf("%.0f%%", 100*s.Reads) },
			func(s *loadgen.Scenario, d int) { s.Reads = max(0, min(1, s.Reads+0.1*float64(d))) },
			func(s *loadgen.Scenario, text string) error {
				percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
				if err != nil {
					return fmt.Errorf("%q is not a percentage such as 80%%", text)
				}
				s.Reads = percent / 100
				return nil
			},
		},
		{"wait limit", nil,
			func(s loadgen.Scenario) string {
				if s.Patience == 0 {
					return "none"
				}
				return humanize.Setting(s.Patience)
			},
			func(s *loadgen.Scenario, d int) { s.Patience = patienceAfter(s.Patience, d) },
			func(s *loadgen.Scenario, text string) error { return duration(&s.Patience, text, "none") },
		},
	}
}

// setKind changes the kind of lock. It removes what may not apply to the new kind, but keeps TTL,
// renewal and fence if k supports them.
func setKind(s *loadgen.Scenario, k loadgen.Kind) {
	l := s.Lock
	s.Lock = loadgen.Lock{Kind: k, TTL: l.TTL, Renew: loadgen.Renew{Off: l.Renew.Off}, Fence: l.Fence && k.Fences()}
	s.Reads, s.Depth, s.Faults = 0, 0, nil
	if k.Several() {
		s.Keys.N = max(s.Keys.N, 2)
	}
}

// cycle returns the element by places after now and wraps around.
func cycle[T comparable](all []T, now T, by int) T {
	return all[(slices.Index(all, now)+by+len(all))%len(all)]
}

// scaleDist returns the next longer or shorter duration of the series 1, 2, 5, 10, 20, 50 … ms.
func scaleDist(d time.Duration, direction int) time.Duration {
	all := []time.Duration{0}
	for unit := time.Millisecond; unit < time.Hour; unit *= 10 {
		all = append(all, unit, 2*unit, 5*unit)
	}
	if direction > 0 && d > all[len(all)-1] {
		return d
	}
	return neighbour(all, d, direction)
}

// nextStep returns the distribution with the next longer or shorter typical value.
func nextStep(d loadgen.Dist, direction int) loadgen.Dist {
	now := d.Typical()
	next := scaleDist(now, direction)
	if now == 0 || next == 0 {
		return loadgen.Const(next)
	}
	return d.Scaled(float64(next) / float64(now))
}

// rateAfter returns the next higher or lower rate per second. Below 10/s, the rate is 0: a
// closed model.
func rateAfter(rate float64, direction int) float64 {
	switch {
	case rate == 0 && direction < 0:
		return 0
	case rate <= 10 && direction < 0:
		return 0
	case rate == 0:
		return 10
	}
	return min(float64(scaleDist(time.Duration(rate)*time.Millisecond, direction)/time.Millisecond), loadgen.MaxRate)
}

// patienceAfter returns the next longer or shorter wait limit, from 50 ms to 10 s. Above 10 s,
// the limit is 0: none.
func patienceAfter(d time.Duration, direction int) time.Duration {
	const longest = 10 * time.Second
	switch {
	case d == 0 && direction > 0, d == longest && direction > 0:
		return 0
	case d == 0:
		return longest
	default:
		return max(50*time.Millisecond, min(longest, scaleDist(d, direction)))
	}
}

// number parses a number of things. It refuses 0, which in a scenario stands for the default.
func number(n *int, text string) error {
	v, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a whole number", text)
	case v == 0:
		return errors.New("must be above 0")
	}
	*n = v
	return nil
}

// duration parses a time; zero is the word for 0, if there is one.
func duration(d *time.Duration, text, zero string) error {
	if zero != "" && text == zero || text == "0" {
		*d = 0
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a time like 500ms or 2m", text)
	}
	*d = v
	return nil
}

// formWords gives the reasons of loadgen the names of the form's fields.
func formWords(err error) string {
	return strings.NewReplacer(
		"ttl must", "lease must", "the ttl of", "the lease of", "conns must", "connections must", "patience must", "wait limit must",
		"keys-per-hold", "per hold", "wait: poll must", "waiting must", "h0m0s", "h", "m0s", "m",
	).Replace(widget.Plain(err.Error()))
}

// onOff sets flag to true for yes and false for no. Other texts are errors.
func onOff(flag *bool, text, yes, no string) error {
	if text != yes && text != no {
		return fmt.Errorf("%q is neither %s nor %s", text, yes, no)
	}
	*flag = text == yes
	return nil
}
