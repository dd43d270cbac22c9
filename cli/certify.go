package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/docs"
	"locktop/internal/humanize"
	"locktop/internal/shell"
	"locktop/loadgen"
	"locktop/loadgen/certify"
	"locktop/tui/widget"
)

// certifyOptions holds the flags of certify.
type certifyOptions struct {
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
}

func (o *certifyOptions) flags() []*pflag.FlagSet {
	clients := flagSection("Clients and tests")
	clients.StringArrayVar(&o.exec, "exec", nil, "`command` of a client, for the shell; may be repeated")
	clients.StringSliceVar(&o.tests, "tests", nil, "`names` of the tests to run (default all; see --list)")
	clients.Uint64Var(&o.seed, "seed", 1, "`number` from which the random choices derive")
	clients.IntVar(&o.waiters, "waiters", 100, "`number` of client processes of the test waiters")
	clients.StringVar(&o.server, "server", "", "`program` of the servers, such as valkey-server, or a command like 'dragonfly --port {port}'")
	orders := flagSection("All orders of the commands")
	orders.BoolVar(&o.exhaustive, "exhaustive", false, "run the commands of two clients in all orders, with at most two faults; --tests then names plays")
	orders.StringVar(&o.order, "order", "", "run only the order with this `ID`, ten times")
	orders.IntVar(&o.limit, "limit", 5000, "greatest `number` of orders of a play")
	out := flagSection("Output")
	out.BoolVar(&o.list, "list", false, "list the tests, and run none")
	out.BoolVar(&o.protocol, "protocol", false, "print the protocol of clients with an example, and run no test")
	out.BoolVar(&o.json, "json", false, "print the card as one JSON document; errors are JSON, too")
	out.StringVar(&o.html, "html", "", "`file` for the card as one page, with a drawing of each failure")
	return []*pflag.FlagSet{clients, orders, out}
}

