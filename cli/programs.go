package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"unicode"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"locktop/tui/widget"
)

// programs runs programs of the user in the terminal of the screen.
type programs struct{ program *program }

// Command implements [tui.Runner].
func (r programs) Command(ctx context.Context, args []string) tea.ExecCommand {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.program.in, r.program.out, r.program.out
	return &userProgram{Cmd: cmd, program: r.program, ctx: ctx}
}

// userProgram is a run of a program of the user. It has the terminal itself, and not what
// bubbletea would give it.
type userProgram struct {
	*exec.Cmd
	program *program
	ctx     context.Context
}

func (*userProgram) SetStdin(io.Reader)  {}
func (*userProgram) SetStdout(io.Writer) {}
func (*userProgram) SetStderr(io.Writer) {}

// Run runs the program, and waits for Enter so that its output can be read. Meanwhile, Ctrl-C
// ends the program and not locktop.
func (u *userProgram) Run() error {
	u.program.interrupts.Store(true)
	defer u.program.interrupts.Store(false)
	err := u.Cmd.Run()
	ended := "it has ended"
	if err != nil {
		ended = widget.Plain(err.Error())
	}
	fmt.Fprintf(u.program.out, "\n%s: press Enter to return to locktop ", ended)
	enter := make(chan struct{})
	go func() { // a blocked read cannot be cancelled: without Enter, it lives until locktop ends
		_, _ = bufio.NewReader(u.program.in).ReadString('\n')
		close(enter)
	}()
	select {
	case <-enter:
	case <-u.ctx.Done():
	}
	return err
}

// notifier notifies the user through the terminal, also over SSH.
type notifier struct{ terminal io.Writer }

// Notify rings the bell, and sends the text as a notice to the desktop by OSC 9 and OSC 777. A
// terminal ignores the sequences that it does not know. Within tmux they reach its terminal only
// with allow-passthrough; tmux shows the bell.
func (n notifier) Notify(text string) error {
	text = "locktop: " + strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return -1
		case r == ';': // separates the parts of OSC 777
			return ','
		}
		return r
	}, text)
	sequence := ansi.Notify(text) + "\x1b]777;notify;locktop;" + text + "\a"
	switch {
	case os.Getenv("TMUX") != "":
		sequence = ansi.TmuxPassthrough(sequence)
	case os.Getenv("STY") != "":
		sequence = ""
	}
	if _, err := io.WriteString(n.terminal, "\a"+sequence); err != nil { // one write, so that no frame comes between
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}
