package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/tui/widget"
)

// The exit codes that scripts rely on.
const (
	exitFine        = 0
	exitFailure     = 1
	exitUsage       = 2
	exitFindings    = 3
	exitNoLock      = 4
	exitChanged     = 5 // the lock differs from the one that was seen; nothing was changed
	exitNoConnect   = 6
	exitUnsafe      = 98 // overlap on a lock that must be safe
	exitThreshold   = 99
	exitInterrupted = 130 // 128 and the number of the signal: SIGHUP 129, SIGINT 130, SIGTERM 143
)

// exitCodes is the explanation in the help.
const exitCodes = `  0    success
  1    a failure; the output is incomplete
  2    wrong arguments
  3    a lock has a finding: list --fail-if-stuck, doctor
  4    no such lock
  5    the lock has changed since it was read; locktop changed nothing
  6    no connection to the server
  98   load: a lock broke a promise
  99   load: a threshold was missed, or the run is inconclusive
  130  interrupted (SIGINT), 143 (SIGTERM), 129 (SIGHUP: the terminal was closed)
`

// environment is the explanation of the variables in the help. The screen's libraries read the last line.
const environment = `  LOCKTOP_CONTEXT             context of commands with --context, if no flag says where
  LOCKTOP_URL, REDIS_URL      address, if no flag or context says where; the first one counts
  REDISCLI_AUTH               password, unless a flag, the address or the context has one
  LOCKTOP_SENTINEL_PASS       password of the Sentinels
  XDG_CONFIG_HOME             directory of locktop/config.yaml (default: ~/.config)
  XDG_STATE_HOME              directory of locktop/audit.jsonl (default: ~/.local/state)
  NO_COLOR                    print no colours
  TERM                        with dumb, the screen has no styles
  LC_ALL, LC_CTYPE, LANG      without UTF-8, the screen has ASCII and no colours
  TMUX, STY                   the screen copies by way of tmux or screen
  SUDO_USER, USER             names for the audit log, beside the user ID
  GOGC                        setting of Go's memory, instead of locktop's own
  COLORTERM, CLICOLOR, CLICOLOR_FORCE  colours of the terminal
`

// files is the explanation of the files in the manual pages.
const files = `  ~/.config/locktop/config.yaml           contexts, keys, commands; see locktop config
  ~/.local/state/locktop/audit.jsonl      a line before and after each action
`

// exitError is an error with an exit code and, if the user can do something, a hint.
type exitError struct {
	code int
	err  error
	hint string
}

func (f *exitError) Error() string { return f.err.Error() }
func (f *exitError) Unwrap() error { return f.err }

// usageErrorf returns the exitError for a wrong command line.
func usageErrorf(hint, format string, args ...any) *exitError {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// asExitError returns the exitError in err, or an exitError for err.
func asExitError(err error) *exitError {
	if f, ok := errors.AsType[*exitError](err); ok {
		return f
	}
	if f, ok := errors.AsType[*connect.Error](err); ok {
		code := exitNoConnect
		if f.Usage {
			code = exitUsage
		}
		return &exitError{code: code, err: f, hint: f.Hint}
	}
	return &exitError{code: exitFailure, err: err}
}

// messages writes the messages of the program that are not results: one line each,
// or one JSON object per line, with one Write. It removes control characters from every text.
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
	Exit    int    `json:"exit_code,omitempty"`
}

// fault reports why the program ends.
func (n messages) fault(f *exitError) {
	n.write(jsonNote{Error: f.Error(), Hint: f.hint, Exit: f.code})
}

// warning tells the user of a danger; the program continues.
func (n messages) warning(format string, args ...any) {
	n.write(jsonNote{Warning: fmt.Sprintf(format, args...)})
}

// problems warns of what a complete snapshot does not show.
func (n messages) problems(snap keyspace.Snapshot) {
	if snap.Complete && len(snap.Problems) > 0 {
		n.warning("%s", strings.Join(snap.Problems, "; "))
	}
}

// note reports an event.
func (n messages) note(format string, args ...any) {
	n.write(jsonNote{Note: fmt.Sprintf(format, args...)})
}

func (n messages) write(j jsonNote) {
	if n.json {
		// There is no other place to report an error of stderr.
		_ = render.JSON(n.to, j)
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

// progressLine shows how far a command is on stderr: on a terminal one line that changes,
// otherwise one line per report.
type progressLine struct {
	notes messages
	live  bool // overwrite the line
}

func (o output) newProgressLine() progressLine {
	return progressLine{notes: o.notes, live: !o.notes.json && isTerminal(o.notes.to)}
}

// isTerminal reports whether an input or output is a terminal.
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

func (l progressLine) show(text string) {
	if l.live {
		fmt.Fprintf(l.notes.to, "\r%s%s", ansi.EraseLineRight, widget.Plain(text))
		return
	}
	l.notes.note("%s", text)
}

// clear erases the line.
func (l progressLine) clear() {
	if l.live {
		fmt.Fprint(l.notes.to, "\r"+ansi.EraseLineRight)
	}
}

// incomplete returns the exitError for an incomplete snapshot. The error names what
// is missing and the servers that answered.
func incomplete(snap keyspace.Snapshot) *exitError {
	text := "incomplete: " + strings.Join(snap.Problems, "; ")
	var up []string
	for _, n := range snap.Nodes {
		if n.Up {
			up = append(up, n.Addr)
		}
	}
	if len(snap.Nodes) > 1 && len(up) > 0 {
		text += "; seen are " + strings.Join(up, ", ")
	}
	return &exitError{code: exitFailure, err: errors.New(text)}
}

// unreachable names in one line the servers that do not answer; "" if all do.
func unreachable(nodes []keyspace.Node) string {
	var all []string
	for _, n := range nodes {
		if !n.Up {
			all = append(all, fmt.Sprintf("%s cannot be read: %s", n.Addr, n.Error))
		}
	}
	return strings.Join(all, "; ")
}

// scanFailed returns the exitError for a scan without any result.
func scanFailed(err error) *exitError {
	code := exitFailure
	if isUnreachable(err) {
		code = exitNoConnect
	}
	return &exitError{code: code, err: err}
}

// isUnreachable reports whether err means that no server could be reached, as opposed to a
// server that rejected a command.
func isUnreachable(err error) bool {
	if all, ok := errors.AsType[inspect.ServerErrors](err); ok {
		return !slices.ContainsFunc(all, func(one error) bool { return !isUnreachable(one) })
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
