package explore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"locktop/internal/netfault"
)

// gate is the network between the clients and the servers of an order. It holds every
// command and every reply until it is told to deliver it, except for those by which go-redis
// connects, which it does under a mutex. It splits a pipeline into its commands.
type gate struct {
	mu      sync.Mutex
	open    bool // nothing is held any more
	step    int  // in which what arrives is caused
	cause   uint64
	conns   []*gateConn
	scripts []string      // that clients have sent
	arrived chan struct{} // capacity 1
}

// gateConn is a connection of a client.
type gateConn struct {
	gate           *gate
	client, server int
	number         int      // counts the connections of the client to the server
	near, far      net.Conn // to the client, to the server
	toNear         chan []byte
	requests       []held // guarded by gate.mu, like what follows
	replies        []held
	count          uint64 // of messages that were held
	passing        int    // replies to commands that were not held
	gone           bool   // the client has closed it, or sees it as broken
	over           bool   // the server will get nothing more
	subscribed     bool   // it is a connection for messages
}

// held is a command or a reply that a gate holds.
type held struct {
	id   uint64 // of what has caused it, and where
	step int
	data []byte
}

func newGate() *gate { return &gate{arrived: make(chan struct{}, 1)} }

// dialer returns the dialer of a client.
func (g *gate) dialer(client, server int, dial netfault.Dialer) netfault.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		far, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		theirs, near := net.Pipe()
		c := &gateConn{gate: g, client: client, server: server, near: near, far: far, toNear: make(chan []byte, 1024)}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, other := range g.conns {
			if other.client == client && other.server == server {
				c.number++
			}
		}
		g.conns = append(g.conns, c)
		go c.readRequests()
		go c.readReplies()
		go c.writeReplies()
		return theirs, nil
	}
}

// notify notes that something can be observed.
func (g *gate) notify() {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
}

// passes are the commands of go-redis's handshake and of its idle connections.
var passes = []string{"hello", "auth", "select", "client", "ping", "info"}

func (c *gateConn) readRequests() {
	g := c.gate
	var buffer []byte
	chunk := make([]byte, 16<<10)
	for {
		n, err := c.near.Read(chunk)
		buffer = append(buffer, chunk[:n]...)
		g.mu.Lock()
		for size := commandSize(buffer); size > 0; size = commandSize(buffer) {
			command := bytes.Clone(buffer[:size])
			buffer = buffer[size:]
			name := strings.ToLower(words(command)[0])
			if name == "eval" {
				g.scripts = append(g.scripts, words(command)[1])
			}
			switch {
			case len(c.requests) == 0 && (g.open || slices.Contains(passes, name)):
				c.passing++
				_, _ = c.far.Write(command)
			default:
				c.subscribed = c.subscribed || name == "subscribe"
				c.requests = append(c.requests, held{g.id(c, "request"), g.step, command})
				g.notify()
			}
		}
		if err != nil {
			c.gone, c.replies = true, nil
			c.hangUp()
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
}

func (c *gateConn) readReplies() {
	g := c.gate
	defer close(c.toNear)
	chunk := make([]byte, 32<<10)
	for {
		n, err := c.far.Read(chunk)
		g.mu.Lock()
		data := bytes.Clone(chunk[:n])
		last := len(c.replies) - 1
		switch {
		case c.gone || n == 0:
		case g.open || c.passing > 0 && last < 0:
			c.passing--
			c.toNear <- data
		case last >= 0 && c.replies[last].step == g.step:
			c.replies[last].data = append(c.replies[last].data, data...)
		default:
			c.replies = append(c.replies, held{g.id(c, "reply"), g.step, data})
			g.notify()
		}
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *gateConn) writeReplies() {
	defer c.near.Close()
	for data := range c.toNear {
		_, _ = c.near.Write(data) // an error: the client has closed it
	}
}

// hangUp closes the connection to the server behind what the client has written. The
// caller holds gate.mu.
func (c *gateConn) hangUp() {
	if len(c.requests) == 0 && !c.over {
		c.over = true
		_ = c.far.Close()
	}
}

// cut breaks the connection. If late is false, the held commands never arrive. The caller holds gate.mu.
func (c *gateConn) cut(late bool) {
	c.gone, c.replies = true, nil
	if !late {
		c.requests = nil
	}
	_ = c.near.Close()
	c.hangUp()
}

// deliver delivers the first held command, or the first held reply.
func (c *gateConn) deliver(request bool) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if request {
		_, _ = c.far.Write(c.requests[0].data)
		if c.requests = c.requests[1:]; c.gone {
			c.hangUp()
		}
		return
	}
	c.toNear <- c.replies[0].data
	c.replies = c.replies[1:]
}

// release ends the gate: what it holds is delivered, and nothing is held any more.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	for _, c := range g.conns {
		for _, r := range c.replies {
			c.toNear <- r.data
		}
		for _, r := range c.requests {
			_, _ = c.far.Write(r.data)
		}
		c.requests, c.replies = nil, nil
		if c.gone {
			c.hangUp()
		}
	}
}

