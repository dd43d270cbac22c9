package tui

import (
	"io"
	"regexp"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// output adapts the output of bubbletea to the terminal. bubbletea writes each frame with one
// Write.
type output struct {
	to   io.Writer
	dumb bool // the terminal knows no modes
}

// newOutput returns the writer for bubbletea. For a terminal file, it is a term.File, so that
// bubbletea can query the window size.
func newOutput(to io.Writer, dumb bool) io.Writer {
	o := output{to, dumb}
	if f, ok := to.(term.File); ok {
		return outputFile{f, o}
	}
	return o
}

// modes matches sequences that set or reset a mode of the terminal.
var modes = regexp.MustCompile(`\x1b\[\?[0-9;]+[hl]`)

// Write writes p as one synchronized update: the terminal shows all of it at once. A dumb
// terminal receives p without modes.
func (o output) Write(p []byte) (int, error) {
	text := ansi.SetModeSynchronizedOutput + string(p) + ansi.ResetModeSynchronizedOutput
	if o.dumb {
		text = modes.ReplaceAllString(string(p), "")
	}
	if text == "" {
		return len(p), nil
	}
	if _, err := io.WriteString(o.to, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// outputFile is an output to a file. It is not an *os.File, which bubbletea could write to
// directly.
type outputFile struct {
	term.File
	output output
}

// Write implements io.Writer.
func (f outputFile) Write(p []byte) (int, error) { return f.output.Write(p) }
