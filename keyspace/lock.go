// Package keyspace is the model of the locks in a Redis keyspace: snapshots in, events
// and findings out. A list of formats describes what a lock looks like; package formats
// has the list to use. Package inspect reads locks, package release changes them.
//
// The package is pure: it reads neither Redis nor a clock. Times are data; they are on
// the clock of the server that holds the keys.
package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Kind is the discipline of a lock, independent of the library that wrote it.
type Kind string

// The kinds of the JSON contract.
const (
	Mutex     Kind = "mutex"     // one holder with a depth of 1
	Reentrant Kind = "reentrant" // one holder with a depth
	RW        Kind = "rw"        // many readers or one writer
	Fair      Kind = "fair"      // one holder, the waiters in a queue
	Semaphore Kind = "semaphore" // a limited number of holders
	Redlock   Kind = "redlock"   // one holder by a majority of independent servers
	Latch     Kind = "latch"     // counted down to zero, without holders
	Unknown   Kind = "unknown"   // a lock by its name, of unknown layout
)

// Mode is how a holder holds the lock: alone or shared. It is empty for kinds without
// modes.
type Mode string

// The modes of a read/write lock.
const (
	Read  Mode = "read"
	Write Mode = "write"
)

// State sums up a lock at a moment.
type State string

// The states of the JSON contract.
const (
	Held      State = "held"    // it has a holder
	ReadHeld  State = "read"    // held by readers
	WriteHeld State = "write"   // held by a writer
	Free      State = "free"    // no holder and no waiter
	Waiting   State = "waiting" // no holder, but waiters
	Stuck     State = "stuck"   // held without a deadline for unusually long, or by a client that has disconnected
	Partial   State = "partial" // held on fewer servers than a quorum
	Lapsed    State = "expired" // the deadline in its value is over, but it still exists: any client may take it
)

// States lists all states in the order of the JSON contract.
func States() []State {
	return []State{Held, ReadHeld, WriteHeld, Free, Waiting, Stuck, Partial, Lapsed}
}

// Confidence is how certain a decoder is that a key is a lock of its format.
type Confidence uint8

// From "not of this format" upwards. Certain: the layout or the name belongs to one
// library only. Likely: a token with the shape of a lock's token and a second sign (a
// lock-like name, a TTL) agree. Possible: shown on request only.
const (
	No Confidence = iota
	Possible
	Likely
	Certain
)

// String returns the word that is used in JSON.
func (c Confidence) String() string { return confidences[c] }

var confidences = [...]string{No: "no", Possible: "possible", Likely: "likely", Certain: "certain"}

