package cli

import (
	"fmt"
	"io"

	"locktop/tui/widget"
)

// messages writes the messages of the program that are not results: one line each,
// or one JSON object per line. It removes control characters from every text.
type messages struct {
	to   io.Writer
	json bool
}

// jsonNote is a message as JSON. Exactly one of the first three fields is set.
type jsonNote struct {
	Error   string `json:"error,omitempty"`
	Warning string `json:"warning,omitempty"`
	Note    string `json:"note,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Exit    int    `json:"exit,omitempty"`
}

// fault reports why the program ends.
func (n messages) fault(f *exitError) {
	n.write(jsonNote{Error: f.Error(), Hint: f.hint, Exit: f.code})
}

// warning tells the user of a danger; the program continues.
func (n messages) warning(format string, args ...any) {
	n.write(jsonNote{Warning: fmt.Sprintf(format, args...)})
}

// ask writes a question and leaves the cursor after it.
func (n messages) ask(format string, args ...any) {
	fmt.Fprintf(n.to, format, args...)
}

// note reports an event.
func (n messages) note(format string, args ...any) {
	n.write(jsonNote{Note: fmt.Sprintf(format, args...)})
}

func (n messages) write(j jsonNote) {
	if n.json {
		// There is no other place to report an error of stderr.
		_ = writeJSON(n.to, j)
		return
	}
	text := j.Error + j.Note
	if j.Warning != "" {
		text = "warning: " + j.Warning
	}
	if j.Hint != "" {
		text += " (" + j.Hint + ")"
	}
	fmt.Fprintf(n.to, "locktop: %s\n", widget.Plain(text))
}
