package keyspace

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Client is one connection of a server, as CLIENT LIST describes it.
type Client struct {
	ID       int64 // of the connection; the server never uses it again
	Addr     string
	Name     string // by CLIENT SETNAME; may be empty
	User     string
	Library  string        // name and version of the library, if it says so
	Age      time.Duration // of the connection, in whole seconds
	Idle     time.Duration // since the last command, in whole seconds
	Command  string        // the last command, in lower case
	Commands int64         // number of commands so far; -1: this server does not count them
}

// ConnectionName is the name of the connections of this process, which tells them from those of
// another locktop.
var ConnectionName = "locktop:" + uuid.NewString()[:8]

// IsLocktop reports whether the connection is one of a locktop, this one or another.
func (c Client) IsLocktop() bool { return c.Name == "locktop" || strings.HasPrefix(c.Name, "locktop:") }

// ParseClients returns the clients in a reply of CLIENT LIST, without replicas, the
// master, and clients that run MONITOR. It ignores fields that it does not know.
func ParseClients(list string) []Client {
	var all []Client
	for line := range strings.Lines(list) {
		c, flags := parseClient(line)
		if c.ID != 0 && !strings.ContainsAny(flags, "SMO") {
			all = append(all, c)
		}
	}
	return all
}

func parseClient(line string) (c Client, flags string) {
	c.Commands = -1
	version := ""
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "id":
			c.ID = integer(value)
		case "addr":
			c.Addr = value
		case "name":
			c.Name = value
		case "user":
			c.User = value
		case "lib-name":
			c.Library = value
		case "lib-ver":
			version = value
		case "age":
			c.Age = time.Duration(integer(value)) * time.Second
		case "idle":
			c.Idle = time.Duration(integer(value)) * time.Second
		case "cmd":
			c.Command = strings.ToLower(value)
		case "tot-cmds":
			c.Commands = integer(value)
		case "flags":
			flags = value
		}
	}
	if c.Library != "" && version != "" {
		c.Library += " " + version
	}
	return c, flags
}

// integer returns a number of the server; 0 if the text is not one.
func integer(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// ProcessCommands returns the shell commands that show the process of the client: on its host, and in Kubernetes.
func (c Client) ProcessCommands() []string {
	at, err := netip.ParseAddrPort(c.Addr)
	if err != nil {
		return nil // a unix socket
	}
	all := []string{fmt.Sprintf("ss -tnpH 'sport = :%d'", at.Port())}
	if !at.Addr().IsLoopback() {
		all = append(all, "kubectl get pods -A -o wide --field-selector status.podIP="+at.Addr().String())
	}
	return all
}

// HeldOn returns the server on which a holder has the lock.
func (l *Lock) HeldOn(h Holder) string {
	if i := slices.IndexFunc(l.Votes, func(v Vote) bool { return v.Token == h.ID }); i >= 0 {
		return l.Votes[i].Node
	}
	return l.Node
}

// Host returns the address of the client without its port.
func (c Client) Host() string {
	if host, _, err := net.SplitHostPort(c.Addr); err == nil {
		return host
	}
	return c.Addr
}

// ClientsOf returns the clients that the value of a lock names: those whose name is the
// label or the ID of the holder; otherwise those whose address is in it. A loopback
// address names no client.
//
// If there is none, it returns the clients whose name is a word in the value, and hint is
// true: another service may have that name. A word ends at every character that is neither
// a letter nor a digit. In JSON only a whole value counts, and never the name of a field.
func (h Holder) ClientsOf(all []Client) (found []Client, hint bool) {
	texts, isJSON := h.texts()
	anyHasWord := func(word string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return hasWord(text, word) })
	}
	for i, names := range []func(c Client) bool{
		func(c Client) bool { return c.Name != "" && (c.Name == h.Label || c.Name == h.ID) },
		func(c Client) bool { return anyHasWord(c.Addr) },
		func(c Client) bool {
			ip := net.ParseIP(c.Host())
			return ip != nil && !ip.IsLoopback() && anyHasWord(c.Host())
		},
		func(c Client) bool {
			return len(c.Name) >= 4 && (slices.Contains(texts, c.Name) || !isJSON && anyHasWord(c.Name)) // a shorter one may be chance
		},
	} {
		for _, c := range all {
			if names(c) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found, i == 3
		}
	}
	return nil, false
}

// Closed says when the connection of the holder closed; "" = it is connected, or that is not known.
func (h Holder) Closed() string {
	if h.DisconnectedAt.IsZero() || h.ConnectedAt.IsZero() {
		return ""
	}
	return ClosedBetween(h.Addr, h.ConnectedAt, h.DisconnectedAt)
}

// ClosedBetween says that a connection closed after it was listed last, and before a list without it.
func ClosedBetween(client string, last, without time.Time) string {
	const clock = "15:04:05"
	return fmt.Sprintf("its connection %s closed between %s and %s", client, last.Local().Format(clock), without.Local().Format(clock))
}

