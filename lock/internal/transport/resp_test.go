package transport

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestCommandOnTheWire(t *testing.T) {
	got := string(appendCommand([]byte("before "), []string{"set", "k\r\n", "", "12"}))
	want := "before *4\r\n$3\r\nset\r\n$3\r\nk\r\n\r\n$0\r\n\r\n$2\r\n12\r\n"
	check.Equal(t, got, want, "the command")
}

func TestReplyIsTakenWholeHoweverItArrives(t *testing.T) {
	for raw, want := range map[string]any{
		"+OK\r\n":          "OK",
		"-ERR no\r\n":      serverError("ERR no"),
		":-42\r\n":         int64(-42),
		"$-1\r\n":          nil,
		"*-1\r\n":          nil,
		"$0\r\n\r\n":       "",
		"$4\r\na\r\nb\r\n": "a\r\nb",
		"*0\r\n":           []any(nil),
		"*4\r\n$1\r\nx\r\n:7\r\n$-1\r\n*1\r\n-E\r\n": []any{"x", int64(7), nil, []any{serverError("E")}},
	} {
		for cut := range len(raw) {
			reply, size, err := parseReply([]byte(raw[:cut]))
			check.True(t, size == 0 && err == nil, "of %q the first %d bytes are taken for %v, %v", raw, cut, reply, err)
		}
		reply, size, err := parseReply([]byte(raw + "+next\r\n"))
		check.True(t, err == nil && size == len(raw) && reflect.DeepEqual(reply, want),
			"%q is %v of size %d, %v; want %v of size %d", raw, reply, size, err, want, len(raw))
	}
}

func TestNonsenseIsNoReply(t *testing.T) {
	for _, raw := range []string{"\n", "x\n", "hello\r\n", ":\r\n", ":4x\r\n", "$x\r\n", "*1\r\n?\r\n", "$99999999999999999999\r\n", "$9223372036854775807\r\n",
		strings.Repeat("*1\r\n", 9), "*4097\r\n", "$4194305\r\n", "+" + strings.Repeat("x", maxLine), "*2\r\n" + strings.Repeat("$4194304\r\n"+strings.Repeat("x", maxReply), 2)} {
		reply, size, err := parseReply([]byte(raw))
		check.True(t, errors.Is(err, errProtocol), "%.40q is %v of size %d, %v; want %v", raw, reply, size, err, errProtocol)
	}
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "*2\r\n:1\r\n$-1\r\n", "$3\r\nabc\r\n", "-\r\n", "*-1\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, size, err := parseReply(raw)
		check.True(t, size >= 0 && size <= len(raw) && (err == nil || size == 0), "%q: a reply of size %d, %v", raw, size, err)
	})
}
