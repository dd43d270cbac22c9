package loadgen

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/lock/classic"
)

// Kind is a kind of lock.
type Kind string

// The kinds of package lock. The historic kinds are "classic/" and the name of a form
// of package classic.
const (
	Mutex     Kind = "mutex"
	Reentrant Kind = "reentrant"
	RW        Kind = "rw"
	Fair      Kind = "fair"
	Redlock   Kind = "redlock"
	Semaphore Kind = "semaphore"
	All       Kind = "all"    // several keys with one hold
	Nested    Kind = "nested" // several keys, one after the other, each a fair lock of its own
)

const classicPrefix = "classic/"

// Kinds returns all kinds, the sound ones first.
func Kinds() []Kind {
	all := []Kind{Mutex, Reentrant, RW, Fair, Redlock, Semaphore, All, Nested}
	for _, f := range classic.Forms() {
		all = append(all, Kind(classicPrefix+f.Name))
	}
	return all
}

// Sound reports whether the kind promises that two holders are never inside at the same
// time. The historic kinds break that promise.
func (k Kind) Sound() bool { return !strings.HasPrefix(string(k), classicPrefix) }

// formOf returns the historic form of a kind, the zero value if there is none. It is no method: the
// methods of Kind are in the compiled form of every package that names a Kind, and a Redis client in
// the type of one costs each of them a second of compile time.
func formOf(k Kind) classic.Form {
	for _, f := range classic.Forms() {
		if Kind(classicPrefix+f.Name) == k {
			return f
		}
	}
	return classic.Form{}
}

// Quorum reports whether the lock is on several independent servers.
func (k Kind) Quorum() bool { return k == Redlock || formOf(k).NewQuorum != nil }

// permits reports whether the kind is a semaphore.
func (k Kind) permits() bool { return k == Semaphore || k == "classic/quorum-semaphore" }

// Fences reports whether the kind has fences that a protected resource can check. The
// holders of a semaphore have no order, and a hold of several keys has no fence.
func (k Kind) Fences() bool { return k.Sound() && k != Semaphore && !k.Several() }

// Several reports whether a client locks several keys.
func (k Kind) Several() bool { return k == All || k == Nested }

// shared reports whether the kind has, or may have, readers.
func (k Kind) shared() bool {
	return k == RW || k == Exec || formOf(k).NewReader != nil
}

func (k Kind) reentrant() bool {
	return k == Reentrant || k == RW || k == Exec || k == "classic/counted"
}

// Renews reports whether holders renew their leases. Of the historic kinds only
// classic/counted does.
func (k Kind) Renews() bool { return k.Sound() || k == "classic/counted" }

// clocked reports whether the kind uses the clocks of the clients. Whether a client
// process does, its hello says.
func (k Kind) clocked() bool {
	return k == "classic/getset" || k == "classic/stamp-rw" || k == "classic/quorum-semaphore"
}

// steps returns the commands of the kind before which a fault can affect a client.
func (k Kind) steps() (names []string) {
	for _, step := range formOf(k).Steps {
		names = append(names, string(step))
	}
	return names
}

// Lock describes the lock and how clients use it.
type Lock struct {
	Kind  Kind          `yaml:"kind,short" default:"mutex" flag:"kind" usage:"<kind> of lock: {kinds}" form:"1 lock"`
	TTL   time.Duration `yaml:"ttl,positive" default:"5s" flag:"ttl" usage:"<time> to live of a lease (default 5s)" form:"6 lease"`
	Renew Renew         `yaml:"renew" flag:"renew" usage:"<renewal> of the leases: on, off or {every: ttl/3, max: 4} (default on)" form:"7 renewal"`
	Wait  Wait          `yaml:"wait" flag:"wait" usage:"<way> to wait: notify, poll or {poll: 50ms, jitter: 0.5, tries: 20} (default notify)" form:"8 waiting"`
	Fence bool          `yaml:"fence" flag:"fence" usage:"<true>: use fencing tokens, and refuse stale writes" form:"9 fence"`
	// Serve waiters in order of arrival, as fair does; of a client process: judge that it does.
	Order bool `yaml:"order" flag:"order" usage:"<true>: serve waiters in order of arrival, which fair does; a client process is judged by it"`

	Permits int `yaml:"permits,positive" flag:"permits" usage:"<number> of clients that may hold a semaphore at the same time (default 2)" form:"4 permits"`
	// Of all and nested: how many keys a client locks together, the picked one and the next ones; default 2.
	KeysPerHold int    `yaml:"keys-per-hold,positive" flag:"keys-per-hold" usage:"<number> of keys that a client locks together, for the kinds all and nested (default 2)" form:"5 per hold"`
	Exec        string `yaml:"exec"` // command of a client process instead of a kind; see [Exec]
}

