package render

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// The types of this file are the JSON of all commands: docs/json.md explains every key. What is
// unknown has no key. A key that ends in _at_least or _at_most belongs to the number beside it.

// Head is the beginning of a document about the locks of servers.
type Head struct {
	At       string   `json:"at,omitzero"`
	Complete bool     `json:"complete"`
	Problems []string `json:"problems"` // what is missing, and why
}

// HeadOf returns the head of a document about s.
func HeadOf(s keyspace.Snapshot) Head {
	return Head{Timestamp(s.At), s.Complete, Each(s.Problems, Text)}
}

// Servers are the servers of a document.
type Servers struct {
	Server Server `json:"server"`
	Nodes  []Node `json:"nodes"`
}

// ServersOf returns the servers of s.
func ServersOf(s keyspace.Snapshot) Servers {
	return Servers{Server{Text(s.Server.Mode), Text(s.Server.Product), Text(s.Server.Version)}, Each(s.Nodes, nodeOf)}
}

// Server is what all servers have in common.
type Server struct {
	Mode    string `json:"mode,omitzero"`
	Product string `json:"product,omitzero"` // redis, valkey …
	Version string `json:"version,omitzero"`
}

// Node is one of the servers.
type Node struct {
	Addr      string  `json:"addr"`
	Up        bool    `json:"up"`
	Role      string  `json:"role,omitzero"`
	Product   string  `json:"product,omitzero"`
	Version   string  `json:"version,omitzero"`
	KeyCount  *int64  `json:"key_count,omitzero"`
	LockCount *int    `json:"lock_count,omitzero"`
	PingMS    float64 `json:"ping_ms,omitzero"`

	PossibleCount   int  `json:"possible_count,omitzero"` // keys that may be locks and are not in the document
	PossibleAtLeast bool `json:"possible_at_least,omitzero"`

	Error    string `json:"error,omitzero"`
	AskBlind string `json:"ask_blind,omitzero"` // why asked_ago_ms is absent from all locks of the server
}

func nodeOf(n keyspace.Node) Node {
	j := Node{
		Addr: n.Addr, Up: n.Up, Role: Text(n.Role), Product: Text(n.Product), Version: Text(n.Version),
		PingMS: float64(n.Ping) / float64(time.Millisecond), Error: Text(n.Error), AskBlind: Text(n.AskBlind),
		PossibleCount: n.Possible, PossibleAtLeast: n.PossibleAtLeast,
	}
	if n.Up {
		j.LockCount = &n.Locks
	}
	if n.Up && n.KeysKnown() {
		j.KeyCount = &n.Keys
	}
	return j
}

// Document is the output of `list --json`.
type Document struct {
	Head
	Servers
	Cost  Cost   `json:"cost"`
	Locks []Lock `json:"locks"`
}

// Cost is what a scan took.
type Cost struct {
	ScannedCount int64 `json:"scanned_count"` // keys
	CommandCount int64 `json:"command_count"`
	WaitMS       int64 `json:"wait_ms"`            // for replies
	ServerMS     int64 `json:"server_ms,omitzero"` // time of the server, by its own clock
}

// DocumentOf returns the document for v.
func DocumentOf(v View) Document {
	return Document{
		Head: HeadOf(v.Snapshot), Servers: ServersOf(v.Snapshot),
		Cost:  Cost{v.Cost.Scanned, v.Cost.Commands, v.Cost.WaitTime.Milliseconds(), v.Cost.ServerTime.Milliseconds()},
		Locks: Each(v.Locks, func(l *keyspace.Lock) Lock { return LockOf(*l, v.At, v.Findings[l.ID()]) }),
	}
}

// LockID names a lock.
type LockID struct {
	Key    string `json:"key"`
	KeyB64 string `json:"key_b64,omitzero"` // of a key that is not valid UTF-8
	Node   string `json:"node,omitzero"`
	DB     int    `json:"db"`
}

// LockIDOf returns the JSON form of id.
func LockIDOf(id keyspace.ID) LockID {
	return LockID{Text(id.Key), Base64(id.Key), Text(id.Node), id.DB}
}

