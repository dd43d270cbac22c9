//go:build unix

package clienttest

import (
	"bufio"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestAValueIsReadWithItsBytes(t *testing.T) {
	for raw, want := range map[string]string{
		"+OK\r\n": "OK", "-ERR no\r\n": "ERR no", ":7\r\n": "7", "$-1\r\n": "nil", "_\r\n": "nil", "*-1\r\n": "nil", "*0\r\n": "[]",
		"$4\r\na\r\nb\r\n": "a\r\nb", "*2\r\n$1\r\na\r\n:1\r\n": "[a 1]", "%1\r\n+k\r\n#t\r\n": "[k t]",
		"*1\r\n*2\r\n:1\r\n,1.5\r\n": "[[1 1.5]]", ">2\r\n+message\r\n+x\r\n": "[message x]",
		"|1\r\n+ttl\r\n:9\r\n+OK\r\n": "[ttl 9 OK]",
	} {
		v, err := readValue(bufio.NewReader(strings.NewReader(raw + "+next\r\n")))
		check.True(t, err == nil && v.text == want && string(v.raw) == raw, "%q: %q from %q, %v", raw, v.text, v.raw, err)
	}
	for _, raw := range []string{"", "x\r\n", "?1\r\n", "$5\r\nabc", "*2\r\n+a\r\n", "*x\r\n", "$99999999999\r\n", "*99999999\r\n"} {
		v, err := readValue(bufio.NewReader(strings.NewReader(raw)))
		check.True(t, err != nil, "%q is %q", raw, v.text)
	}
}

func TestACommandIsReadAsAnArrayOrALine(t *testing.T) {
	for raw, want := range map[string][]string{
		"*2\r\n$3\r\nget\r\n$1\r\nk\r\n": {"GET", "k"},
		"set k v\r\n":                    {"SET", "k", "v"},
	} {
		got, words, err := readCommand(bufio.NewReader(strings.NewReader(raw)))
		check.True(t, err == nil && string(got) == raw && slices.Equal(words, want), "%q: %q from %q, %v", raw, words, got, err)
	}
	_, words, err := readCommand(bufio.NewReader(strings.NewReader("\r\n")))
	check.True(t, err != nil, "an empty line is %q", words)
}

// A reply belongs to the oldest command without one; what the server pushes belongs to none.
func TestRepliesFindTheirCommands(t *testing.T) {
	l := &link{}
	get := &message{words: []string{"GET", "k"}, over: make(chan struct{}), replies: 1}
	subscribe := &message{words: []string{"SUBSCRIBE", "a", "b"}, over: make(chan struct{}), replies: 2}
	l.inFlight = []*message{get, subscribe}
	for i, want := range []struct {
		raw      string
		to       *message
		complete bool
	}{
		{"*3\r\n+message\r\n+a\r\n+hello\r\n", nil, false},
		{">3\r\n+subscribe\r\n+a\r\n:1\r\n", nil, false}, // GET is older
		{"+v\r\n", get, true},
		{"*3\r\n+subscribe\r\n+a\r\n:1\r\n", subscribe, false},
		{">3\r\n+invalidate\r\n+a\r\n:1\r\n", nil, false},
		{">3\r\n+subscribe\r\n+b\r\n:2\r\n", subscribe, true},
		{"+late\r\n", nil, false},
	} {
		v := check.Must(readValue(bufio.NewReader(strings.NewReader(want.raw))))(t)
		c, complete := l.answered(v)
		check.True(t, c == want.to && complete == want.complete, "reply %d: to %+v, complete %v", i+1, c, complete)
	}
}
