package cli

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

// never is the ttl_ms of what never expires.
const never = -1

// jsonDocument is what `list --json` prints. Scripts rely on its names: add to
// it, do not change it.
type jsonDocument struct {
	At       string     `json:"at"`
	Server   jsonServer `json:"server"`
	Complete bool       `json:"complete"`
	Cost     jsonCost   `json:"cost"`
	Locks    []jsonLock `json:"locks"`
	Nodes    []jsonNode `json:"nodes,omitempty"`
	Problems []string   `json:"problems,omitempty"` // what is missing, and why
}

type jsonServer struct {
	Mode    string `json:"mode"`
	Version string `json:"version"`
	Name    string `json:"name"` // redis, valkey …
}

func serverOf(s keyspace.Server) jsonServer {
	return jsonServer{Mode: text(s.Mode), Version: text(s.Version), Name: text(s.Product)}
}

type jsonCost struct {
	Scanned  int64 `json:"scanned"`
	MS       int64 `json:"ms"`
	Commands int64 `json:"commands"`
	BusyMS   int64 `json:"busy_ms,omitempty"` // of the server, by its own clock
}

type jsonLock struct {
	Key         string         `json:"key"`
	KeyB64      string         `json:"key_b64,omitempty"` // of a key that is no valid UTF-8
	Kind        keyspace.Kind  `json:"kind"`
	Format      string         `json:"format"`
	Confidence  string         `json:"confidence"`
	Mode        keyspace.Mode  `json:"mode"`
	State       keyspace.State `json:"state"`
	Holders     []jsonHolder   `json:"holders"`
	Waiters     []jsonWaiter   `json:"waiters"`
	WaiterCount int            `json:"waiter_count"`
	TTLms       int64          `json:"ttl_ms"`
	HeldMS      int64          `json:"held_ms,omitempty"` // for how long it has been held; absent: not known
	Fence       int64          `json:"fence"`
	Node        string         `json:"node"`
	DB          int            `json:"db"`
	Votes       []jsonVote     `json:"votes,omitempty"` // of a Redlock
	Findings    []jsonFinding  `json:"findings"`
	Why         []string       `json:"why,omitempty"`   // what speaks for its being a lock of that format
	Left        int            `json:"left,omitempty"`  // what a semaphore has to give, or a latch still counts down
	Limit       int            `json:"limit,omitempty"` // how many a semaphore lets in
}

type jsonHolder struct {
	ID    string        `json:"id"`
	IDB64 string        `json:"id_b64,omitempty"`
	Label string        `json:"label"`
	Count int           `json:"count"`
	Mode  keyspace.Mode `json:"mode"`
	TTLms int64         `json:"ttl_ms"`
}

type jsonWaiter struct {
	ID      string        `json:"id"`
	IDB64   string        `json:"id_b64,omitempty"`
	Mode    keyspace.Mode `json:"mode"`
	SinceMS *int64        `json:"since_ms,omitempty"` // absent: not known
}

type jsonFinding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

// jsonKeyedFinding is one that stands by itself. Its key is empty if it concerns
// the servers.
type jsonKeyedFinding struct {
	Key    string `json:"key"`
	KeyB64 string `json:"key_b64,omitempty"`
	Node   string `json:"node"`
	DB     int    `json:"db"`
	jsonFinding
}

// jsonEvent is a line of `watch --json`.
type jsonEvent struct {
	At     string             `json:"at"`
	Event  keyspace.EventKind `json:"event"`
	Key    string             `json:"key"`
	KeyB64 string             `json:"key_b64,omitempty"`
	Format string             `json:"format"`
	Holder string             `json:"holder"`
	HeldMS int64              `json:"held_ms"`
	TTLms  int64              `json:"ttl_ms"`
	Node   string             `json:"node"`
	DB     int                `json:"db"`
}

// jsonTrouble is a line of `watch --json` that tells of a finding.
type jsonTrouble struct {
	At    string `json:"at"`
	Event string `json:"event"`
	jsonKeyedFinding
}

