//go:build unix

// Certify tests lock clients of any library and prints a report card. It runs in the folder lab:
//
//	go run ./certify --exec 'python3 my_client.py'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/docs"
	"locktop/internal/humanize"
	"locktop/internal/shell"
	"locktop/lab/clienttest"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// The exit codes that scripts rely on.
const (
	exitFailure      = 1
	exitUsage        = 2
	exitFailed       = 98
	exitInconclusive = 99
	exitInterrupted  = 130
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

func usageErrorf(format string, args ...any) error {
	return exitError{exitUsage, fmt.Sprintf(format, args...)}
}

const about = `Certify runs a fixed list of tests on lock clients: processes that read requests from stdin and
write replies to stdout, as one JSON object per line (see --protocol). Each test breaks
one thing: it kills or freezes a client, cuts it off, loses a reply, deletes the keys,
replaces the master. Certify starts the servers: redis-server if it is on PATH,
otherwise an embedded server, which cannot run the tests with several servers. --server
names another program, or the command of a server of any kind, for the tests with one.

The card has a row per test and a column per client, then the evidence. A client is
named by --exec, or is one of locktop's own kinds of lock or historic forms (KIND),
run as a client process. A pass says that the flaw was not observed; it is no proof.

With --exhaustive, certify holds back each command of two clients and lets them go on in
every order, with at most two faults: a lost reply, a crash, a freeze for longer than the
TTL. Then a third client asks. The shortest order that breaks a promise is printed as a
table of commands with their replies, and --order repeats it. A client that polls has its
first four commands of a request ordered; what was not ordered is counted.

Progress goes to stderr, the card to stdout. An interrupt ends all clients and servers
and prints the results so far.

Exit codes: 98 a client failed a test (takes precedence over all others); 1 a client
does not speak the protocol, or does not acquire a free lock; 130 interrupted; 99 a
test is inconclusive; 0 all tests passed or are not supported.

Usage, in the folder lab:
  go run ./certify [KIND…] [flags]

Examples:
  go run ./certify --exec 'python3 my_client.py'
  go run ./certify --exec ./redsync --exec 'node redlock.js' --json > card.json
  go run ./certify mutex fair classic/blind-delete --tests freeze,late-unlock
  go run ./certify --exec ./redsync mutex --html card.html
  go run ./certify classic/get-then-del --exhaustive
  go run ./certify classic/get-then-del --order release/a.a.af.b.a
  go run ./certify mutex --server 'valkey-server --port {port}'

Flags:
`

// options holds the flags.
type options struct {
	exec    []string
	tests   []string
	seed    uint64
	waiters int
	server  string
	list    bool

	exhaustive bool
	order      string
	limit      int
	protocol   bool
	json       bool
	html       string
	asClient   string
}

func (o *options) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("certify", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringArrayVar(&o.exec, "exec", nil, "`command` of a client, for the shell; may be repeated")
	f.StringSliceVar(&o.tests, "tests", nil, "`names` of the tests to run (default all; see --list)")
	f.Uint64Var(&o.seed, "seed", 1, "`number` from which the random choices derive")
	f.IntVar(&o.waiters, "waiters", 100, "`number` of client processes of the test waiters")
	f.StringVar(&o.server, "server", "", "`program` of the servers, such as valkey-server, or a command like 'dragonfly --port {port}'")
	f.BoolVar(&o.exhaustive, "exhaustive", false, "run the commands of two clients in all orders, with at most two faults; --tests then names plays")
	f.StringVar(&o.order, "order", "", "run only the order with this `ID`, ten times")
	f.IntVar(&o.limit, "limit", 5000, "greatest `number` of orders of a play")
	f.BoolVar(&o.list, "list", false, "list the tests, and run none")
	f.BoolVar(&o.protocol, "protocol", false, "print the protocol of clients with an example, and run no test")
	f.BoolVar(&o.json, "json", false, "print the card as one JSON document")
	f.StringVar(&o.html, "html", "", "`file` for the card as one page, with a drawing of each failure")
	f.StringVar(&o.asClient, "as-client", "", "be a client process with locks of this `kind`")
	_ = f.MarkHidden("as-client") // the flag exists
	return f
}

func main() {
	logging.Disable() // go-redis logs every connection that a fault breaks
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes the command line args and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flags := o.flags()
	flags.Usage = func() { fmt.Fprint(out, about, flags.FlagUsages()) }
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		err = usageErrorf("%v", err)
	default:
		c := certification{o, flags.Args(), in, out, &progress{to: errs, live: isTerminal(errs)}}
		err = c.run(ctx)
	}
	if err == nil {
		return 0
	}
	code := exitFailure
	if known, ok := errors.AsType[exitError](err); ok {
		code = known.code
	}
	if ctx.Err() != nil && code != exitFailed {
		return exitInterrupted
	}
	fmt.Fprintf(errs, "certify: %s\n", widget.Plain(err.Error()))
	return code
}

// certification is a run with its options, inputs and outputs.
type certification struct {
	options
	kinds    []string
	in       io.Reader
	out      io.Writer
	progress *progress
}

