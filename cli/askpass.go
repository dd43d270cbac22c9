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

// askPassword reads a password: from a terminal without echo, else the first
// line of stdin. When ctx ends while it asks, the terminal echoes again and the
// error is ctx's.
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

	// Nothing can call the reader back from a read: it is left behind, and
	// ends with the process.
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
