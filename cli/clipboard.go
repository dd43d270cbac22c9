package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/aymanbagabas/go-osc52/v2"
)

// clipboard is the one of the user's terminal, wherever that is: the text goes
// there in an escape sequence, also over SSH. Terminals that do not know the
// sequence, or were told not to trust it, ignore it.
type clipboard struct{ terminal io.Writer }

// Copy puts a text into the clipboard.
func (c clipboard) Copy(text string) error {
	sequence := osc52.New(text)
	switch {
	case os.Getenv("TMUX") != "":
		sequence = sequence.Tmux()
	case os.Getenv("STY") != "":
		sequence = sequence.Screen()
	}
	// In one write, or a frame could come in between.
	if _, err := io.WriteString(c.terminal, sequence.String()); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}