// Limit returns how many clients may hold a key at once.
func (l Lock) Limit() int {
	if l.Kind.permits() {
		return cmp.Or(l.Permits, defaultPermits)
	}
	return max(l.Permits, 1)
}

// span returns how many keys a hold has.
func (l Lock) span() int {
	if l.Kind.Several() {
		return cmp.Or(l.KeysPerHold, defaultKeysPerHold)
	}
	return max(l.KeysPerHold, 1)
}

// TooMany names the clients that the lock must not let in at once: two clients, or more
// than a semaphore admits.
func (l Lock) TooMany() string {
	if limit := l.Limit(); limit > 1 {
		return fmt.Sprintf("more than %d clients", limit)
	}
	return "two clients"
}

// Limits of a lock.
const (
	maxPermits         = 10_000
	defaultPermits     = 2
	maxKeysPerHold     = 100
	defaultKeysPerHold = 2
)

// Renew describes the renewal of leases. The zero value renews at 1/3 of the TTL, as
// long as the holder works.
type Renew struct {
	Off    bool          // "renew: off" in a scenario file
	Every  time.Duration `yaml:"every,positive"`            // 0 = TTL/PerTTL
	PerTTL int           `yaml:"every,per-ttl"`             // renewals per TTL, if Every is 0; default 3
	Max    int           `yaml:"max" form:"17 renew limit"` // number of renewals, after which the lease expires; 0 = no limit
}

func (r Renew) withDefaults() Renew {
	r.PerTTL = cmp.Or(r.PerTTL, 3)
	if r.Every > 0 {
		r.PerTTL = 0
	}
	return r
}

// every returns the time between two renewals of a lease.
func (r Renew) every(ttl time.Duration) time.Duration {
	if r = r.withDefaults(); r.Every > 0 {
		return r.Every
	}
	return ttl / time.Duration(r.PerTTL)
}

// parsePerTTL parses a part of the TTL, like ttl/3.
func parsePerTTL(text string) (int, error) {
	by, found := strings.CutPrefix(text, "ttl/")
	n, err := strconv.Atoi(by)
	if !found || err != nil || n <= 1 {
		return 0, fmt.Errorf("%q is no part of the TTL", text)
	}
	return n, nil
}

// parseShort reads on or off.
func (r *Renew) parseShort(text string) error {
	on, known := map[string]bool{"on": true, "true": true, "off": false, "false": false}[text]
	if !known {
		return fmt.Errorf("%q is neither on nor off, nor like {every: ttl/3, max: 0}", text)
	}
	*r = Renew{Off: !on}
	return nil
}

func (r *Renew) shortText() string {
	if r.Off {
		return "off"
	}
	return ""
}

// Wait describes how clients wait for a held lock. The zero value subscribes to
// releases. The fair lock always has a queue. The historic kinds always poll.
type Wait struct {
	Poll   time.Duration `yaml:"poll"`                   // time between two tries
	Jitter float64       `yaml:"jitter,fraction,always"` // variation of Poll, 0 to 1
	Tries  int           `yaml:"tries"`                  // give up after this number of tries; 0 = never; needs Poll
}

// parseShort reads notify or poll.
func (w *Wait) parseShort(text string) error {
	switch text {
	case "notify", "fair", "queue":
		*w = Wait{}
	case "poll":
		*w = Wait{Poll: 50 * time.Millisecond, Jitter: 0.5}
	default:
		return fmt.Errorf("%q is neither notify nor poll, nor like {poll: 50ms, jitter: 0.5, tries: 20}", text)
	}
	return nil
}

func (w *Wait) shortText() string { return "" }

// classicPoll is the default poll interval of the historic kinds, which do not notify
// waiters.
const classicPoll = 20 * time.Millisecond