// Lock is the JSON form of a lock.
type Lock struct {
	LockID
	Kind           keyspace.Kind  `json:"kind"`
	Format         string         `json:"format"`
	Confidence     string         `json:"confidence"`
	Evidence       []string       `json:"evidence"` // that it is a lock of the format
	Mode           keyspace.Mode  `json:"mode,omitzero"`
	State          keyspace.State `json:"state"`
	Holders        []Holder       `json:"holders"`
	Waiters        []Waiter       `json:"waiters,omitzero"`
	WaiterCount    *int           `json:"waiter_count,omitzero"`
	WaitersAtLeast bool           `json:"waiters_at_least,omitzero"`
	TTLMS          int64          `json:"ttl_ms"`
	HeldMS         *int64         `json:"held_ms,omitzero"` // since the acquire
	HeldAtLeast    bool           `json:"held_at_least,omitzero"`
	HeldAtMostMS   *int64         `json:"held_at_most_ms,omitzero"` // if held_ms is a lower bound, or unknown
	AskedAgoMS     *int64         `json:"asked_ago_ms,omitzero"`    // since another client asked for the held lock last
	AskedShare     float64        `json:"asked_share,omitzero"`     // of the watched holds, during which another client asked for the lock
	Fence          int64          `json:"fence,omitzero"`
	Remaining      *int           `json:"remaining,omitzero"` // permits of a semaphore, or the count of a latch
	Limit          int            `json:"limit,omitzero"`     // permits of a semaphore
	Votes          []Vote         `json:"votes,omitzero"`     // of a Redlock
	Findings       []Finding      `json:"findings"`
}

// Holder is the JSON form of a holder. One that is known by its name only has nothing but a label.
type Holder struct {
	ID          string        `json:"id,omitzero"`
	IDB64       string        `json:"id_b64,omitzero"`
	Label       string        `json:"label,omitzero"`
	Depth       int           `json:"depth,omitzero"`
	Mode        keyspace.Mode `json:"mode,omitzero"`
	TTLMS       *int64        `json:"ttl_ms,omitzero"`
	HeldMS      *int64        `json:"held_ms,omitzero"`
	HeldAtLeast bool          `json:"held_at_least,omitzero"`
	HeldAtMost  *int64        `json:"held_at_most_ms,omitzero"`
	ClosedAfter string        `json:"connection_closed_after,omitzero"`
	ClosedBy    string        `json:"connection_closed_by,omitzero"`
}

// HolderOf returns the JSON form of h at a time.
func HolderOf(h keyspace.Holder, at time.Time) Holder {
	j := Holder{ID: Text(h.ID), IDB64: Base64(h.ID), Label: Text(h.Label), Depth: h.Depth, Mode: h.Mode, TTLMS: new(TTL(h.Expires, at))}
	age := h.Age(at)
	j.HeldMS, j.HeldAtLeast = milliseconds(age)
	j.HeldAtMost = lasting(age.Most)
	if h.Closed() != "" {
		j.ClosedAfter, j.ClosedBy = Timestamp(h.ConnectedAt), Timestamp(h.DisconnectedAt)
	}
	return j
}

// Waiter is the JSON form of a waiter. One that is known by its name only has nothing but a label.
type Waiter struct {
	ID            string        `json:"id,omitzero"`
	IDB64         string        `json:"id_b64,omitzero"`
	Label         string        `json:"label,omitzero"`
	Mode          keyspace.Mode `json:"mode,omitzero"`
	WaitedMS      *int64        `json:"waited_ms,omitzero"`
	WaitedAtLeast bool          `json:"waited_at_least,omitzero"`
}

func waiterOf(w keyspace.Waiter, at time.Time) Waiter {
	j := Waiter{ID: Text(w.ID), IDB64: Base64(w.ID), Mode: w.Mode}
	j.WaitedMS, j.WaitedAtLeast = milliseconds(w.Age(at))
	return j
}

// Vote is the state of a Redlock on one node.
type Vote struct {
	Node        string `json:"node"`
	Unreachable bool   `json:"unreachable"`
	Token       string `json:"token,omitzero"` // absent: the node has none, or is unreachable
	TTLMS       *int64 `json:"ttl_ms,omitzero"`
	LostToken   string `json:"lost_token,omitzero"`
}

// votesOf returns the votes of a Redlock, nil for another kind.
func votesOf(l *keyspace.Lock, at time.Time) []Vote {
	if len(l.Votes) == 0 {
		return nil
	}
	return Each(l.Votes, func(v keyspace.Vote) Vote {
		j := Vote{Node: Text(v.Node), Unreachable: v.Unreachable, Token: Text(v.Token)}
		if v.Token != "" {
			j.TTLMS = new(TTL(v.Expires, at))
		}
		if v.Why != "" {
			j.LostToken = Text(v.Was)
		}
		return j
	})
}