// begin says which step and which event cause what arrives from now on.
func (g *gate) begin(step int, cause uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step, g.cause = step, cause
}

// id returns the identity of a message. The caller holds g.mu.
func (g *gate) id(c *gateConn, what string) uint64 {
	c.count++
	return mix(g.cause, what, uint64(c.client), uint64(c.server), uint64(c.number), c.count)
}

// mix returns a hash of its arguments.
func mix(id uint64, what string, more ...uint64) uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, n := range append(more, id) {
		binary.LittleEndian.PutUint64(b[:], n)
		_, _ = h.Write(b[:])
	}
	_, _ = h.Write([]byte(what))
	return h.Sum64()
}

// commandSize returns the length of the first command, an array of bulk strings; 0 if it is
// not complete.
func commandSize(p []byte) int {
	n, at := lineAt(p, 0)
	for range n {
		size, next := lineAt(p, at)
		if next == 0 || next+size+2 > len(p) {
			return 0
		}
		at = next + size + 2
	}
	return at
}

// lineAt parses a line like *3 or $5. next is 0 if the line is not complete.
func lineAt(p []byte, at int) (n, next int) {
	end := bytes.Index(p[at:], []byte("\r\n"))
	if end < 1 {
		return 0, 0
	}
	n, _ = strconv.Atoi(string(p[at+1 : at+end]))
	return n, at + end + 2
}

// words returns the arguments of a complete command.
func words(p []byte) (all []string) {
	n, at := lineAt(p, 0)
	for range n {
		size, next := lineAt(p, at)
		all = append(all, string(p[next:next+size]))
		at = next + size + 2
	}
	return all
}

// tokenIDs are the random parts of tokens and of the names of processes.
var tokenIDs = regexp.MustCompile(`~[0-9a-f-]{36}|~[0-9a-f]{12}|:[0-9a-f]{12}`)

// readable describes a command or a reply in one line.
func readable(request bool, data []byte) string {
	var text string
	if request {
		args := words(data)
		if script, ok := scriptNames.Load(strings.ToLower(args[min(1, len(args)-1)])); ok {
			args = append([]string{script.(string)}, args[3:]...)
		}
		text = strings.Join(args, " ")
	} else {
		var parts []string
		for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\r\n") {
			if line[:min(1, len(line))] != "*" && line[:min(1, len(line))] != ">" && (line == "$-1" || line[:min(1, len(line))] != "$") {
				parts = append(parts, line)
			}
		}
		text = strings.Join(parts, " ")
	}
	text = tokenIDs.ReplaceAllStringFunc(text, func(id string) string { return id[:1] })
	if len(text) > 110 {
		text = text[:110] + "…"
	}
	return text
}

// scriptTitle is the comment that names a Lua file.
var scriptTitle = regexp.MustCompile(`(?m)^-- ([a-z]+_[a-z]+):`)

// scriptName returns the name of a script: that of its last file.
func scriptName(source string) string {
	titles := scriptTitle.FindAllStringSubmatch(source, -1)
	return titles[len(titles)-1][1]
}

// nameScripts notes the names of scripts, for readable.
func nameScripts(sources []string) {
	for _, source := range sources {
		sum := sha1.Sum([]byte(source))
		scriptNames.Store(hex.EncodeToString(sum[:]), scriptName(source))
	}
}

// scriptNames has the names of scripts by their hashes.
var scriptNames sync.Map
