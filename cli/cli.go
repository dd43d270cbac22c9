// Package cli is the locktop program: its commands, their flags, what they
// print and the exit codes they end with. It is the only package that knows
// about flags, addresses, environment variables and file names.
package cli

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"locktop/tui"
)

// program is one run of locktop: where it reads and writes.
type program struct {
	in    io.Reader
	out   io.Writer
	notes messages
}

// Run does what args say and returns the exit code. It ends early when ctx does
// or when the process is interrupted, and then cleans up first.
//
// Results go to stdout; everything else, errors included, to stderr. An error
// is one line, with a hint in brackets where there is one.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends a clean-up that hangs
	logging.Disable()            // go-redis would print over the screen

	p := &program{in: stdin, out: stdout, notes: messages{to: stderr, json: asksForJSON(args)}}
	root := p.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root) // it prints to the output set above

	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	f := asExitError(err)
	judged := f.code == exitUnsafe || f.code == exitThreshold // which an interrupt does not undo
	if !judged && (ctx.Err() != nil || errors.Is(err, tui.ErrInterrupted)) {
		return exitInterrupted
	}
	p.notes.fault(f)
	return f.code
}

// asksForJSON looks for --json before the flags are parsed, so that an error in
// the flags comes out in the form that was asked for, too.
func asksForJSON(args []string) bool {
	for _, a := range args {
		switch a {
		case "--json", "--json=true":
			return true
		case "--":
			return false
		}
	}
	return false
}