// LockOf returns the JSON form of a lock at a time, with its findings.
func LockOf(l keyspace.Lock, at time.Time, found []keyspace.Finding) Lock {
	j := Lock{
		LockID: LockIDOf(l.ID()), Kind: l.Kind, Format: l.Format, Confidence: l.Confidence.String(), Evidence: Each(l.Evidence, Text),
		State: l.State(at), TTLMS: TTL(l.Expires, at),
		AskedShare: float64(l.AskedPercent) / 100, Fence: l.Fence, Limit: l.Limit, Findings: Each(found, FindingOf),
		Holders: Each(l.Holders, func(h keyspace.Holder) Holder { return HolderOf(h, at) }),
	}
	age := l.Age(at)
	j.HeldMS, j.HeldAtLeast = milliseconds(age)
	j.HeldAtMostMS = lasting(age.Most)
	if n := l.LeastWaiters(at); n > 0 || ShowsWaiters(l.Format) {
		j.WaiterCount, j.WaitersAtLeast = &n, n > l.WaiterCount()
	}
	if len(l.Waiters) > 0 || l.WaiterCount() == 0 && ShowsWaiters(l.Format) && !j.WaitersAtLeast {
		j.Waiters = Each(l.Waiters, func(w keyspace.Waiter) Waiter { return waiterOf(w, at) })
	}
	if ago, asked := l.AskedAgo(at); asked {
		j.AskedAgoMS = new(ago.Milliseconds())
	}
	if l.Kind == keyspace.Latch || l.Kind == keyspace.Semaphore && (l.Limit > 0 || l.Remaining > 0 || len(l.Holders) == 0) {
		j.Remaining = &l.Remaining
	}
	if len(l.Holders) > 0 {
		j.Mode = l.Holders[0].Mode // "" if the kind of lock has no modes
	}
	j.Votes = votesOf(&l, at)
	return j
}

// Finding is the JSON form of a finding about a known lock.
type Finding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

// FindingOf returns the JSON form of f without its lock.
func FindingOf(f keyspace.Finding) Finding {
	return Finding{f.ID, f.Severity.String(), Text(f.Text), Text(Remedy(f))}
}

// KeyedFinding is a finding outside of a lock's object. One about servers has no key; without a
// node it is about all of them.
type KeyedFinding struct {
	*LockID
	Node string `json:"node,omitzero"`
	Finding
}

// KeyedFindingOf returns the JSON form of f with its lock or server.
func KeyedFindingOf(f keyspace.Finding) KeyedFinding {
	j := KeyedFinding{Node: Text(cmp.Or(f.Lock.Node, f.Server)), Finding: FindingOf(f)}
	if f.Lock != (keyspace.ID{}) {
		j.LockID = new(LockIDOf(f.Lock))
	}
	return j
}

// Event is a line of `watch --json`.
type Event struct {
	At    string             `json:"at"`
	Event keyspace.EventKind `json:"event"`
	LockID
	Format  string  `json:"format"`
	Holder  *Holder `json:"holder,omitzero"`
	TakenBy *Holder `json:"taken_by,omitzero"` // the holder that has taken the place of holder
	Waiter  *Waiter `json:"waiter,omitzero"`
	HeldMS  *int64  `json:"held_ms,omitzero"` // of the hold that ended

	HeldAtLeast bool `json:"held_at_least,omitzero"`

	TTLMS *int64 `json:"ttl_ms,omitzero"` // absent: a hold has ended

	Possible []keyspace.EventKind `json:"possible,omitzero"` // what may have happened
	Votes    []Vote               `json:"votes,omitzero"`    // of a Redlock
}

// FindingEvent is a line of `watch --json` with a finding.
type FindingEvent struct {
	At    string `json:"at"`
	Event string `json:"event"`
	KeyedFinding
}