// Closing is the end of a connection between two lists of the clients: the last one with it, and the
// first one without it.
type Closing struct {
	Client
	Last, By time.Time
}

// Closings remembers the connections of a server that have closed. The zero value is ready.
type Closings struct {
	list []Client // the last one
	at   time.Time
	all  []Closing
}

// Listed takes a list of the clients with some IDs, or with ids nil of all, that was requested at a
// time and answered by another, or the error of it, which says nothing.
func (c *Closings) Listed(list []Client, ids []int64, err error, at, by time.Time) {
	if err != nil {
		return
	}
	const kept = 1000
	now := byClientID(list)
	for _, was := range c.list {
		if _, open := now[was.ID]; !open && (ids == nil || slices.Contains(ids, was.ID)) {
			c.all = append(c.all[max(0, len(c.all)-kept):], Closing{was, c.at, by})
		}
	}
	c.list, c.at = list, at
}

// Of returns the last closing of a connection of a holder: one that its value names, or that has an ID.
func (c *Closings) Of(h *Holder, id int64) (Closing, bool) {
	for _, was := range slices.Backward(c.all) {
		if named, hint := h.ClientsOf([]Client{was.Client}); len(named) > 0 && !hint || was.ID == id {
			return was, true
		}
	}
	return Closing{}, false
}

// texts returns the label and the ID. If the ID is JSON, it returns the strings in it, without
// the names of fields, instead of the ID.
func (h Holder) texts() (all []string, isJSON bool) {
	var value any
	if !strings.HasPrefix(h.ID, "{") && !strings.HasPrefix(h.ID, "[") || json.Unmarshal([]byte(h.ID), &value) != nil {
		return []string{h.Label, h.ID}, false
	}
	return appendStrings([]string{h.Label}, value), true
}

// appendStrings appends the strings in a JSON value to all.
func appendStrings(all []string, value any) []string {
	switch v := value.(type) {
	case string:
		return append(all, v)
	case []any:
		for _, one := range v {
			all = appendStrings(all, one)
		}
	case map[string]any:
		for _, one := range v {
			all = appendStrings(all, one)
		}
	}
	return all
}

// hasWord reports whether word is in text, with no letter or digit beside it.
func hasWord(text, word string) bool {
	if word == "" {
		return false
	}
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:from+i])
		after, _ := utf8.DecodeRuneInString(text[from+i+len(word):])
		if !inWord(before) && !inWord(after) {
			return true
		}
		from += i + 1
	}
}

// inWord reports whether a character is part of a word. [utf8.RuneError], for the end of a
// text, is not.
func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// Process is a process that the value of a lock names.
type Process struct {
	Host string
	PID  int
	Sure bool // otherwise Host may be another word, and PID another number
}

// String describes the process for people.
func (p Process) String() string {
	if p.Sure {
		return fmt.Sprintf("%d on %s", p.PID, p.Host)
	}
	return fmt.Sprintf("%d on %s, if that is a host", p.PID, p.Host)
}

// Process returns the process that the label of a holder names, as in 4711@web-1 and, less
// sure, web-1:4711; ok is false if the label has another form. Before a colon, a word
// without a digit and a dot is no host: it may be a job with a number.
func (h Holder) Process() (p Process, ok bool) {
	for _, text := range []string{h.Label, h.ID} {
		if id, host, at := strings.Cut(text, "@"); at {
			if pid, ok := processID(id); ok && isHost(host) {
				return Process{host, pid, true}, true
			}
		}
		if i := strings.LastIndexByte(text, ':'); i >= 0 {
			host := text[:i]
			if pid, ok := processID(text[i+1:]); ok && isHost(host) && (host == "localhost" || strings.ContainsAny(host, ".0123456789")) {
				return Process{host, pid, false}, true
			}
		}
	}
	return Process{}, false
}

// processID returns the number in s, if it can be a process ID.
func processID(s string) (int, bool) {
	pid, err := strconv.Atoi(s)
	const most = 1 << 22 // of Linux
	return pid, err == nil && pid > 1 && pid <= most && s[0] != '0' && s[0] != '+'
}

// isHost reports whether s can be the name of a host. A UUID, which may stand before the
// number of a thread, is not one.
func isHost(s string) bool {
	if len(s) == 0 || len(s) > 64 || s[0] == '-' || isUUID(s) || !strings.ContainsFunc(s, unicode.IsLetter) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '.' && r != '_'
	})
}

// isUUID reports whether s has the form of a UUID.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// SameOwner reports whether two holders are the same client: by their IDs, by their
// labels, or by the UUID before the number of a thread.
func (h Holder) SameOwner(other Holder) bool {
	if h.ID == other.ID || h.Label != "" && h.Label == other.Label {
		return true
	}
	id := h.ClientID()
	return id != "" && id == other.ClientID()
}

// ClientID returns the UUID of a client in the ID of a holder, before the number of a
// thread; "" if there is none. All locks of the client have it.
func (h Holder) ClientID() string {
	if id, _, thread := strings.Cut(h.ID, ":"); thread && isUUID(id) {
		return id
	}
	return ""
}
