package server

import (
	"io"
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestOutputTailSeesReadinessHoweverTheOutputIsCut(t *testing.T) {
	t.Parallel()
	j := newOutputTail()
	for _, r := range strings.Repeat("# Warning: overcommit\n", 500) + "* Ready to accept connections\n" {
		select {
		case <-j.ready:
			t.Fatal("ready before the server said so")
		default:
		}
		_, _ = io.WriteString(j, string(r))
		if strings.Contains(string(j.tail), "connections") {
			break
		}
	}
	select {
	case <-j.ready:
	default:
		t.Error("not ready although the server said so")
	}
}

func TestOutputTailKeepsTheEnd(t *testing.T) {
	j := newOutputTail()
	_, _ = io.WriteString(j, strings.Repeat("chatter\n", tailSize))
	_, _ = io.WriteString(j, "bind: Address already in use\n")
	check.Equal(t, j.lastLine(), "bind: Address already in use", "the last words are")
	check.True(t, j.portTaken(), "it did not notice that the port was taken")
	check.True(t, len(j.tail) <= tailSize, "it keeps %d bytes", len(j.tail))
}
