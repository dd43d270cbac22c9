package netfault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"locktop/internal/check"
)

// resp returns a command as an array of bulk strings.
func resp(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// copied returns what copyRequests passes on, and the names of the commands.
func copied(t testing.TB, from io.Reader) (out string, names []string) {
	t.Helper()
	var to bytes.Buffer
	err := copyRequests(&to, from, func(name string) func() error {
		names = append(names, name)
		return nil
	})
	check.True(t, errors.Is(err, io.EOF), "copy ends with %v", err)
	return to.String(), names
}

func TestCommandsAreRecognised(t *testing.T) {
	for _, c := range []struct {
		what, stream string
		names        []string
	}{
		{"one", resp("GET", "k"), []string{"GET"}},
		{"a pipeline", resp("SET", "k", "v", "NX") + resp("del", "k") + resp("EvalSha", "abc", "1", "k"), []string{"SET", "DEL", "EVALSHA"}},
		{"a value that looks like a command", resp("SET", "k", "*1\r\n$3\r\nDEL\r\n") + resp("GET", "k"), []string{"SET", "GET"}},
		{"an empty value", resp("SET", "k", "") + resp("GET", "k"), []string{"SET", "GET"}},
		{"a large value", resp("SET", "k", strings.Repeat("x", 100_000)) + resp("DEL", "k"), []string{"SET", "DEL"}},
		{"inline", "PING\r\n  set k v\r\nget k\nDEL k\r\n", []string{"PING", "SET", "GET", "DEL"}},
		{"inline and arrays", "PING\r\n" + resp("GET", "k") + "\r\nDEL k\r\n", []string{"PING", "GET", "", "DEL"}},
		{"empty arrays", "*0\r\n*-1\r\n" + resp("GET", "k"), []string{"GET"}},
		{"a name that is too long", resp(strings.Repeat("G", 65), "k") + resp("GET", "k"), []string{"", "GET"}},
		{"an inline name that is too long", strings.Repeat("G", 65) + " k\r\nGET k\r\n", []string{"", "GET"}},
		{"a long inline command", "SET k " + strings.Repeat("x", 100_000) + "\r\nGET k\r\n", []string{"SET", "GET"}},
		{"a part of a command", resp("GET", "k") + "*2\r\n$3\r\nDE", []string{"GET"}},
		{"a part of a value", "*2\r\n$3\r\nDEL\r\n$10\r\nabc", []string{"DEL"}},
		{"no command", "*2\r\n:5\r\n" + resp("GET", "k"), nil},
		{"no length", "*x\r\n" + resp("GET", "k"), nil},
		{"a null value", "*2\r\n$3\r\nDEL\r\n$-1\r\n" + resp("GET", "k"), []string{"DEL"}},
		{"a line without an end", "*" + strings.Repeat("1", 100) + "\r\n" + resp("GET", "k"), nil},
		{"a huge length", "*2\r\n$3\r\nDEL\r\n$9223372036854775807\r\nabc", []string{"DEL"}},
		{"bytes of TLS", "\x16\x03\x01\x00\xc8\x01\x00", nil},
	} {
		for how, from := range map[string]io.Reader{
			"at once": strings.NewReader(c.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(c.stream)),
		} {
			out, names := copied(t, from)
			check.True(t, out == c.stream, "%s, %s: the bytes have changed: %.100q", c.what, how, out)
			check.True(t, slices.Equal(names, c.names), "%s, %s: commands %q, want %q", c.what, how, names, c.names)
		}
	}
}

func TestACommandWaitsAndThoseInFrontOfItDoNot(t *testing.T) {
	client, near := net.Pipe()
	server, far := net.Pipe()
	defer client.Close()
	defer server.Close()
	held, release := make(chan struct{}), make(chan error)
	ended := make(chan error)
	go func() {
		ended <- copyRequests(far, near, func(name string) func() error {
			if name != "DEL" {
				return nil
			}
			return func() error {
				close(held)
				return <-release
			}
		})
		far.Close()
	}()
	front := resp("GET", "k")
	go func() { _, _ = io.WriteString(client, front+resp("DEL", "k")+resp("PING")) }()
	got := make([]byte, len(front))
	_, err := io.ReadFull(server, got)
	check.Require(t, err == nil && string(got) == front, "got %q, %v", got, err)
	<-held
	release <- nil
	behind := make([]byte, len(resp("DEL", "k")+resp("PING")))
	if _, err := io.ReadFull(server, behind); err != nil || string(behind) != resp("DEL", "k")+resp("PING") {
		t.Errorf("got %q, %v", behind, err)
	}
	client.Close()
	check.ErrorIs(t, <-ended, io.EOF)
}

func TestACommandThatIsLostEndsTheStream(t *testing.T) {
	lost := errors.New("lost")
	var to bytes.Buffer
	err := copyRequests(&to, strings.NewReader(resp("GET", "k")+resp("DEL", "k")+resp("PING")), func(name string) func() error {
		if name == "DEL" {
			return func() error { return lost }
		}
		return nil
	})
	check.True(t, errors.Is(err, lost) && to.String() == resp("GET", "k"), "passed on %q, %v", to.String(), err)
}

func TestALargeValueIsNotKept(t *testing.T) {
	const size = 64 << 20
	head := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size)
	const tail = "\r\nDEL k\r\n"
	from := io.MultiReader(strings.NewReader(head), io.LimitReader(zeros{}, size), strings.NewReader(tail))
	var before, after runtime.MemStats
	var n counter
	runtime.ReadMemStats(&before)
	var names []string
	err := copyRequests(&n, from, func(name string) func() error { names = append(names, name); return nil })
	runtime.ReadMemStats(&after)
	check.True(t, slices.Equal(names, []string{"SET", "DEL"}), "commands %q, want SET and DEL", names)
	want := len(head) + size + len(tail)
	check.True(t, int(n) == want && errors.Is(err, io.EOF), "%d bytes of %d, %v", n, want, err)
	check.AtMost(t, after.TotalAlloc-before.TotalAlloc, 1<<20, "bytes allocated")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// FuzzRequests checks that no stream is changed, and that the commands do not depend on
// its segments.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(resp("SET", "k", "v")+resp("del", "k")), uint8(3))
	f.Add([]byte("PING\r\n"+resp("GET", "k")), uint8(1))
	f.Add([]byte("*2\r\n$3\r\nDEL\r\n$-1\r\n"), uint8(2))
	f.Add([]byte("*1\r\n$200\r\nabc"), uint8(7))
	f.Add([]byte("\r\n\r\n*0\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, segment uint8) {
		whole, names := copied(t, bytes.NewReader(stream))
		split, again := copied(t, &segments{stream, int(segment) + 1})
		check.True(t, whole == string(stream) && split == string(stream), "%q becomes %q, in segments %q", stream, whole, split)
		check.True(t, slices.Equal(names, again), "commands %q, in segments %q", names, again)
	})
}

// segments is a reader that returns a stream in segments.
type segments struct {
	left []byte
	size int
}

func (s *segments) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.size)], s.left)
	s.left = s.left[n:]
	return n, nil
}
