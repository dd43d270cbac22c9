package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/aymanbagabas/go-osc52/v2"
)

// clipboard is the clipboard of the user's terminal, also over SSH. It receives
// text by an escape sequence (OSC 52). Some terminals ignore the sequence.
type clipboard struct{ terminal io.Writer }

// tmuxAnswers is the time that tmux has to accept a text.
const tmuxAnswers = time.Second

// Copy puts a text into the clipboard.
//
// By default tmux ignores the sequence and does not pass it to its terminal.
// Copy therefore loads the text into a buffer of tmux, which tmux sends to its
// terminal. If tmux does not answer, Copy sends both forms of the sequence: at
// most one of them takes effect.
func (c clipboard) Copy(text string) error {
	sequence := osc52.New(text)
	send := sequence.String()
	switch {
	case os.Getenv("TMUX") != "" && loadBuffer(text) == nil:
		return nil
	case os.Getenv("TMUX") != "":
		send += sequence.Tmux().String()
	case os.Getenv("STY") != "":
		send = sequence.Screen().String()
	}
	// One write, so that no frame comes between the parts.
	if _, err := io.WriteString(c.terminal, send); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

// loadBuffer makes text the newest buffer of tmux and the clipboard of its
// terminal. The text goes through a pipe, because other users can read arguments.
func loadBuffer(text string) error {
	ctx, stop := context.WithTimeout(context.Background(), tmuxAnswers)
	defer stop()
	cmd := exec.CommandContext(ctx, "tmux", "load-buffer", "-w", "-")
	cmd.Stdin = strings.NewReader(text)
	return cmd.Run()
}
