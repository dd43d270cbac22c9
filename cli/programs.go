package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"

	tea "github.com/charmbracelet/bubbletea"

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