func (c *certification) run(ctx context.Context) error {
	switch {
	case c.asClient != "":
		return loadgen.ServeClient(ctx, loadgen.Lock{Kind: loadgen.Kind(c.asClient), Fence: loadgen.Kind(c.asClient).Fences()}, c.in, c.out)
	case c.list && c.exhaustive:
		return c.printRows("PLAY\tWHAT THE CLIENTS DO UNTIL A THIRD ONE ASKS", render.Each(clienttest.Plays(), func(p clienttest.Played) string { return p.Play + "\t" + p.Title }))
	case c.list:
		return c.printRows("TEST\tWHAT HAPPENS", render.Each(clienttest.Tests(), func(t clienttest.Test) string { return t.Name + "\t" + t.Title }))
	case c.protocol:
		_, err := io.WriteString(c.out, docs.Protocol())
		return err
	}
	run, err := c.settings()
	if err != nil {
		return err
	}
	if c.exhaustive {
		return c.exhaust(ctx, run)
	}
	return c.test(ctx, run)
}

// test runs the tests and prints the card.
func (c *certification) test(ctx context.Context, run clienttest.Options) error {
	page, err := createPage(c.html)
	if err != nil {
		return err
	}
	defer func() { _ = page.Close() }() // fails without a page, and after the Close below
	run.Progress = func(now clienttest.Progress) {
		text := fmt.Sprintf("%s: %d of %s, about %s left", now.Client, now.Done, humanize.Plural(now.Total, "test"), humanize.Duration(now.Left))
		if len(now.Running) > 0 {
			text += ", running " + strings.Join(now.Running, ", ")
		}
		c.progress.show(now.Client, text)
	}
	card, err := clienttest.Run(ctx, run)
	c.progress.clear()
	if err != nil && ctx.Err() == nil {
		return err
	}
	card.Locktop = revision()
	err = c.printed(card, cardText(card, c.width()))
	if page != nil {
		err = errors.Join(err, card.WriteHTML(page), page.Close())
	}
	return worst(cardError(card), err, ctx.Err())
}

// worst returns the error of failed tests if there is one, else the first other one.
func worst(judged error, others ...error) error {
	if e, ok := errors.AsType[exitError](judged); ok && e.code == exitFailed {
		return judged
	}
	return errors.Join(append(others, judged)...)
}

// printed prints a document as JSON, or its text.
func (c *certification) printed(document any, text string) error {
	if c.json {
		return render.JSON(c.out, document)
	}
	_, err := io.WriteString(c.out, text)
	return err
}

// createPage creates the file of a page, so that errors appear before the run; nil if it
// has no name. Only the owner may read it, because it may contain what clients wrote.
func createPage(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write the card: %w", err)
	}
	return f, nil
}

// settings returns the options of the run.
func (c *certification) settings() (clienttest.Options, error) {
	run := clienttest.Options{Tests: c.tests, Seed: c.seed, Waiters: c.waiters, Server: c.server}
	self, err := os.Executable()
	if err != nil {
		return run, err
	}
	for _, kind := range c.kinds {
		if !slices.Contains(loadgen.Kinds(), loadgen.Kind(kind)) {
			return run, usageErrorf("there is no kind of lock %q; --exec COMMAND tests any other client, and the kinds are %s", kind,
				strings.Join(render.Each(loadgen.Kinds(), func(k loadgen.Kind) string { return string(k) }), ", "))
		}
		line, ok := shell.Line(self, "--as-client", kind)
		if !ok {
			return run, fmt.Errorf("the path of this program cannot be a word of a command line: %q", self)
		}
		run.Commands = append(run.Commands, line)
	}
	run.Commands = append(run.Commands, c.exec...)
	if len(run.Commands) == 0 {
		return run, usageErrorf("there is no client to test; name one like --exec 'python3 my_client.py', or a kind like mutex")
	}
	c.exhaustive = c.exhaustive || c.order != ""
	switch {
	case c.exhaustive && c.html != "":
		return run, usageErrorf("--html goes with the tests, not with --exhaustive")
	case c.order != "":
		err = clienttest.CheckOrder(c.order)
	case c.exhaustive:
		err = clienttest.ChoosePlays(c.tests)
	default:
		if _, err = clienttest.Choose(c.tests); err != nil {
			err = fmt.Errorf("--tests: %w", err)
		}
	}
	if err != nil {
		return run, usageErrorf("%v", err)
	}
	if c.waiters < 2 || c.waiters > 1000 {
		return run, usageErrorf("--waiters must be 2 to 1,000, not %d", c.waiters)
	}
	return run, nil
}

// printRows prints rows, with tabs between their cells, below a head.
func (c *certification) printRows(head string, rows []string) error {
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(append([]string{head}, rows...), "\n"))
	return t.Flush()
}

// progress shows the progress: on a terminal each change in one line, otherwise the begin of
// each subject and one line per interval.
type progress struct {
	to      io.Writer
	live    bool // to is a terminal
	subject string
	last    time.Time
}

// progressInterval is the least time between two lines of progress without a terminal.
const progressInterval = 15 * time.Second

func (p *progress) show(subject, text string) {
	text = widget.Plain(text)
	switch {
	case p.live:
		fmt.Fprintf(p.to, "\r%s%s", ansi.EraseLineRight, ansi.Truncate(text, defaultWidth-1, "…"))
	case subject != p.subject || time.Since(p.last) >= progressInterval:
		p.subject, p.last = subject, time.Now()
		fmt.Fprintf(p.to, "certify: %s\n", text)
	}
}

// clear erases the line.
func (p *progress) clear() {
	if p.live {
		fmt.Fprint(p.to, "\r"+ansi.EraseLineRight)
	}
}

func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// defaultWidth is the width of text if stdout is not a terminal.
const defaultWidth = 80

// width returns the number of columns of the output.
func (c *certification) width() int {
	if w := render.TerminalWidth(c.out); w > 0 {
		return w
	}
	return defaultWidth
}

// revision returns the commit of the source.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "(devel)"
}