func (l Lock) withDefaults() Lock {
	if l.Exec != "" {
		l.Kind = cmp.Or(l.Kind, Exec)
	}
	setDefaults(reflect.ValueOf(&l).Elem())
	if !l.Renew.Off {
		l.Renew = l.Renew.withDefaults()
	}
	if l.Kind.permits() {
		l.Permits = l.Limit()
	}
	if l.Kind.Several() {
		l.KeysPerHold = l.span()
	}
	if !l.Kind.Sound() && l.Wait.Poll == 0 {
		l.Wait.Poll = classicPoll
		l.Wait.Jitter = cmp.Or(l.Wait.Jitter, 0.5)
	}
	return l
}

// minTTL is the shortest TTL that package lock accepts.
const minTTL = 10 * time.Millisecond

func (l Lock) validate() error {
	switch {
	case l.Kind != Exec && !slices.Contains(Kinds(), l.Kind):
		return fmt.Errorf("lock: kind must be one of %s, not %q", list(Kinds()), l.Kind)
	case l.TTL < minTTL || l.TTL > maxTime || l.TTL%time.Millisecond != 0:
		return fmt.Errorf("ttl must be %s to %s in whole milliseconds, not %s", minTTL, maxTime, l.TTL)
	case l.Renew.Every < 0 || l.Renew.Every >= l.TTL:
		return fmt.Errorf("renew: every must be less than the ttl of %s, not %s", l.TTL, l.Renew.Every)
	case l.Renew.Max < 0:
		return fmt.Errorf("renew: max must be 0 (no bound) or more, not %d", l.Renew.Max)
	case l.Wait.Poll < 0 || l.Wait.Poll > maxTime:
		return fmt.Errorf("wait: poll must be 0 to %s, not %s", maxTime, l.Wait.Poll)
	case !(l.Wait.Jitter >= 0 && l.Wait.Jitter <= 1):
		return fmt.Errorf("wait: jitter must be 0 to 1, not %g", l.Wait.Jitter)
	case l.Wait.Tries < 0:
		return fmt.Errorf("wait: tries must be 0 (no bound) or more, not %d", l.Wait.Tries)
	case l.Wait.Poll == 0 && (l.Wait.Tries > 0 || l.Wait.Jitter > 0):
		return fmt.Errorf("wait: tries and jitter go with poll")
	case (l.Kind == Fair || l.Kind == Nested) && l.Wait.Poll > 0:
		return fmt.Errorf("wait: the fair lock tells its waiters, and takes no poll")
	case l.Permits != 0 && !l.Kind.permits() && l.Kind != Exec:
		return fmt.Errorf("permits go with a semaphore (semaphore, classic/quorum-semaphore), not with %s", l.Kind)
	case l.Permits < 0 || l.Permits > maxPermits:
		return fmt.Errorf("permits must be 1 to %d, not %d", maxPermits, l.Permits)
	case l.KeysPerHold != 0 && !l.Kind.Several() && l.Kind != Exec:
		return fmt.Errorf("keys-per-hold goes with all and nested, not with %s", l.Kind)
	case l.KeysPerHold < 0 || l.KeysPerHold > maxKeysPerHold:
		return fmt.Errorf("keys-per-hold must be 1 to %d, not %d", maxKeysPerHold, l.KeysPerHold)
	case l.Order && l.Kind != Fair && l.Kind != Exec:
		return fmt.Errorf("order goes with fair, not with %s", l.Kind)
	case l.Fence && !l.Kind.Fences():
		return fmt.Errorf("fence: %s has no numbers that a resource can check; the kinds that do are mutex reentrant rw fair redlock", l.Kind)
	}
	if l.Kind.Sound() && l.Kind != Exec {
		if err := l.options().Validate(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
	}
	return l.validateExec()
}

// list joins words with spaces.
func list[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = string(w)
	}
	return strings.Join(words, " ")
}

// String describes the lock in a few words.
func (l Lock) String() string {
	l = l.withDefaults()
	if l.Kind == Exec {
		return "exec " + l.Exec + l.execSettings()
	}
	words := []string{string(l.Kind)}
	if l.Kind.permits() {
		words[0] += " " + strconv.Itoa(l.Permits)
	}
	if l.Kind.Several() {
		words[0] += " " + humanize.Plural(l.KeysPerHold, "key")
	}
	switch {
	case l.Kind == Fair, l.Kind == Nested:
	case l.Wait.Poll > 0:
		words = append(words, "poll "+short(l.Wait.Poll))
	default:
		words = append(words, "notify")
	}
	if l.Fence {
		words = append(words, "fence")
	}
	return strings.Join(words, ", ")
}