func (p *program) certifyCommand() *cobra.Command {
	var o certifyOptions
	cmd := &cobra.Command{
		Use:   "certify [KIND…] [flags]",
		Short: "Test lock clients of any library, and print a report card",
		Long: `Runs a fixed list of tests on lock clients: processes that read requests from stdin and
write replies to stdout, as one JSON object per line (see --protocol). Each test breaks
one thing: it kills or freezes a client, cuts it off, loses a reply, deletes the keys,
replaces the master. locktop starts the servers: redis-server if it is on PATH,
otherwise an embedded server, which cannot run the tests with several servers. --server
names another program, or the command of a server of any kind, for the tests with one.

The card has a row per test and a column per client, then the evidence. A client is
named by --exec, or is one of locktop's own kinds of lock or historic forms (KIND),
run as a client process. A pass says that the flaw was not observed; it is no proof.

With --exhaustive, locktop holds back each command of two clients and lets them go on in
every order, with at most two faults: a lost reply, a crash, a freeze for longer than the
TTL. Then a third client asks. The shortest order that breaks a promise is printed as a
table of commands with their replies, and --order repeats it. A client that polls has its
first four commands of a request ordered; what was not ordered is counted.

Progress goes to stderr, the card to stdout. An interrupt ends all clients and servers
and prints the results so far.

Exit codes: 98 a client failed a test (takes precedence over all others); 1 a client
does not speak the protocol, or does not acquire a free lock; 130 interrupted; 99 a
test is inconclusive; 0 all tests passed or are not supported.`,
		Example: `  locktop certify --exec 'python3 my_client.py'
  locktop certify --exec ./redsync --exec 'node redlock.js' --json > card.json
  locktop certify mutex fair classic/blind-delete --tests freeze,late-unlock
  locktop certify --exec ./redsync mutex --html card.html
  locktop certify classic/get-then-del --exhaustive
  locktop certify classic/get-then-del --order release/a.a.af.b.a
  locktop certify mutex --server 'valkey-server --port {port}'
  locktop certify --list
  locktop certify --protocol`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.certify(cmd.Context(), &o, args)
		},
		ValidArgsFunction: cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp),
	}
	cmdFlags(cmd, o.flags()...)
	names := render.Each(certify.Tests(), func(t certify.Test) string { return t.Name })
	_ = cmd.RegisterFlagCompletionFunc("tests", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func (p *program) certify(ctx context.Context, o *certifyOptions, args []string) error {
	switch {
	case o.list && o.exhaustive:
		return p.listPlays()
	case o.list:
		return p.listTests()
	case o.protocol:
		_, err := io.WriteString(p.out, docs.Protocol())
		return err
	}
	run, err := o.run(args)
	if err != nil {
		return err
	}
	if o.exhaustive {
		return p.exhaust(ctx, o, run)
	}
	page, err := createPage(o.html)
	if err != nil {
		return err
	}
	defer func() { _ = page.Close() }() // fails without a page, and after the Close below
	progress := p.newSlowProgress()
	run.Progress = func(now certify.Progress) {
		text := fmt.Sprintf("%s: %d of %s, about %s left", now.Client, now.Done, humanize.Plural(now.Total, "test"), humanize.Duration(now.Left))
		if len(now.Running) > 0 {
			text += ", running " + strings.Join(now.Running, ", ")
		}
		if progress.line.live {
			text = ansi.Truncate(widget.Plain(text), defaultWidth-1, "…")
		}
		progress.show(now.Client, text)
	}
	card, err := certify.Run(ctx, run)
	progress.line.clear()
	if err != nil && ctx.Err() == nil {
		return err
	}
	card.Locktop = build()
	err = p.printed("the card", o.json, card, func(w io.Writer) error { return render.Written(w, cardText(card, p.width())) })
	if page != nil {
		err = errors.Join(err, card.WriteHTML(page), page.Close())
	}
	return mostSevere([]error{err, cardError(card), ctx.Err()}, false)
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

// run returns the options of the run.
func (o *certifyOptions) run(kinds []string) (certify.Options, error) {
	run := certify.Options{Tests: o.tests, Seed: o.seed, Waiters: o.waiters, Server: o.server}
	self, err := os.Executable()
	if err != nil {
		return run, err
	}
	for _, kind := range kinds {
		k := loadgen.Kind(kind)
		if !slices.Contains(loadgen.Kinds(), k) {
			return run, usageErrorf("--exec COMMAND tests any other client; the kinds are "+strings.Join(kindNames(), ", "), "there is no kind of lock %q", kind)
		}
		words := []string{self, "load", "--as-client", kind}
		if k.Fences() {
			words = append(words, "--fence", "true")
		}
		line, ok := shell.Line(words...)
		if !ok {
			return run, fmt.Errorf("the path of this program cannot be a word of a command line: %q", self)
		}
		run.Commands = append(run.Commands, line)
	}
	run.Commands = append(run.Commands, o.exec...)
	if len(run.Commands) == 0 {
		return run, usageErrorf("like locktop certify --exec 'python3 my_client.py', or locktop certify mutex", "there is no client to test")
	}
	o.exhaustive = o.exhaustive || o.order != ""
	switch {
	case o.exhaustive && o.html != "":
		return run, usageErrorf("", "--html goes with the tests, not with --exhaustive")
	case o.order != "":
		err = certify.CheckOrder(o.order)
	case o.exhaustive:
		err = certify.ChoosePlays(o.tests)
	default:
		if _, err = certify.Choose(o.tests); err != nil {
			err = fmt.Errorf("--tests: %w", err)
		}
	}
	if err != nil {
		return run, usageErrorf("", "%v", err)
	}
	if o.waiters < 2 || o.waiters > 1000 {
		return run, usageErrorf("", "--waiters must be 2 to 1,000, not %d", o.waiters)
	}
	return run, nil
}

func (p *program) listTests() error {
	return p.printRows("TEST\tWHAT HAPPENS", render.Each(certify.Tests(), func(t certify.Test) string { return t.Name + "\t" + t.Title }))
}

// printRows prints rows, with tabs between their cells, below a head.
func (p *program) printRows(head string, rows []string) error {
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(append([]string{head}, rows...), "\n"))
	return t.Flush()
}

// slowProgress shows the progress: on a terminal each change, otherwise the begin of
// each subject and one line per interval.
type slowProgress struct {
	line    progressLine
	subject string
	last    time.Time
}

// progressInterval is the least time between two lines of progress without a terminal.
const progressInterval = 15 * time.Second

func (p *program) newSlowProgress() *slowProgress { return &slowProgress{line: p.newProgressLine()} }

func (c *slowProgress) show(subject, text string) {
	if c.line.live || subject != c.subject || time.Since(c.last) >= progressInterval {
		c.subject, c.last = subject, time.Now()
		c.line.show(text)
	}
}

// defaultWidth is the width of text if stdout is not a terminal.
const defaultWidth = 80

// width returns the number of columns of the output.
func (p *program) width() int { return cmp.Or(render.TerminalWidth(p.out), defaultWidth) }

// cardError returns the exitError of a card, nil if all is well.
func cardError(card certify.Card) error {
	var failed, unusable, unclear []string
	for _, c := range card.Clients {
		name := widget.Plain(c.Client.Name)
		if c.Client.Error != "" {
			unusable = append(unusable, name+": "+widget.Plain(c.Client.Error))
		}
		for _, v := range c.Verdicts {
			switch v.Outcome {
			case certify.Fail:
				failed = append(failed, name+" "+v.Test)
			case certify.Inconclusive:
				unclear = append(unclear, name+" "+v.Test)
			}
		}
	}
	return judgement("failure", failed, unusable, unclear)
}

// judgement returns the exitError for what failed, called a noun, for clients that cannot be tested, and for what is not
// clear; nil if there is nothing.
func judgement(noun string, failed, unusable, unclear []string) error {
	switch {
	case len(failed) > 0:
		return &exitError{code: exitUnsafe, err: fmt.Errorf("%s: %s", humanize.Plural(len(failed), noun), strings.Join(failed, ", "))}
	case len(unusable) > 0:
		return &exitError{code: exitFailure, err: errors.New(strings.Join(unusable, "; "))}
	case len(unclear) > 0:
		return &exitError{code: exitThreshold, err: fmt.Errorf("inconclusive: %s", strings.Join(unclear, ", "))}
	}
	return nil
}

// cells are the words of the outcomes in the table.
var cells = map[certify.Outcome]string{
	certify.Pass: "pass", certify.Fail: "FAIL", certify.Observed: "observed", certify.Unsupported: "-", certify.Inconclusive: "unclear",
}

// cardText returns a card as a table and the evidence of everything that is not a pass.
func cardText(card certify.Card, width int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s, %s\n\n", card.Server, card.Date.Local().Format("2006-01-02 15:04"), "locktop "+card.Locktop)
	names := columnNames(card, width)
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "TEST\t%s\n", strings.Join(names, "\t"))
	for i, test := range card.Tests {
		row := []string{test.Name}
		for _, c := range card.Clients {
			row = append(row, cells[c.Verdicts[i].Outcome])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // to memory
	for i, c := range card.Clients {
		out.WriteString(evidenceText(names[i], c, width))
	}
	return out.String()
}

// columnNames returns the names of the clients, or their numbers if these do not fit.
func columnNames(card certify.Card, width int) []string {
	sum := len("failover-behind")
	var names, numbers []string
	for i, c := range card.Clients {
		name := widget.Plain(c.Client.Name)
		names, numbers = append(names, name), append(numbers, strconv.Itoa(i+1))
		sum += 2 + max(len("observed"), ansi.StringWidth(name))
	}
	if sum > width || len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) {
		return numbers
	}
	return names
}

// evidenceText returns what was observed of a client.
func evidenceText(column string, c certify.Result, width int) string {
	var out strings.Builder
	name := widget.Plain(c.Client.Name)
	if column != name {
		name = column + "  " + name
	}
	h := c.Client.Hello
	fmt.Fprintf(&out, "\n%s\n", name)
	paragraph(&out, width, fmt.Sprintf("kinds %s; renews %s, fences %s, tells %s, extends %s",
		widget.Plain(strings.Join(h.Kinds, " ")), humanize.YesNo(h.Renews), humanize.YesNo(h.Fences), humanize.YesNo(h.Tells), humanize.YesNo(c.Client.Extends)))
	for _, o := range []certify.Outcome{certify.Fail, certify.Observed, certify.Inconclusive} {
		for _, v := range c.Verdicts {
			if v.Outcome == o {
				paragraph(&out, width, fmt.Sprintf("%s %s: %s", cells[o], v.Test, widget.Plain(v.Evidence)))
			}
		}
	}
	if without := unsupported(c); without != "" {
		paragraph(&out, width, "not supported: "+without)
	}
	return out.String()
}

// unsupported returns the tests that a client does not support, by reason.
func unsupported(c certify.Result) string {
	var reasons []string
	tests := make(map[string][]string)
	for _, v := range c.Verdicts {
		if v.Outcome != certify.Unsupported {
			continue
		}
		if tests[v.Evidence] == nil {
			reasons = append(reasons, v.Evidence)
		}
		tests[v.Evidence] = append(tests[v.Evidence], v.Test)
	}
	return strings.Join(render.Each(reasons, func(why string) string {
		return strings.Join(tests[why], ", ") + " (" + widget.Plain(why) + ")"
	}), "; ")
}

// paragraph writes a text that is wrapped and indented.
func paragraph(out *strings.Builder, width int, text string) {
	for i, line := range widget.Blocks().Wrap(text, max(width-4, 20), len(text)) {
		indent := "  "
		if i > 0 {
			indent = "    "
		}
		fmt.Fprintln(out, indent+line)
	}
}
