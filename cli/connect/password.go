package connect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/pflag"

	"locktop/internal/shell"
	"locktop/tui/widget"
)

// passwordFlags says where a password that may change comes from.
type passwordFlags struct{ command, file string }

func (s *passwordFlags) addTo(set *pflag.FlagSet) {
	set.StringVar(&s.command, "password-command", "", "`command` that prints the password, or JSON; each new connection runs it")
	set.StringVar(&s.file, "password-file", "", "`file` with the password, or JSON; each new connection reads it")
}

// passwordWays are the flags that give a password.
var passwordWays = []string{"pass", "askpass", "password-command", "password-file"}

// source is where a password that may change comes from: a command or a file, and the flag or the
// key of the context that names it. The zero value is none.
type source struct{ origin, command, file string }

// passwordSource returns the source of the password. A flag with a password replaces those of the
// context.
func (c *Flags) passwordSource() source {
	switch {
	case c.given("password-command"), c.of.has("password-command"):
		return source{origin: c.of.origin("password-command"), command: c.command}
	case c.given("password-file"), c.of.has("password-file"):
		return source{origin: c.of.origin("password-file"), file: c.file}
	}
	return source{}
}

// rotates reports whether the password comes from a command or a file.
func (c *Flags) rotates() bool { return c.passwordSource() != source{} }

// Interactive reports whether to connect may ask the user, or run a program.
func (c *Flags) Interactive() bool { return c.askPass || c.rotates() || c.ssh != "" }

// checkPassword returns an error for two flags that give a password.
func (c *Flags) checkPassword() error {
	var given []string
	for _, way := range passwordWays {
		if c.given(way) {
			given = append(given, "--"+way)
		}
	}
	if len(given) > 1 {
		return usagef("", "%s and %s contradict each other", given[0], given[1])
	}
	return nil
}

// Prompt is where Open asks for the password and reports what is unsafe.
type Prompt struct {
	In   io.Reader
	Out  io.Writer
	Warn func(format string, args ...any) // nil: Open does not warn
	Note func(format string, args ...any) // nil: Open does not wait for a server that loads its data
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

// othersCanChange reports whether a regular file can be changed by users other than its
// owner.
func othersCanChange(info os.FileInfo) bool { return permits(info, 0o022) }

// permits reports whether the mode of a regular file has any of the bits. Windows has none.
func permits(info os.FileInfo, bits fs.FileMode) bool {
	return os.PathSeparator == '/' && info.Mode().IsRegular() && info.Mode().Perm()&bits != 0
}

// readPrivate reads the begin of a file with a password or a key, at most one byte more
// than maxSecret. It refuses a file that others can change.
func readPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && othersCanChange(info) {
		return nil, errors.New(withChmod("others may change "+path, path))
	}
	return io.ReadAll(io.LimitReader(file, maxSecret+1))
}

// withChmod appends the hint of chmodHint to a text about a file.
func withChmod(text, path string) string {
	if hint := chmodHint(path); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// chmodHint returns a hint with the command that hides a file from other users. It
// returns "" if the name has characters that a line for people cannot show.
func chmodHint(path string) string {
	line, _ := shell.Line("chmod", "600", path)
	if widget.Plain(line) != line {
		return ""
	}
	return line
}
