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

// never is the ttl_ms of a lock without a TTL.
const never = -1

// Document is the output of `list --json`. Scripts depend on its names: add
// fields, but never change them.
type Document struct {
	At       string   `json:"at"`
	Server   Server   `json:"server"`
	Complete bool     `json:"complete"`
	Cost     Cost     `json:"cost"`
	Locks    []Lock   `json:"locks"`
	Nodes    []Node   `json:"nodes,omitempty"`
	Problems []string `json:"problems,omitempty"` // what is missing, and why
}

// Server describes the server of a document.
type Server struct {
	Mode    string `json:"mode"`
	Version string `json:"version"`
	Name    string `json:"name"` // redis, valkey …
}

// ServerOf returns the JSON form of s.
func ServerOf(s keyspace.Server) Server {
	return Server{Mode: Text(s.Mode), Version: Text(s.Version), Name: Text(s.Product)}
}

// Cost is what a scan took.
type Cost struct {
	Scanned  int64 `json:"scanned"`
	MS       int64 `json:"ms"`
	Commands int64 `json:"commands"`
	BusyMS   int64 `json:"busy_ms,omitempty"` // time of the server, by its own clock
}

// Lock is the JSON form of a lock.
type Lock struct {
	Key          string         `json:"key"`
	KeyB64       string         `json:"key_b64,omitempty"` // set if the key is not valid UTF-8
	Kind         keyspace.Kind  `json:"kind"`
	Format       string         `json:"format"`
	Confidence   string         `json:"confidence"`
	Mode         keyspace.Mode  `json:"mode"`
	State        keyspace.State `json:"state"`
	Holders      []Holder       `json:"holders"`
	Waiters      []Waiter       `json:"waiters"`
	WaiterCount  int            `json:"waiter_count"`
	TTLms        int64          `json:"ttl_ms"`
	HeldMS       int64          `json:"held_ms,omitempty"`       // time since the acquire; absent: not known
	HeldAtLeast  bool           `json:"held_at_least,omitempty"` // the acquire was not seen, and held_ms is a lower bound
	AskedAgo     *int64         `json:"asked_ago,omitempty"`     // seconds since another client asked for the held lock last; absent: no request was seen
	AskedPercent int            `json:"asked_percent,omitempty"` // part of the watched holds during which another client asked for the lock
	Fence        int64          `json:"fence"`
	Node         string         `json:"node"`
	DB           int            `json:"db"`
	Votes        []Vote         `json:"votes,omitempty"` // of a Redlock
	Findings     []Finding      `json:"findings"`
	Why          []string       `json:"why,omitempty"`   // evidence for the format
	Left         int            `json:"left,omitempty"`  // free permits of a semaphore, or the remaining count of a latch
	Limit        int            `json:"limit,omitempty"` // permits of a semaphore
}

// Holder is the JSON form of a holder.
type Holder struct {
	ID    string        `json:"id"`
	IDB64 string        `json:"id_b64,omitempty"`
	Label string        `json:"label"`
	Count int           `json:"count"`
	Mode  keyspace.Mode `json:"mode"`
	TTLms int64         `json:"ttl_ms"`
}

// Waiter is the JSON form of a waiter.
type Waiter struct {
	ID      string        `json:"id"`
	IDB64   string        `json:"id_b64,omitempty"`
	Mode    keyspace.Mode `json:"mode"`
	SinceMS *int64        `json:"since_ms,omitempty"` // absent: not known
}

// Finding is the JSON form of a finding about a known lock.
type Finding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

// KeyedFinding is a finding outside of a lock's object. Its key is empty if it
// concerns the servers.
type KeyedFinding struct {
	Key    string `json:"key"`
	KeyB64 string `json:"key_b64,omitempty"`
	Node   string `json:"node"`
	DB     int    `json:"db"`
	Finding
}

// Event is a line of `watch --json`.
type Event struct {
	At      string             `json:"at"`
	Event   keyspace.EventKind `json:"event"`
	Key     string             `json:"key"`
	KeyB64  string             `json:"key_b64,omitempty"`
	Format  string             `json:"format"`
	Holder  string             `json:"holder"`
	TakenBy string             `json:"taken_by,omitempty"` // of a stolen or lost lock: the holder that has taken the place of holder
	HeldMS  int64              `json:"held_ms"`
	TTLms   int64              `json:"ttl_ms"`
	Node    string             `json:"node"`
	DB      int                `json:"db"`
}

// FindingEvent is a line of `watch --json` with a finding.
type FindingEvent struct {
	At    string `json:"at"`
	Event string `json:"event"`
	KeyedFinding
}

// DocumentOf returns the document for p. No list in it is null.
func DocumentOf(p View) Document {
	return Document{
		At:       Timestamp(p.At),
		Server:   ServerOf(p.Server),
		Complete: p.Complete,
		Cost:     Cost{p.Cost.Scanned, p.Cost.WaitTime.Milliseconds(), p.Cost.Commands, p.Cost.ServerTime.Milliseconds()},
		Locks:    Each(p.Locks, func(l *keyspace.Lock) Lock { return LockOf(*l, p.At, p.Findings[l.ID()]) }),
		Nodes:    Each(p.Nodes, nodeOf),
		Problems: Each(p.Problems, Text),
	}
}