// MarshalText implements [encoding.TextMarshaler].
func (c Confidence) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Confidence) UnmarshalText(text []byte) error {
	i := slices.Index(confidences[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown confidence %q", text)
	}
	*c = Confidence(i)
	return nil
}

// Lock is one lock as it was read. It is a value: its slices never change after it has
// been returned.
//
// All times are on the clock of the server that holds the key.
type Lock struct {
	Key        string        `json:"key,omitzero"`    // any bytes, unchanged
	Format     string        `json:"format,omitzero"` // the name of its Format
	Confidence Confidence    `json:"confidence,omitzero"`
	Stamped    bool          `json:"stamped,omitzero"`   // Expires is stored in the value: unlike with a TTL, the lock may outlive it
	NoTTL      bool          `json:"no_ttl,omitzero"`    // its library sets no deadline, by design
	NoExtend   bool          `json:"no_extend,omitzero"` // others cannot set its deadline
	Unchecked  bool          `json:"unchecked,omitzero"` // an unlock does not check whose lock it is
	Kind       Kind          `json:"kind,omitzero"`
	Holders    []Holder      `json:"holders,omitzero"` // in a stable order
	Waiters    []Waiter      `json:"waiters,omitzero"` // the waiters that the format shows, in service order if that is known
	Expires    time.Time     `json:"expires,omitzero"`
	ReadAt     time.Time     `json:"-"`                      // when it was last read; zero = unknown
	Waiting    int           `json:"waiting,omitzero"`       // number of waiters, if the format shows only the number; see [Lock.WaiterCount]
	Remaining  int           `json:"remaining,omitzero"`     // permits left of a semaphore, or the count of a latch
	Limit      int           `json:"limit,omitzero"`         // permits of a semaphore; 0 = unknown
	Fence      int64         `json:"fence,omitzero"`         // last fencing token issued; 0 = none
	Whole      []string      `json:"-"`                      // the stored value, if a release compares all of it: of a hash each field and its value; nil = it was not read whole
	Evidence   []string      `json:"evidence,omitzero"`      // evidence that it is a lock of this format, one clause each
	OverdueIn  time.Duration `json:"overdue_in_ns,omitzero"` // a hold that lasts longer is overdue; 0 = locktop judges by itself
	Node       string        `json:"node,omitzero"`          // host:port of the server
	DB         int           `json:"db,omitzero"`

	// Votes lists what each server of a Redlock has under the key, in the order of the
	// servers. It is nil for every other kind.
	Votes []Vote `json:"votes,omitzero"`

	Observed
}

// Observed is what is known of a lock only from watching it. It is zero in a single scan.
type Observed struct {
	Renewals      int           `json:"renewals,omitzero"`         // number of times the deadline moved later under the same holder
	Renewed       time.Time     `json:"renewed,omitzero"`          // time of the last renewal
	RenewedEvery  time.Duration `json:"renewed_every_ns,omitzero"` // time between the last two renewals of the only holder; negative = it differs by more than a quarter from the time before
	TTLSet        time.Duration `json:"ttl_set_ns,omitzero"`       // time to live when its client set the deadline, see [TTLAt]; 0 = that was not watched
	MedianHold    time.Duration `json:"median_hold_ns,omitzero"`   // median of the finished holds of this key; 0 = too few were seen
	ReentryStreak int           `json:"reentry_streak,omitzero"`   // number of reentries since the last exit
	ExpiryStreak  int           `json:"expiry_streak,omitzero"`    // number of consecutive holds, the latest included, that ended by expiry
	UnheldSince   time.Time     `json:"unheld_since,omitzero"`     // since when the lock has waiters and no holder; zero = it has not
	Past          *Past         `json:"past,omitzero"`             // set if the last hold ended by expiry, or clients wait; nil = unknown
	// AskedAt is when another client asked for the lock last during its current hold, at most
	// 1 s late; zero = no request was seen. Node.AskBlind says why none can be seen.
	AskedAt time.Time `json:"asked_at,omitzero"`
	// AskedPercent is the part of the watched holds of this key during which another client asked
	// for the lock; 0 = no request was seen, or too little time has passed.
	AskedPercent int `json:"asked_percent,omitzero"`
}

// Past is what the finished holds of a lock say, besides their median. It is immutable.
type Past struct {
	TTL         time.Duration `json:"ttl_ns,omitzero"`            // of the latest hold, when it began or was renewed; 0 = unknown
	HoldP99     time.Duration `json:"hold_p99_ns,omitzero"`       // 0 = unknown
	AtLeast     bool          `json:"hold_p99_at_least,omitzero"` // the hold of HoldP99 ended by expiry: its work may have taken longer
	HandOffP50  time.Duration `json:"hand_off_p50_ns,omitzero"`   // of the times between two holds; 0 = too few were seen
	ContendedAt time.Time     `json:"contended_at,omitzero"`      // since when the lock has had waiters, without a break of 1 s; zero = it has none
	WaiterSeen  time.Time     `json:"waiter_seen,omitzero"`       // when it had waiters last
	FreeSince   time.Time     `json:"free_since,omitzero"`        // begin of the time in which Free was counted: ContendedAt, or 10 to 20 s ago
	Free        time.Duration `json:"free_ns,omitzero"`           // time without a holder since FreeSince, up to the last acquire
}

// Holder is one holder of a lock.
type Holder struct {
	ID             string        `json:"id,omitzero"`              // what the library stores: a token, a hash field, …
	Label          string        `json:"label,omitzero"`           // the readable part of the ID; "" if there is none
	Depth          int           `json:"depth,omitzero"`           // how often it has entered the lock, at least 1; if a semaphore stores only their number: the permits in use
	Mode           Mode          `json:"mode,omitzero"`            // Read or Write for an RW lock
	Since          time.Time     `json:"since,omitzero"`           // begin of the hold, as the library stores it or as it was seen; zero = before the watch began
	Late           time.Duration `json:"late_ns,omitzero"`         // by how much Since may be later than the begin, if a scan found the hold or its token tells only when it was made; 0 = it is exact
	Seen           time.Time     `json:"seen,omitzero"`            // if Since is zero: when the hold was first seen, which is after its begin; zero = in no earlier read
	Expires        time.Time     `json:"expires,omitzero"`         // the holder's own deadline if the format has one, else the deadline of the lock; zero = never
	Renewed        time.Time     `json:"renewed,omitzero"`         // time of the last renewal of this holder's deadline, if the lock has several holders; zero = none was seen
	Addr           string        `json:"addr,omitzero"`            // address of the connection whose name is the label, or the host of several; "" = unknown
	DisconnectedAt time.Time     `json:"disconnected_at,omitzero"` // since when the client with this label is disconnected; zero = connected or unknown
	ConnectedAt    time.Time     `json:"connected_at,omitzero"`    // if it is disconnected: when its connection was listed last
}

// Waiter is a client that waits for the lock, as far as the format or MONITOR shows it.
type Waiter struct {
	ID          string    `json:"id,omitzero"`
	Mode        Mode      `json:"mode,omitzero"`
	Since       time.Time `json:"since,omitzero"`        // from the format if it stores the time, else when the waiter was first seen; zero = before the watch began
	Seen        time.Time `json:"seen,omitzero"`         // if Since is zero: when the waiter was first seen; zero = in no earlier read
	Expires     time.Time `json:"expires,omitzero"`      // when the waiter counts as dead unless it refreshes its entry; zero = unknown
	OvertakenBy int       `json:"overtaken_by,omitzero"` // number of later waiters that got the lock first, as far as was watched
	Polls       bool      `json:"polls,omitzero"`        // MONITOR has shown its attempts; the format does not store it
}

// Name returns the text that names the holder on a screen: its label or, without one,
// its ID.
func (h Holder) Name() string { return cmp.Or(h.Label, h.ID) }

// WaiterCount returns the number of waiters that the format shows: of those that it
// lists, or the number alone if it stores no more.
func (l *Lock) WaiterCount() int { return max(len(l.Waiters), l.Waiting) }

// PermitsInUse says how many permits of a semaphore are in use, and its limit; "" if the
// limit is unknown. More may be in use than a limit that was lowered.
func (l *Lock) PermitsInUse() string {
	if l.Kind != Semaphore || l.Limit == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d permits in use", len(l.Holders), l.Limit)
}

// ID identifies a lock across snapshots.
type ID struct {
	Node string `json:"node,omitzero"`
	DB   int    `json:"db,omitzero"`
	Key  string `json:"key,omitzero"`
}

// ID returns the identity of the lock, which does not change with its holders.
func (l *Lock) ID() ID { return ID{l.Node, l.DB, l.Key} }

// OnAnyNode returns the identity of the lock wherever it is stored: a failover, or a slot
// that moves, does not change it.
func (a ID) OnAnyNode() ID { return ID{DB: a.DB, Key: a.Key} }

// Compare orders locks by node, database and key.
func (a ID) Compare(b ID) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key))
}

