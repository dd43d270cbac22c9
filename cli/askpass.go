package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
)

// askPassword reads a password from a terminal without echo, or else from the
// first line of stdin. When ctx ends first, askPassword turns the echo on again
// and returns the error of ctx.
func (p *program) askPassword(ctx context.Context) (string, error) {
	ask := p.firstLine
	if f, ok := p.in.(*os.File); ok && term.IsTerminal(f.Fd()) {
		before, err := term.GetState(f.Fd())
		if err != nil {
			return "", fmt.Errorf("ask for the password: %w", err)
		}
		defer func() { _ = term.Restore(f.Fd(), before) }()
		ask = func() (string, error) { return p.prompt(f) }
	}

	// A blocked read cannot be cancelled: its goroutine lives until the process
	// ends.
	type answer struct {
		pass string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		pass, err := ask()
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
			return "", usageErrorf("", "--askpass got no password")
		}
		return a.pass, nil
	}
}

func (p *program) prompt(terminal *os.File) (string, error) {
	fmt.Fprint(p.notes.to, "Password: ")
	defer fmt.Fprintln(p.notes.to)
	pass, err := term.ReadPassword(terminal.Fd())
	return string(pass), err
}

func (p *program) firstLine() (string, error) {
	line, err := bufio.NewReader(p.in).ReadString('\n')
	if err == io.EOF {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}