// LockOf returns the JSON form of a lock at a time, with its findings.
func LockOf(l keyspace.Lock, at time.Time, found []keyspace.Finding) Lock {
	j := Lock{
		Key:          Text(l.Key),
		KeyB64:       Base64(l.Key),
		Kind:         l.Kind,
		Format:       l.Format,
		Confidence:   l.Confidence.String(),
		Mode:         modeOf(l),
		State:        l.State(at),
		WaiterCount:  l.WaiterCount(),
		TTLms:        TTL(l.Expires, at),
		HeldMS:       l.Age(at).Milliseconds(),
		HeldAtLeast:  l.Age(at).AtLeast,
		AskedPercent: l.AskedPercent,
		Fence:        l.Fence,
		Node:         Text(l.Node),
		DB:           l.DB,
		Findings:     Each(found, FindingOf),
		Why:          l.Evidence,
		Left:         l.Remaining,
		Limit:        l.Limit,
	}
	if ago, asked := l.AskedAgo(at); asked {
		j.AskedAgo = new(int64(ago / time.Second))
	}
	j.Holders = Each(l.Holders, func(h keyspace.Holder) Holder {
		return Holder{Text(h.ID), Base64(h.ID), Text(h.Label), h.Depth, h.Mode, TTL(h.Expires, at)}
	})
	j.Waiters = Each(l.Waiters, func(w keyspace.Waiter) Waiter { return Waiter{Text(w.ID), Base64(w.ID), w.Mode, since(w.Since, at)} })
	j.Votes = Each(l.Votes, func(v keyspace.Vote) Vote {
		return Vote{Text(v.Node), Text(v.Token), TTL(v.Expires, at), v.Unreachable}
	})
	return j
}

// EventOf returns the JSON form of e.
func EventOf(e keyspace.Event) Event {
	next, _ := e.TakenBy()
	return Event{
		TakenBy: Text(next.ID),
		At:      Timestamp(e.At),
		Event:   e.Kind,
		Key:     Text(e.Lock.Key),
		KeyB64:  Base64(e.Lock.Key),
		Format:  e.Lock.Format,
		Holder:  Text(e.Holder.ID),
		HeldMS:  e.Held.Milliseconds(),
		TTLms:   TTL(e.Lock.Expires, e.At),
		Node:    Text(e.Lock.Node),
		DB:      e.Lock.DB,
	}
}

// FindingOf returns the JSON form of f without its lock.
func FindingOf(f keyspace.Finding) Finding {
	return Finding{f.ID, f.Severity.String(), Text(f.Text), Text(Remedy(f))}
}

// KeyedFindingOf returns the JSON form of f with its lock.
func KeyedFindingOf(f keyspace.Finding) KeyedFinding {
	return KeyedFinding{Text(f.Lock.Key), Base64(f.Lock.Key), Text(cmp.Or(f.Lock.Node, f.Server)), f.Lock.DB, FindingOf(f)}
}

// modeOf returns the mode of the hold; "" if the kind of lock has no modes.
func modeOf(l keyspace.Lock) keyspace.Mode {
	if len(l.Holders) == 0 {
		return ""
	}
	return l.Holders[0].Mode
}

// Each returns what of returns for all elements; never nil.
func Each[T, U any](all []T, of func(T) U) []U {
	each := make([]U, len(all))
	for i, one := range all {
		each[i] = of(one)
	}
	return each
}

// TTL returns the remaining time in ms, or never. After the deadline it returns 0,
// so that an expired lock does not look like one without a TTL.
func TTL(expires, at time.Time) int64 {
	if expires.IsZero() {
		return never
	}
	return max(0, expires.Sub(at).Milliseconds())
}

func since(start, at time.Time) *int64 {
	if start.IsZero() {
		return nil
	}
	return new(max(0, at.Sub(start).Milliseconds()))
}

// Timestamp returns t in UTC with a fixed length, so that lines sort by time.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

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

// Node is one of the servers.
type Node struct {
	Addr    string  `json:"addr"`
	Up      bool    `json:"up"`
	Role    string  `json:"role,omitempty"`
	Name    string  `json:"name,omitempty"` // redis, valkey …
	Version string  `json:"version,omitempty"`
	Keys    int64   `json:"keys"`
	Locks   int     `json:"locks"`
	PingMS  float64 `json:"ping_ms"`
	Trouble string  `json:"trouble,omitempty"`
	// AskBlind says why asked_ago is absent from all locks of the server.
	AskBlind string `json:"ask_blind,omitempty"`
}

// Vote is the state of a Redlock on one node.
type Vote struct {
	Node   string `json:"node"`
	Token  string `json:"token"` // empty: no key
	TTLms  int64  `json:"ttl_ms"`
	Silent bool   `json:"silent,omitempty"` // the node did not answer
}

func nodeOf(n keyspace.Node) Node {
	return Node{
		Addr: n.Addr, Up: n.Up, Role: Text(n.Role), Name: Text(n.Product), Version: Text(n.Version), Keys: n.Keys, Locks: n.Locks,
		PingMS: float64(n.Ping) / float64(time.Millisecond), Trouble: Text(n.Error), AskBlind: Text(n.AskBlind),
	}
}
