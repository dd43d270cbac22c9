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

// never is the ttl_ms of a lock without a TTL.
const never = -1

// jsonDocument is the output of `list --json`. Scripts depend on its names: add
// fields, but never change them.
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
	BusyMS   int64 `json:"busy_ms,omitempty"` // time of the server, by its own clock
}

type jsonLock struct {
	Key         string         `json:"key"`
	KeyB64      string         `json:"key_b64,omitempty"` // set if the key is not valid UTF-8
	Kind        keyspace.Kind  `json:"kind"`
	Format      string         `json:"format"`
	Confidence  string         `json:"confidence"`
	Mode        keyspace.Mode  `json:"mode"`
	State       keyspace.State `json:"state"`
	Holders     []jsonHolder   `json:"holders"`
	Waiters     []jsonWaiter   `json:"waiters"`
	WaiterCount int            `json:"waiter_count"`
	TTLms       int64          `json:"ttl_ms"`
	HeldMS      int64          `json:"held_ms,omitempty"` // time since the acquire; absent: not known
	Fence       int64          `json:"fence"`
	Node        string         `json:"node"`
	DB          int            `json:"db"`
	Votes       []jsonVote     `json:"votes,omitempty"` // of a Redlock
	Findings    []jsonFinding  `json:"findings"`
	Why         []string       `json:"why,omitempty"`   // evidence for the format
	Left        int            `json:"left,omitempty"`  // free permits of a semaphore, or the remaining count of a latch
	Limit       int            `json:"limit,omitempty"` // permits of a semaphore
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

// jsonKeyedFinding is a finding outside of a lock's object. Its key is empty if it
// concerns the servers.
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

// jsonTrouble is a line of `watch --json` with a finding.
type jsonTrouble struct {
	At    string `json:"at"`
	Event string `json:"event"`
	jsonKeyedFinding
}

// documentOf returns the document for p. No list in it is null.
func documentOf(p view) jsonDocument {
	d := jsonDocument{
		At:       stamp(p.At),
		Server:   serverOf(p.Server),
		Complete: p.Complete,
		Cost:     jsonCost{p.Cost.Scanned, p.Cost.WaitTime.Milliseconds(), p.Cost.Commands, p.Cost.ServerTime.Milliseconds()},
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
		Why:         l.Evidence,
		Left:        l.Remaining,
		Limit:       l.Limit,
	}
	for _, h := range l.Holders {
		j.Holders = append(j.Holders, jsonHolder{text(h.ID), binary(h.ID), text(h.Label), h.Count, h.Mode, ttl(h.Expires, at)})
	}
	for _, w := range l.Waiters {
		j.Waiters = append(j.Waiters, jsonWaiter{text(w.ID), binary(w.ID), w.Mode, since(w.Since, at)})
	}
	for _, v := range l.Votes {
		j.Votes = append(j.Votes, jsonVote{text(v.Node), text(v.Token), ttl(v.Expires, at), v.Unreachable})
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

// modeOf returns the mode of the hold; "" if the kind of lock has no modes.
func modeOf(l keyspace.Lock) keyspace.Mode {
	if len(l.Holders) == 0 {
		return ""
	}
	return l.Holders[0].Mode
}

// ttl returns the remaining time in ms, or never. After the deadline it returns 0,
// so that an expired lock does not look like one without a TTL.
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

// stamp returns t in UTC with a fixed length, so that lines sort by time.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// text returns s if it is valid UTF-8, and its escaped form otherwise.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return widget.Plain(s)
}

// binary returns the base64 form of s if text escapes it, and "" otherwise.
func binary(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// writeJSON writes v on one line. It escapes every invisible character and every
// character that a terminal may interpret; decoding restores them.
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

// jsonNode is one of the servers.
type jsonNode struct {
	Addr    string  `json:"addr"`
	Up      bool    `json:"up"`
	Role    string  `json:"role,omitempty"`
	Name    string  `json:"name,omitempty"` // redis, valkey …
	Version string  `json:"version,omitempty"`
	Keys    int64   `json:"keys"`
	Locks   int     `json:"locks"`
	PingMS  float64 `json:"ping_ms"`
	Trouble string  `json:"trouble,omitempty"`
}

// jsonVote is the state of a Redlock on one node.
type jsonVote struct {
	Node   string `json:"node"`
	Token  string `json:"token"` // empty: no key
	TTLms  int64  `json:"ttl_ms"`
	Silent bool   `json:"silent,omitempty"` // the node did not answer
}

func nodeOf(n keyspace.Node) jsonNode {
	return jsonNode{
		Addr: n.Addr, Up: n.Up, Role: text(n.Role), Name: text(n.Product), Version: text(n.Version), Keys: n.Keys, Locks: n.Locks,
		PingMS: float64(n.Ping) / float64(time.Millisecond), Trouble: text(n.Error),
	}
}
