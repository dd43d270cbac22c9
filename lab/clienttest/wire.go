package clienttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"locktop/internal/netfault"
)

// fate is what happens to a command that a client has sent.
type fate uint8

const (
	delivered fate = iota // it runs, and its reply arrives
	unheard               // it runs, but its reply and its connection are lost when broken is closed
	vanished              // it does not run: it is lost with its connection
)

// message is a command of a client, on its way to a server.
type message struct {
	node   int // of the server, from 1
	words  []string
	fate   chan fate     // capacity 1: the wire waits for it
	over   chan struct{} // closed when the reply is here, or when there will be none
	broken chan struct{} // closed when the connection of an unheard reply breaks
	reply  string        // after over

	replies int // that it gets
	ended   sync.Once
	lost    bool
}

func (c *message) end(reply string) {
	c.ended.Do(func() {
		c.reply = reply
		close(c.over)
	})
}

// text describes the command in a table.
func (c *message) text() string {
	words := make([]string, 0, len(c.words))
	for i, w := range c.words {
		most := 24
		if i == 1 && strings.HasPrefix(c.words[0], "EVAL") {
			most = 8 // a hash, or the text of a script
		}
		words = append(words, shortened(strings.Join(strings.Fields(w), " "), most))
	}
	return shortened(strings.Join(words, " "), longestLabel)
}

// wire is the address of a server for one client. It reads each command and each reply, and
// asks its client's player when a command may go on. Before it is closed, the player must have
// decided the fate of all commands, or do so for those that still arrive.
type wire struct {
	*netfault.Proxy
	node    int
	arrived func(*message) // sends the fate of the command, now or later
	heard   func()         // is called before each reply
}

func openWire(node int, server string, arrived func(*message), heard func()) (w *wire, err error) {
	w = &wire{node: node, arrived: arrived, heard: heard}
	network := netfault.New(new(net.Dialer).DialContext)
	network.Relay = w.relay
	w.Proxy, err = network.Listen("tcp", server)
	return w, err
}

// link is one connection of a client to a server.
type link struct {
	near, far net.Conn

	mu       sync.Mutex
	inFlight []*message // without a reply, in order
	closed   bool
}

func (w *wire) relay(near, far net.Conn) {
	l := &link{near: near, far: far}
	var replies sync.WaitGroup
	replies.Go(func() { l.replies(w) })
	l.requests(w)
	_ = far.Close()
	replies.Wait()
}

// requests passes on the commands, one after the other.
func (l *link) requests(w *wire) {
	for in := bufio.NewReader(l.near); ; {
		raw, words, err := readCommand(in)
		if err != nil {
			return
		}
		c := &message{node: w.node, words: words, fate: make(chan fate, 1), over: make(chan struct{}), broken: make(chan struct{}), replies: 1}
		if strings.HasSuffix(c.words[0], "SUBSCRIBE") {
			c.replies = max(len(words)-1, 1)
		}
		w.arrived(c)
		f := <-c.fate
		c.lost = f == unheard
		if f == vanished || !l.send(c, raw) {
			c.end("lost")
			return
		}
	}
}

func (l *link) send(c *message, raw []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.inFlight = append(l.inFlight, c)
	_, err := l.far.Write(raw)
	return err == nil
}

// replies passes on what the server sends.
func (l *link) replies(w *wire) {
	defer l.end()
	for in := bufio.NewReader(l.far); ; {
		v, err := readValue(in)
		if err != nil {
			return
		}
		c, complete := l.answered(v)
		if c != nil && c.lost {
			c.end(v.text)
			<-c.broken
			return
		}
		w.heard()
		if _, err := l.near.Write(v.raw); err != nil {
			return
		}
		if complete {
			c.end(v.text)
		}
	}
}

// answered returns the command to which a value is the reply; nil: to none. Complete: it has
// all replies.
func (l *link) answered(v value) (c *message, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.inFlight) == 0 {
		return nil, false
	}
	c = l.inFlight[0]
	if v.pushed() && !(strings.HasSuffix(c.words[0], "SUBSCRIBE") && strings.HasSuffix(v.kind, "subscribe")) {
		return nil, false
	}
	if c.replies--; c.replies > 0 {
		return c, false
	}
	l.inFlight = l.inFlight[1:]
	return c, true
}

// end ends the connection, and all commands without a reply.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.inFlight {
		c.end("no reply")
	}
	l.inFlight = nil
	_ = l.near.Close()
	_ = l.far.Close()
}

// readCommand reads a command: an array of bulk strings, or a line.
func readCommand(in *bufio.Reader) (raw []byte, words []string, err error) {
	first, err := in.Peek(1)
	if err != nil {
		return nil, nil, err
	}
	if first[0] != '*' {
		line, err := in.ReadString('\n')
		if words = strings.Fields(line); err == nil && len(words) == 0 {
			err = errNoRESP
		}
		if err == nil {
			words[0] = strings.ToUpper(words[0])
		}
		return []byte(line), words, err
	}
	v, err := readValue(in)
	if err == nil && len(v.items) == 0 {
		err = errNoRESP
	}
	if err != nil {
		return nil, nil, err
	}
	for _, item := range v.items {
		words = append(words, item.text)
	}
	words[0] = strings.ToUpper(words[0])
	return v.raw, words, nil
}

var errNoRESP = errors.New("not RESP")

// value is a value in RESP, version 2 or 3.
type value struct {
	raw   []byte
	sign  byte
	text  string
	kind  string // of an array: its first text
	items []value
}

// pushed reports whether the server sends the value without a command, or as one of several
// replies to SUBSCRIBE.
func (v value) pushed() bool {
	kinds := []string{"message", "pmessage", "smessage", "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe"}
	return v.sign == '>' || v.sign == '*' && len(v.items) > 2 && slices.Contains(kinds, v.kind)
}

// Bounds of a value.
const (
	longestArray = 1 << 16
	longestText  = 64 << 20
)

// readValue reads one value.
func readValue(in *bufio.Reader) (v value, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return v, err
	}
	if len(line) < 3 {
		return v, errNoRESP
	}
	v.raw, v.sign, v.text = []byte(line), line[0], strings.TrimSpace(line[1:])
	switch v.sign {
	case '+', '-', ':', ',', '#', '(':
		return v, nil
	case '_':
		v.text = "nil"
		return v, nil
	}
	n, err := strconv.Atoi(v.text)
	if err != nil || n > longestArray && v.sign != '$' || n > longestText {
		return v, errNoRESP
	}
	if n < 0 {
		v.text = "nil"
		return v, nil
	}
	switch v.sign {
	case '$', '!', '=':
		body := make([]byte, n+2)
		_, err := io.ReadFull(in, body)
		v.raw, v.text = append(v.raw, body...), string(body[:n])
		return v, err
	case '%':
		n *= 2
	case '|': // attributes, and then the value
		n = 2*n + 1
	case '*', '~', '>':
	default:
		return v, fmt.Errorf("%w: %q", errNoRESP, v.sign)
	}
	var texts []string
	for range n {
		item, err := readValue(in)
		if err != nil {
			return v, err
		}
		v.raw, v.items, texts = append(v.raw, item.raw...), append(v.items, item), append(texts, item.text)
	}
	v.text = "[" + strings.Join(texts, " ") + "]"
	if n > 0 {
		v.kind = v.items[0].text
	}
	return v, nil
}
