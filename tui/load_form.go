package tui

import (
	"cmp"
	"fmt"
	"reflect"
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

// allFormFields returns the settings that have a place in the form, in its order. special has what a field does
// differently from others of its type.
func allFormFields() []formField {
	places, fields := []int{}, map[int]formField{}
	for _, x := range loadgen.Settings() {
		number, name, found := strings.Cut(x.Form, " ")
		if !found {
			continue
		}
		k, other := typedField(x), special[name]
		k.name, k.shown = name, other.shown
		k.value, k.step, k.parse = either(other.value, k.value), either(other.step, k.step), either(other.parse, k.parse)
		place, _ := strconv.Atoi(number)
		places, fields[place] = append(places, place), k
	}
	slices.Sort(places)
	return mapped(places, func(place int) formField { return fields[place] })
}

func either[F func(loadgen.Scenario) string | func(*loadgen.Scenario, int) | func(*loadgen.Scenario, string) error](a, b F) F {
	if a != nil {
		return a
	}
	return b
}

// typedField returns the field of a setting by the type of its value.
func typedField(x loadgen.Setting) formField {
	return formField{
		value: func(s loadgen.Scenario) string {
			switch v := x.In(&s).(type) {
			case *int:
				return cmp.Or(map[int]string{0: "none"}[*v], humanize.Count(*v))
			case *time.Duration:
				return cmp.Or(map[time.Duration]string{0: "none"}[*v], humanize.Setting(*v))
			case *loadgen.Dist:
				return dist(*v)
			case *bool:
				return map[bool]string{true: "on", false: "off"}[*v]
			case *float64:
				return fmt.Sprintf("%.0f%%", 100**v)
			default:
				return fmt.Sprint(reflect.ValueOf(v).Elem())
			}
		},
		step: func(s *loadgen.Scenario, d int) {
			switch v := x.In(s).(type) {
			case *int:
				*v = step(*v, d)
			case *time.Duration:
				*v = patienceAfter(*v, d)
			case *loadgen.Dist:
				*v = nextStep(*v, d)
			case *bool:
				*v = !*v
			case *float64:
				*v = max(0, min(1, *v+0.1*float64(d)))
			case *loadgen.Pick:
				*v = cycle(loadgen.Picks(), *v, d)
			case *loadgen.Arrivals:
				*v = cycle([]loadgen.Arrivals{loadgen.Even, loadgen.Poisson}, *v, d)
			}
		},
		parse: func(s *loadgen.Scenario, text string) error {
			return s.Set(x.Key, cmp.Or(map[string]string{"none": "0"}[text], text))
		},
	}
}

// takes reports whether the lock of a scenario goes with a change.
func takes(s loadgen.Scenario, change func(*loadgen.Scenario)) bool {
	s = loadgen.Scenario{Lock: s.Lock, Keys: s.Keys}
	change(&s)
	return s.Validate() == nil
}

var special = map[string]formField{
	"lock": {
		shown: own,
		step:  func(s *loadgen.Scenario, d int) { setKind(s, cycle(loadgen.Kinds(), s.Lock.Kind, d)) },
		parse: func(s *loadgen.Scenario, text string) error {
			setKind(s, loadgen.Kind(text))
			return nil
		},
	},
	"clients": {value: func(s loadgen.Scenario) string {
		if s.Conns > 0 && s.Clients > s.Conns { // the other clients queue in memory, as goroutines of one process do
			return humanize.Count(s.Clients) + " on " + humanize.Plural(s.Conns, "connection")
		}
		return humanize.Count(s.Clients)
	}},
	"keys": {
		value: func(s loadgen.Scenario) string {
			if s.Keys.N == 1 {
				return "1 key"
			}
			return humanize.Plural(s.Keys.N, "key") + ", " + string(s.Keys.Pick)
		},
		step: func(s *loadgen.Scenario, d int) { s.Keys.N = max(step(s.Keys.N, d), s.Lock.KeysPerHold) },
	},
	"permits": {
		shown: func(s loadgen.Scenario) bool { return s.Lock.Permits > 0 },
		value: func(s loadgen.Scenario) string { return humanize.Plural(s.Lock.Permits, "client") + " at once" },
	},
	"per hold": {
		shown: func(s loadgen.Scenario) bool { return s.Lock.KeysPerHold > 0 },
		value: func(s loadgen.Scenario) string { return humanize.Plural(s.Lock.KeysPerHold, "key") },
		step:  func(s *loadgen.Scenario, d int) { s.Lock.KeysPerHold = min(step(s.Lock.KeysPerHold, d), s.Keys.N) },
	},
	"lease": {
		step: func(s *loadgen.Scenario, d int) { s.Lock.TTL, s.Lock.Renew.Every = scaleDist(s.Lock.TTL, d), 0 },
		parse: func(s *loadgen.Scenario, text string) error {
			s.Lock.Renew.Every = 0
			return s.Set("lock.ttl", text)
		},
	},
	"renewal": {
		shown: func(s loadgen.Scenario) bool { return s.Lock.Kind.Renews() },
		value: func(s loadgen.Scenario) string { return map[bool]string{true: "off", false: "on"}[s.Lock.Renew.Off] },
		step:  func(s *loadgen.Scenario, _ int) { s.Lock.Renew = loadgen.Renew{Off: !s.Lock.Renew.Off} },
	},
	"renew limit": {
		shown: func(s loadgen.Scenario) bool { return s.Lock.Kind.Renews() && own(s) && !s.Lock.Renew.Off },
		step:  func(s *loadgen.Scenario, d int) { s.Lock.Renew.Max = max(0, s.Lock.Renew.Max+d) },
	},
	"waiting": {
		shown: func(s loadgen.Scenario) bool {
			return own(s) && s.Lock.Kind.Sound() && s.Lock.Kind != loadgen.Fair
		},
		value: func(s loadgen.Scenario) string {
			if s.Lock.Wait.Poll > 0 {
				return "polls every " + humanize.Setting(s.Lock.Wait.Poll)
			}
			return "notified"
		},
		step: func(s *loadgen.Scenario, _ int) {
			if s.Lock.Wait.Poll > 0 {
				s.Lock.Wait = loadgen.Wait{}
			} else {
				s.Lock.Wait = loadgen.Wait{Poll: 20 * time.Millisecond, Jitter: 0.5}
			}
		},
		parse: func(s *loadgen.Scenario, text string) error {
			if poll, err := time.ParseDuration(text); err == nil {
				s.Lock.Wait.Poll = poll
				return nil
			}
			return s.Set("lock.wait", cmp.Or(map[string]string{"notified": "notify"}[text], text))
		},
	},
	"fence": {shown: func(s loadgen.Scenario) bool { return s.Lock.Kind.Fences() }},
	"think": {shown: func(s loadgen.Scenario) bool { return s.Rate == 0 }},
	"rate": {
		value: func(s loadgen.Scenario) string {
			if s.Rate == 0 {
				return "none: clients come back after think"
			}
			return fmt.Sprintf("%g arrivals/s", s.Rate)
		},
		step: func(s *loadgen.Scenario, d int) { s.Rate = rateAfter(s.Rate, d) },
	},
	"arrivals":    {shown: func(s loadgen.Scenario) bool { return s.Rate > 0 }},
	"connections": {value: func(s loadgen.Scenario) string { return "at most " + humanize.Count(s.Conns) }},
	"reads":       {shown: func(s loadgen.Scenario) bool { return takes(s, func(s *loadgen.Scenario) { s.Reads = 0.5 }) }},
	"entries":     {shown: func(s loadgen.Scenario) bool { return takes(s, func(s *loadgen.Scenario) { s.Depth = 2 }) }},
	"key choice":  {shown: func(s loadgen.Scenario) bool { return s.Keys.N > 1 }},
}

// setKind changes the kind of lock. It removes what may not apply to the new kind, but keeps TTL,
// renewal and fence if k supports them.
func setKind(s *loadgen.Scenario, k loadgen.Kind) {
	l := s.Lock
	s.Lock = loadgen.Lock{Kind: k, TTL: l.TTL, Renew: loadgen.Renew{Off: l.Renew.Off}, Fence: l.Fence && k.Fences()}
	s.Reads, s.Depth, s.Faults = 0, 0, nil
	s.Usual()
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

// formWords gives the reasons of loadgen the names of the form's fields.
func formWords(err error) string {
	return strings.NewReplacer(
		"ttl must", "lease must", "the ttl of", "the lease of", "conns must", "connections must", "patience must", "wait limit must",
		"keys-per-hold", "per hold", "wait: poll must", "waiting must", "h0m0s", "h", "m0s", "m",
	).Replace(widget.Plain(err.Error()))
}
