package connect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
)

// Prompt is where Open asks for the password and reports what is unsafe.
type Prompt struct {
	In   io.Reader
	Out  io.Writer
	Warn func(format string, args ...any) // nil: Open does not warn
}

// password reads a password from a terminal without echo, or else from the first line
// of In. When ctx ends first, password turns the echo on again and returns the error of
// ctx.
func (p Prompt) password(ctx context.Context) (string, error) {
	read := p.firstLine
	if f, ok := p.In.(*os.File); ok && term.IsTerminal(f.Fd()) {
		before, err := term.GetState(f.Fd())
		if err != nil {
			return "", fmt.Errorf("ask for the password: %w", err)
		}
		defer func() { _ = term.Restore(f.Fd(), before) }()
		read = func() (string, error) { return p.withoutEcho(f) }
	}

	// A blocked read cannot be cancelled: its goroutine lives until the process
	// ends.
	type answer struct {
		pass string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		pass, err := read()
		answered <- answer{pass, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-answered:
		if a.err != nil {
			return "", fmt.Errorf("ask for the password: %w", a.err)
		}
		if a.pass == "" {
			return "", usagef("", "--askpass got no password")
		}
		return a.pass, nil
	}
}

func (p Prompt) withoutEcho(terminal *os.File) (string, error) {
	fmt.Fprint(p.Out, "Password: ")
	defer fmt.Fprintln(p.Out)
	pass, err := term.ReadPassword(terminal.Fd())
	return string(pass), err
}

func (p Prompt) firstLine() (string, error) {
	line, err := bufio.NewReader(p.In).ReadString('\n')
	if err == io.EOF {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}
