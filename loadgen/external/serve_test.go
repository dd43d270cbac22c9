package external

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"testing"

	"locktop/internal/check"
)

// The process that runs the client knows a token only from the reply, so a loss that came
// before would go unnoticed. With the race detector, some of 5,000 runs show a wrong order.
func TestALossIsToldAfterTheTokenOfItsLock(t *testing.T) {
	lost := make(chan struct{})
	close(lost)
	l := Library{
		Hello: func(context.Context, Request) (Hello, error) { return Hello{Name: "test"}, nil },
		Lock:  func(context.Context, Request) (Hold, error) { return Hold{Lost: lost}, nil },
	}
	for range 5000 {
		requests, in := io.Pipe()
		out, replies := io.Pipe()
		go func() {
			_, err := Serve(t.Context(), l, requests, replies)
			_ = replies.CloseWithError(err)
		}()
		lines := bufio.NewScanner(out)
		fmt.Fprintf(in, `{"op":"hello","v":%d,"client":"c"}`+"\n", Version)
		check.Require(t, lines.Scan(), "no hello: %v", lines.Err())
		fmt.Fprintln(in, `{"op":"lock","id":1,"key":"k","ttl_ms":1000}`)
		check.Require(t, lines.Scan(), "no reply: %v", lines.Err())
		check.Contains(t, lines.Text(), `"token":"c-1"`, "the reply")
		check.Contains(t, lines.Text(), `"id":1`, "the reply")
		check.Require(t, lines.Scan(), "no event: %v", lines.Err())
		check.Contains(t, lines.Text(), `"event":"lost"`, "then")
		_ = in.Close()
		check.False(t, lines.Scan(), "more: %q", lines.Text())
	}
}
