package netfault

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

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
		err = r.rest()
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

// requests is a stream of commands: arrays of bulk strings, or lines.
type requests struct {
	in     *bufio.Reader
	out    *bufio.Writer
	before Before
	head   []byte // the command up to its name, which is not in out yet
}

// command copies one command.
func (r *requests) command() error {
	r.head = r.head[:0]
	first, err := r.in.Peek(1)
	if err != nil {
		return err
	}
	if first[0] != '*' {
		return r.inline()
	}
	args, err := r.number('*')
	if err != nil || args < 1 {
		return r.abandon(err)
	}
	length, err := r.number('$')
	if err != nil || length < 0 {
		return r.abandon(errors.Join(err, errUnknown))
	}
	name, rest := "", length+2
	if length <= longestName {
		if err := r.toHead(int(rest)); err != nil {
			return r.abandon(err)
		}
		name, rest = string(r.head[len(r.head)-int(rest):len(r.head)-2]), 0
	}
	if err := r.named(name); err != nil {
		return err
	}
	if err := r.pass(rest); err != nil {
		return err
	}
	for range args - 1 {
		if err := r.argument(); err != nil {
			return err
		}
	}
	return nil
}

// argument copies a bulk string.
func (r *requests) argument() error {
	r.head = r.head[:0]
	length, err := r.number('$')
	if err == nil && length < 0 {
		err = errUnknown
	}
	if err := r.abandon(err); err != nil {
		return err
	}
	return r.pass(length + 2)
}

// inline copies a command that is a line.
func (r *requests) inline() error {
	for !bytes.HasSuffix(r.head, []byte("\n")) && len(r.head) <= longestName {
		if err := r.toHead(1); err != nil {
			return r.abandon(err)
		}
		if words := bytes.Fields(r.head); len(words) > 0 && bytes.ContainsAny(r.head[len(r.head)-1:], " \t\r\n") {
			break // the name is complete
		}
	}
	line := string(r.head)
	name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if len(line) > longestName {
		name = ""
	}
	if err := r.named(name); err != nil {
		return err
	}
	for ended := strings.HasSuffix(line, "\n"); !ended; {
		if err := r.fill(); err != nil {
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

// named calls before for a command whose name is known, and passes on its beginning.
func (r *requests) named(name string) error {
	if act := r.before(strings.ToUpper(name)); act != nil {
		if err := r.out.Flush(); err != nil {
			return err
		}
		if err := act(); err != nil {
			return err
		}
	}
	return r.abandon(nil)
}

// abandon passes on the head, and returns err.
func (r *requests) abandon(err error) error {
	_, failed := r.out.Write(r.head)
	r.head = r.head[:0]
	return errors.Join(err, failed)
}

// number moves a line like *3 or $11 to the head.
func (r *requests) number(sign byte) (int64, error) {
	const longest = len("$-9223372036854775808\r\n")
	begin := len(r.head)
	for !bytes.HasSuffix(r.head[begin:], []byte("\r\n")) {
		if len(r.head)-begin == longest {
			return 0, errUnknown
		}
		if err := r.toHead(1); err != nil {
			return 0, err
		}
	}
	line := r.head[begin:]
	digits, signed := bytes.CutPrefix(line[:len(line)-2], []byte{sign})
	n, err := strconv.ParseInt(string(digits), 10, 48)
	if !signed || err != nil {
		return 0, errUnknown
	}
	return n, nil
}

// toHead moves n bytes to the head.
func (r *requests) toHead(n int) error {
	for range n {
		b, err := r.in.ReadByte()
		if err != nil {
			return err
		}
		r.head = append(r.head, b)
	}
	return nil
}

// fill waits until there is something to read.
func (r *requests) fill() error {
	_, err := r.in.Peek(1)
	return err
}

// pass passes on n bytes as they arrive.
func (r *requests) pass(n int64) error {
	for n > 0 {
		if err := r.fill(); err != nil {
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

// rest passes on everything that follows.
func (r *requests) rest() error {
	for {
		if err := r.fill(); err != nil {
			return err
		}
		if err := r.pass(int64(r.in.Buffered())); err != nil {
			return err
		}
	}
}