// documentOf puts a picture into the form of the contract. No list in it is null.
func documentOf(p view) jsonDocument {
	d := jsonDocument{
		At:       stamp(p.At),
		Server:   serverOf(p.Server),
		Complete: p.Complete,
		Cost:     jsonCost{p.Cost.Scanned, p.Cost.Took.Milliseconds(), p.Cost.Commands, p.Cost.Busy.Milliseconds()},
		Locks:    []jsonLock{},
	}
	for _, n := range p.Nodes {
		d.Nodes = append(d.Nodes, nodeOf(n))
	}
	for _, problem := range p.Problems {
		d.Problems = append(d.Problems, text(problem))
	}
	for _, l := range p.Locks {
		d.Locks = append(d.Locks, lockOf(l, p.At, p.findings[l.ID()]))
	}
	return d
}

func lockOf(l keyspace.Lock, at time.Time, found []keyspace.Finding) jsonLock {
	j := jsonLock{
		Key:         text(l.Key),
		KeyB64:      binary(l.Key),
		Kind:        l.Kind,
		Format:      l.Format,
		Confidence:  l.Confidence.String(),
		Mode:        modeOf(l),
		State:       l.State(at),
		Holders:     []jsonHolder{},
		Waiters:     []jsonWaiter{},
		WaiterCount: l.WaiterCount(),
		TTLms:       ttl(l.Expires, at),
		HeldMS:      l.Age(at).Milliseconds(),
		Fence:       l.Fence,
		Node:        text(l.Node),
		DB:          l.DB,
		Findings:    []jsonFinding{},
		Why:         l.Why,
		Left:        l.Left,
		Limit:       l.Limit,
	}
	for _, h := range l.Holders {
		j.Holders = append(j.Holders, jsonHolder{text(h.ID), binary(h.ID), text(h.Label), h.Count, h.Mode, ttl(h.Expires, at)})
	}
	for _, w := range l.Waiters {
		j.Waiters = append(j.Waiters, jsonWaiter{text(w.ID), binary(w.ID), w.Mode, since(w.Since, at)})
	}
	for _, v := range l.Votes {
		j.Votes = append(j.Votes, jsonVote{text(v.Node), text(v.Token), ttl(v.Expires, at), v.Silent})
	}
	for _, f := range found {
		j.Findings = append(j.Findings, findingOf(f))
	}
	return j
}

func eventOf(e keyspace.Event) jsonEvent {
	return jsonEvent{
		At:     stamp(e.At),
		Event:  e.Kind,
		Key:    text(e.Lock.Key),
		KeyB64: binary(e.Lock.Key),
		Format: e.Lock.Format,
		Holder: text(e.Holder.ID),
		HeldMS: e.Held.Milliseconds(),
		TTLms:  ttl(e.Lock.Expires, e.At),
		Node:   text(e.Lock.Node),
		DB:     e.Lock.DB,
	}
}

func findingOf(f keyspace.Finding) jsonFinding {
	return jsonFinding{f.ID, f.Severity.String(), text(f.Text), text(f.Remedy)}
}

func keyedFindingOf(f keyspace.Finding) jsonKeyedFinding {
	return jsonKeyedFinding{text(f.Lock.Key), binary(f.Lock.Key), text(cmp.Or(f.Lock.Node, f.Server)), f.Lock.DB, findingOf(f)}
}

// modeOf is how the lock is held, empty where its kind has no modes.
func modeOf(l keyspace.Lock) keyspace.Mode {
	if len(l.Holders) == 0 {
		return ""
	}
	return l.Holders[0].Mode
}

// ttl is the time left in ms: never, or at least 0, because what is past its
// deadline must not look like what never expires.
func ttl(expires, at time.Time) int64 {
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

// stamp is always of the same length, in UTC, so that lines sort by it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// text is s where that is valid UTF-8, which JSON holds exactly, and its
// escaped form where it is not.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return widget.Plain(s)
}

// binary is the base64 form of what text had to escape, else empty.
func binary(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// writeJSON writes v on one line. Every character that a terminal might act on,
// or that cannot be seen, is escaped; decoding gives it back.
func writeJSON(w io.Writer, v any) error {
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

// escapeInvisible works on encoded JSON: there, everything beyond printable
// ASCII can only be inside a string.
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
