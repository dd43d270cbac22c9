package netfault

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
)

// Proxy is a loopback address whose connections lead over a network to a server. It is
// for clients that are processes of their own. All methods are safe for concurrent use.
type Proxy struct {
	network  *Network
	listener net.Listener
	to       [2]string // the network and the address of the server
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Listen starts a proxy to a server.
func (n *Network) Listen(network, addr string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{network: n, listener: l, to: [2]string{network, addr}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes the address and all connections, and returns when nothing of them is
// left. What was held back on them still arrives after Heal.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(near) })
	}
}

// serve connects a client to the server until either closes its connection.
func (p *Proxy) serve(near net.Conn) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = near.Close() })()
	far, err := p.network.Dial(ctx, p.to[0], p.to[1])
	if err != nil {
		_ = near.Close()
		return
	}
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	if p.network.Relay != nil {
		p.network.Relay(near, far)
	} else {
		p.copy(near, far)
	}
	_ = far.Close()
	_ = near.Close()
}

// copy copies the bytes of a connection until either side ends it.
func (p *Proxy) copy(near, far net.Conn) {
	var replies sync.WaitGroup
	replies.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	if p.network.Before == nil {
		_, _ = io.Copy(far, near)
	} else {
		_ = copyRequests(far, near, p.network.Before) // the end of the connection is the report
	}
	_ = far.Close()
	_ = near.Close()
	replies.Wait()
}

// Before decides what happens before a command of a client is passed on. Its argument is
// the name of the command in upper case, "" if the client sends something else. If the
// result is nil, the command is passed on. Otherwise the commands in front of it are
// passed on first, then the result is called; the command waits until it returns, and is
// lost, with the connection, if it returns an error.
type Before func(command string) func() error

// longestName bounds the name of a command; longer ones have no name.
const longestName = 64

// copyRequests copies the requests of a client to a server, and calls before for each.
// It changes no byte, and passes on what it has read before it waits for more, except
// the beginning of a command up to its name. It keeps at most 32 KiB.
func copyRequests(to io.Writer, from io.Reader, before Before) error {
	out := bufio.NewWriterSize(to, 16<<10)
	r := &requests{in: bufio.NewReaderSize(flushed{from, out}, 16<<10), out: out, before: before}
	err := r.command()
	for err == nil {
		err = r.command()
	}
	if errors.Is(err, errUnknown) {
		err = r.pass(math.MaxInt64)
	}
	return errors.Join(err, out.Flush())
}

// flushed is a reader that flushes out before each read.
type flushed struct {
	io.Reader
	out *bufio.Writer
}

func (f flushed) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.Reader.Read(p)
}

// errUnknown: the client does not send RESP. What it sends is passed on unread.
var errUnknown = errors.New("not the Redis protocol")

// requests is a stream of commands: arrays of bulk strings, or lines. The beginning of a command stays in
// the buffer of in until its name is known.
type requests struct {
	in     *bufio.Reader
	out    *bufio.Writer
	before Before
}

// command copies one command.
func (r *requests) command() error {
	first, err := r.peek(1)
	if err != nil {
		return err
	}
	if first[0] != '*' {
		return r.inline()
	}
	args, end, err := r.number('*', 0)
	if err != nil {
		return err
	}
	if args < 1 {
		return r.pass(end)
	}
	length, end, err := r.number('$', end)
	if err != nil {
		return err
	}
	name := ""
	if length <= longestName {
		head, err := r.peek(end + length + 2)
		if err != nil {
			return err
		}
		name = string(head[end : end+length])
	}
	if err := r.named(name); err != nil {
		return err
	}
	if err := r.pass(end + length + 2); err != nil {
		return err
	}
	for range args - 1 {
		length, end, err := r.number('$', 0)
		if err != nil {
			return err
		}
		if err := r.pass(end + length + 2); err != nil {
			return err
		}
	}
	return nil
}

// inline copies a command that is a line.
func (r *requests) inline() error {
	var head []byte
	for n := int64(1); !bytes.HasSuffix(head, []byte("\n")) && n <= longestName+1; n++ {
		var err error
		if head, err = r.peek(n); err != nil {
			return err
		}
		if len(bytes.Fields(head)) > 0 && bytes.ContainsAny(head[n-1:], " \t\r\n") {
			break // the name is complete
		}
	}
	name := ""
	if len(head) <= longestName {
		name, _, _ = strings.Cut(strings.TrimSpace(string(head)), " ")
	}
	if err := r.named(name); err != nil {
		return err
	}
	for ended := false; !ended; {
		if _, err := r.peek(1); err != nil {
			return err
		}
		there, _ := r.in.Peek(r.in.Buffered())
		end := bytes.IndexByte(there, '\n') + 1
		if ended = end > 0; !ended {
			end = len(there)
		}
		if err := r.pass(int64(end)); err != nil {
			return err
		}
	}
	return nil
}

// named calls before for a command whose name is known.
func (r *requests) named(name string) error {
	act := r.before(strings.ToUpper(name))
	if act == nil {
		return nil
	}
	if err := r.out.Flush(); err != nil {
		return err
	}
	return act()
}

// number returns the number in a line like *3 or $11 that begins at a place of the buffer, and the end of the line.
func (r *requests) number(sign byte, begin int64) (n, end int64, err error) {
	const longest = int64(len("$-9223372036854775808\r\n"))
	var line []byte
	for end = begin; !bytes.HasSuffix(line, []byte("\r\n")); {
		if end-begin == longest {
			return 0, end, errUnknown
		}
		end++
		head, err := r.peek(end)
		if err != nil {
			return 0, end, err
		}
		line = head[begin:]
	}
	digits, signed := bytes.CutPrefix(line[:len(line)-2], []byte{sign})
	n, err = strconv.ParseInt(string(digits), 10, 48)
	if !signed || err != nil || sign == '$' && n < 0 {
		return 0, end, errUnknown
	}
	return n, end, nil
}

// peek waits until the buffer has n bytes, and returns them. If there are fewer, it passes them on.
func (r *requests) peek(n int64) ([]byte, error) {
	there, err := r.in.Peek(int(n))
	if err != nil {
		return nil, errors.Join(err, r.pass(int64(len(there))))
	}
	return there, nil
}

// pass passes on n bytes as they arrive.
func (r *requests) pass(n int64) error {
	for n > 0 {
		if _, err := r.peek(1); err != nil {
			return err
		}
		there, _ := r.in.Peek(int(min(n, int64(r.in.Buffered()))))
		if _, err := r.out.Write(there); err != nil {
			return err
		}
		n -= int64(len(there))
		_, _ = r.in.Discard(len(there)) // it is in the buffer
	}
	return nil
}