// EventOf returns the JSON form of e.
func EventOf(e keyspace.Event) Event {
	j := Event{At: Timestamp(e.At), Event: e.Kind, LockID: LockIDOf(e.Lock.ID()), Format: e.Lock.Format, HeldMS: lasting(e.Held), HeldAtLeast: e.Held > 0 && e.Holder.Late > 0, Possible: e.Readings()}
	if e.Holder.ID != "" {
		j.Holder = new(HolderOf(e.Holder, e.Ended()))
	}
	if e.Waiter.ID != "" {
		j.Waiter = new(waiterOf(e.Waiter, e.At))
	}
	j.Votes = votesOf(&e.Lock, e.At)
	if next, taken := e.TakenBy(); taken {
		j.TakenBy = new(HolderOf(next, e.At))
	}
	if !e.Kind.Ends() {
		j.TTLMS = new(TTL(e.Lock.Expires, e.At))
	} else if j.Holder != nil {
		j.Holder.TTLMS = nil
	}
	return j
}

// Entry is a key on one server, with the part of its value that was read.
type Entry struct {
	LockID
	Type     string   `json:"type"`
	TTLMS    int64    `json:"ttl_ms"`
	Length   int64    `json:"length"`         // bytes of a string, elements of other types
	Value    *string  `json:"value,omitzero"` // of a string
	ValueB64 string   `json:"value_b64,omitzero"`
	Members  []Member `json:"members,omitzero"` // of other types
}

// Member is an element of a collection.
type Member struct {
	Name  string   `json:"name"`
	Value *string  `json:"value,omitzero"` // of a hash
	Score *float64 `json:"score,omitzero"` // of a zset
}

// EntryOf returns the JSON form of an entry of a database.
func EntryOf(e keyspace.Entry, db int) Entry {
	j := Entry{LockID: LockIDOf(keyspace.ID{Node: e.Node, DB: db, Key: e.Key}), Type: e.Type, TTLMS: TTL(e.Expires, e.Now), Length: e.Len}
	if e.Type == "string" {
		j.Value, j.ValueB64 = new(Text(e.Value)), Base64(e.Value)
		return j
	}
	j.Members = Each(e.Members, func(m keyspace.Member) Member {
		one := Member{Name: Text(m.Name)}
		switch e.Type {
		case "hash":
			one.Value = new(Text(m.Value))
		case "zset":
			one.Score = &m.Score
		}
		return one
	})
	return j
}

// Client is a connection to a server.
type Client struct {
	Addr    string `json:"addr"`
	Name    string `json:"name,omitzero"`
	User    string `json:"user,omitzero"`
	Library string `json:"library,omitzero"`
	AgeMS   *int64 `json:"age_ms,omitzero"` // since it connected
}

// ClientOf returns the JSON form of c.
func ClientOf(c keyspace.Client) Client {
	return Client{Text(c.Addr), Text(c.Name), Text(c.User), Text(c.Library), lasting(c.Age)}
}

// Each returns what of returns for all elements; never nil.
func Each[T, U any](all []T, of func(T) U) []U {
	each := make([]U, len(all))
	for i, one := range all {
		each[i] = of(one)
	}
	return each
}

// TTL returns the remaining time in ms; -1 = no TTL. After the deadline it returns 0,
// so that an expired lock does not look like one without a TTL.
func TTL(expires, at time.Time) int64 {
	if expires.IsZero() {
		return -1
	}
	return max(0, expires.Sub(at).Milliseconds())
}

// milliseconds returns a time in ms, and whether it is a lower bound; nil if it is unknown: 0, or at least 0.
func milliseconds(age keyspace.Age) (ms *int64, atLeast bool) {
	if age.Duration == 0 || age.AtLeast && age.Duration < time.Millisecond {
		return nil, false
	}
	return new(max(0, age.Milliseconds())), age.AtLeast
}

// lasting returns a time in ms; nil if it is 0, which is unknown.
func lasting(d time.Duration) *int64 {
	ms, _ := milliseconds(keyspace.Age{Duration: d})
	return ms
}

// Timestamp returns t in UTC with a fixed length, so that lines sort by time; "" if it is zero.
func Timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Text returns s if it is valid UTF-8, and its escaped form otherwise.
func Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return widget.Plain(s)
}

// Base64 returns the base64 form of s if text escapes it, and "" otherwise.
func Base64(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// JSON writes v on one line. It escapes every invisible character and every
// character that a terminal may interpret; decoding restores them.
func JSON(w io.Writer, v any) error {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode as JSON: %w", err)
	}
	line := bytes.TrimSuffix(raw.Bytes(), []byte("\n"))
	_, err := w.Write(append(escapeInvisible(line), '\n'))
	return err
}

// escapeInvisible escapes encoded JSON, where characters outside of printable ASCII
// are always inside a string.
func escapeInvisible(raw []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(raw) {
		switch {
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}
