// Package cli is the locktop program: its commands, flags, output and exit codes.
// No package outside of cli knows flags, addresses, environment variables and file names.
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

// program is one run of locktop, with its input and outputs.
type program struct {
	in    io.Reader
	out   io.Writer
	notes messages
}

// Run executes the command line args and returns the exit code. When ctx ends or
// the process is interrupted, Run cleans up and returns early.
//
// Run writes results to stdout and everything else, also errors, to stderr. An
// error is one line, if possible with a hint in brackets.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process even if the clean-up hangs
	logging.Disable()            // go-redis would write into the screen

	p := &program{in: stdin, out: stdout, notes: messages{to: stderr, json: asksForJSON(args)}}
	root := p.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root) // after SetOut: the command keeps the output of that moment

	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	f := asExitError(err)
	judged := f.code == exitUnsafe || f.code == exitThreshold // an interrupt does not change a verdict
	if !judged && (ctx.Err() != nil || errors.Is(err, tui.ErrInterrupted)) {
		return exitInterrupted
	}
	p.notes.fault(f)
	return f.code
}

// asksForJSON looks for --json before the flags are parsed, so that errors in the
// flags are JSON, too.
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
