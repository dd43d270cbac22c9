package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

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
