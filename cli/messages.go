package cli

import (
	"fmt"
	"io"

	"locktop/tui/widget"
)

// messages are what the program says beside its results: one line each, free of
// control characters wherever the text came from. As JSON they are one object a
// line.
type messages struct {
	to   io.Writer
	json bool
}

// jsonNote is a note as JSON; exactly one of the first three is set.
type jsonNote struct {
	Error   string `json:"error,omitempty"`
	Warning string `json:"warning,omitempty"`
	Note    string `json:"note,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Exit    int    `json:"exit,omitempty"`
}

// fault says why the program ends.
func (n messages) fault(f *exitError) {
	n.write(jsonNote{Error: f.Error(), Hint: f.hint, Exit: f.code})
}

// warning says what the user should know, while the program goes on.
func (n messages) warning(format string, args ...any) {
	n.write(jsonNote{Warning: fmt.Sprintf(format, args...)})
}

// ask puts a question, and leaves the cursor behind it.
func (n messages) ask(format string, args ...any) {
	fmt.Fprintf(n.to, format, args...)
}

// note says what has happened.
func (n messages) note(format string, args ...any) {
	n.write(jsonNote{Note: fmt.Sprintf(format, args...)})
}

func (n messages) write(j jsonNote) {
	if n.json {
		// Nothing can be done about a stderr that does not take it.
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