// CompareNames orders names with numbers by value, as people do: load:2 is before load:10.
func CompareNames(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	for i > 0 && isDigit(a[i-1]) {
		i--
	}
	a, b = a[i:], b[i:]
	m, n := digits(a), digits(b)
	if m == "" || n == "" {
		return strings.Compare(a, b)
	}
	x, y := strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
	return cmp.Or(len(x)-len(y), strings.Compare(x, y), len(m)-len(n), strings.Compare(a, b))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits returns the digits that s begins with.
func digits(s string) string {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return s[:n]
}

// Endless reports whether the lock is held and has no deadline.
func (l *Lock) Endless() bool { return len(l.Holders) > 0 && l.Expires.IsZero() }

// State returns the state of the lock at now.
func (l *Lock) State(now time.Time) State {
	switch {
	case len(l.Holders) == 0 && l.WaiterCount() > 0:
		return Waiting
	case len(l.Holders) == 0:
		return Free
	case len(l.Votes) > 0 && !l.hasQuorum():
		return Partial
	case l.Endless() && l.abandoned(now):
		return Stuck
	case stampPassed(l, now) != "":
		return Lapsed
	case l.Holders[0].Mode == Read:
		return ReadHeld
	case l.Holders[0].Mode == Write:
		return WriteHeld
	default:
		return Held
	}
}

// Depth returns the largest reentry depth of the holders; 0 without holders.
func (l *Lock) Depth() int {
	n := 0
	for _, h := range l.Holders {
		n = max(n, h.Depth)
	}
	return n
}

// DepthText returns the depth, or the permits of a semaphore in use and in all if its limit is known.
func (l *Lock) DepthText() string {
	if l.Kind == Semaphore && l.Limit > 0 {
		return fmt.Sprintf("%d/%d", len(l.Holders), l.Limit)
	}
	return strconv.Itoa(l.Depth())
}

// AskedWithin is how old a request of another client may be to count as current: the time
// between two checks for requests, and the resolution of a check.
const AskedWithin = 2 * time.Second

// Asked reports whether another client asked for the held lock a moment ago: at least one
// client waits for it. It is yes or no: how many wait is not known.
func (l *Lock) Asked(now time.Time) bool {
	ago, asked := l.AskedAgo(now)
	return asked && ago <= AskedWithin && len(l.Holders) > 0
}

// LeastWaiters returns how many clients wait for the lock at least: those that the format shows,
// or one that asks for it.
func (l *Lock) LeastWaiters(now time.Time) int {
	if n := l.WaiterCount(); n > 0 || !l.Asked(now) {
		return n
	}
	return 1
}

// SharedValue reports whether Redis may store a string once for all keys that have it, as it does
// with the integers from 0 to 9999. These keys have one idle time, so it says nothing about
// requests for one of them.
func SharedValue(value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && n >= 0 && n < 10_000 && strconv.Itoa(n) == value
}

// AskedText says when another client asked for the lock last, and for how much of the watched
// holds; "" if no request was seen.
func (l *Lock) AskedText(now time.Time) string {
	ago, asked := l.AskedAgo(now)
	if !asked {
		return ""
	}
	when := fmt.Sprintf("%d s", max(1, int(ago.Round(time.Second)/time.Second))) // the resolution is 1 s
	if ago >= time.Minute {
		when = humanize.Duration(ago)
	}
	text := "another client read or asked for it " + when + " ago"
	if l.AskedPercent > 0 {
		text += fmt.Sprintf(", and did so in %d %% of the held time", l.AskedPercent)
	}
	return text
}

// AskedAgo returns how long ago another client asked for the lock last; false if no request
// was seen.
func (l *Lock) AskedAgo(now time.Time) (ago time.Duration, asked bool) {
	if l.AskedAt.IsZero() {
		return 0, false
	}
	return max(now.Sub(l.AskedAt), 0), true
}

// TTL returns the time until the deadline: negative after the deadline, and ok = false
// if the lock never expires.
func (l *Lock) TTL(now time.Time) (left time.Duration, ok bool) {
	if l.Expires.IsZero() {
		return 0, false
	}
	return l.Expires.Sub(now), true
}

// FullTTL returns the time to live that the client of the lock has set, and whether that was watched. If it
// was not, the time is an estimate: from the last renewal, the begin of the hold or its first read to the deadline.
func (l *Lock) FullTTL() (full time.Duration, watched bool) {
	if l.TTLSet > 0 || l.Expires.IsZero() || len(l.Holders) == 0 {
		return l.TTLSet, l.TTLSet > 0
	}
	return l.Expires.Sub(cmp.Or(l.Renewed, l.Holders[0].Since, l.Holders[0].Seen, l.ReadAt)), false
}

// Age returns the duration of the longest current hold. It is 0 without holders, and for a
// hold that was read only once and does not store its begin.
func (l *Lock) Age(now time.Time) (longest Age) {
	for i := range l.Holders {
		longest = longerAge(longest, l.Holders[i].Age(now))
	}
	return longest
}

// Age returns how long the hold has lasted.
func (h Holder) Age(now time.Time) Age {
	age := ageOf(h.Since, h.Seen, now)
	if h.Late > 0 {
		age.AtLeast, age.Most = true, age.Duration+h.Late
	}
	return age
}

// Age returns how long the waiter has been waiting.
func (w Waiter) Age(now time.Time) Age { return ageOf(w.Since, w.Seen, now) }

// DeadFor returns for how long the waiter has counted as dead: its deadline passed without a
// refresh. 0 = it is alive, or the format has no deadlines.
func (w Waiter) DeadFor(now time.Time) time.Duration {
	if w.Expires.IsZero() {
		return 0
	}
	return max(now.Sub(w.Expires), 0)
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earliest returns the earlier of two times. A zero time is unknown.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Age is the duration of a hold or a wait. If AtLeast is set, it began before it was first
// seen, and Duration is a lower bound.
type Age struct {
	time.Duration
	AtLeast bool
	Most    time.Duration // upper bound, if AtLeast is set; 0 = none is known
}

// Wide reports whether the upper bound of an age is known and says more than the lower one, which is far below it or hardly
// a second.
func (a Age) Wide() bool { return a.Most > 2*a.Duration || a.Most > 0 && a.Duration < time.Second }

func longerAge(a, b Age) Age {
	if b.Duration > a.Duration || b.Duration == a.Duration && b.Most > a.Most {
		return b
	}
	return a
}

func ageOf(since, seen, now time.Time) Age {
	switch {
	case !since.IsZero():
		return Age{Duration: now.Sub(since)}
	case !seen.IsZero():
		return Age{Duration: now.Sub(seen), AtLeast: true}
	default:
		return Age{}
	}
}

// String returns the age for a sentence: 41 s, or at least 41 s.
func (a Age) String() string {
	switch {
	case a.Wide():
		return "at most " + humanize.Duration(a.Most)
	case a.AtLeast:
		return "at least " + humanize.Duration(a.Duration)
	}
	return humanize.Duration(a.Duration)
}

// Holder returns the holder with an ID.
func (l *Lock) Holder(id string) (Holder, bool) {
	i := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.ID == id })
	if i < 0 {
		return Holder{}, false
	}
	return l.Holders[i], true
}

// SoleHolder returns the ID of the only holder; empty with no holder or several.
func (l *Lock) SoleHolder() string {
	if len(l.Holders) != 1 {
		return ""
	}
	return l.Holders[0].ID
}

// MinTokenLen is the length from which two keys do not have the same value by chance.
const MinTokenLen = 16

// WithEvidence returns the lock with one more piece of evidence that it is a lock, and
// at least the confidence Likely.
func (l Lock) WithEvidence(why string) Lock {
	l.Confidence = max(l.Confidence, Likely)
	l.Evidence = append(l.Evidence[:len(l.Evidence):len(l.Evidence)], why)
	return l
}
