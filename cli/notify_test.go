package cli

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestANoticeHasNoSequenceOfItsText(t *testing.T) {
	const want = "\a\x1b]9;locktop: a, b]0,x\a\x1b]777;notify;locktop;locktop: a, b]0,x\a"
	for _, c := range []struct{ tmux, sty, want string }{
		{"", "", want},
		{"x", "", "\a\x1bPtmux;" + strings.ReplaceAll(want[1:], "\x1b", "\x1b\x1b") + "\x1b\\"},
		{"", "x", "\a"},
	} {
		t.Setenv("TMUX", c.tmux)
		t.Setenv("STY", c.sty)
		var out strings.Builder
		err := (notifier{&out}).Notify("a; b\x1b]0;x\a\u009d")
		check.True(t, err == nil && out.String() == c.want, "%q, want %q: %v", out.String(), c.want, err)
	}
}
