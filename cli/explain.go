package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/keyspace/recording"
)

// The defaults of explain.
const (
	explainFrom  = "/var/lib/locktop/recording" // where the unit of contrib/systemd records
	explainSpan  = time.Hour
	explainMost  = 5              // stories
	explainWhole = 24 * time.Hour // a longer file is explained only around --at
)

// explainOptions configures explain.
type explainOptions struct {
	key      keyFlags
	at       string
	span     time.Duration
	json     bool
	markdown bool
	html     string
}

func (o *explainOptions) flags() *pflag.FlagSet {
	set := flagSection("Time")
	set.StringVar(&o.at, "at", "", "`time` of the incident: "+humanize.MomentForms)
	set.DurationVar(&o.span, "for", 0, "length of the `time` around --at, or before the end (default 1h; all of a file)")
	return set
}

func (o *explainOptions) output() *pflag.FlagSet {
	set := flagSection("Output")
	set.BoolVar(&o.json, "json", false, "print one JSON document; errors are JSON, too")
	set.BoolVar(&o.markdown, "markdown", false, "print Markdown, for a post-mortem")
	set.StringVar(&o.html, "html", "", "write one page to this `file`")
	return set
}

func (p output) explainCommand() *cobra.Command {
	var o explainOptions
	var name string
	return withFlags(&cobra.Command{
		Use:   "explain [KEY] [FILE|DIR] [flags]",
		Short: "Explain what happened to a lock, from a recording",
		Long: fmt.Sprintf(`Explains from a recording what happened to a lock: which client held it, why the hold was
too long or ended early, what that cost the clients that waited, what is not known, and
what to do next. The recording is a file of locktop record or a directory of locktop
export --record; without it, %s.

Without KEY, explain lists the %d incidents that cost the most: the time of all clients that
waited. It covers an hour around --at, at the last hour of a directory, and at all of a
file. --at takes %s (before the end).

A sentence says what the recording proves, and no more: whether a client worked, hung or
froze is not known, and "released it" needs the message of its library. Frames of a
recording are about a second apart: "at least" and "at most" mark what they bound. Many
formats do not show their waiters; then the cost is not known.

The causes:
%s`, explainFrom, explainMost, humanize.MomentForms, meanings(keyspace.Causes())),
		Example: `  locktop explain --at 03:12
  locktop explain job:nightly --at 03:12 /var/lib/locktop/recording
  locktop explain night.lockrec
  locktop explain /var/lib/locktop/recording --for 24h
  locktop explain job:nightly --at 03:12 --markdown > post-mortem.md`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			name, err = o.take(cmd, args)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return p.explain(&o, name) },
	}, o.key.flags(), o.flags(), o.output())
}

// take sets the key from the arguments, and returns the name of the recording. One argument is
// a recording if it exists, or has the name of one.
func (o *explainOptions) take(cmd *cobra.Command, args []string) (name string, err error) {
	hasKey := cmd.Flags().Changed("key-b64")
	name = explainFrom
	switch isFile := len(args) == 1 && (fileExists(args[0]) || strings.HasSuffix(args[0], ".lockrec")); {
	case len(args) > 2, hasKey && len(args) > 1:
		return "", usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes a key and a file or directory", cmd.CommandPath())
	case len(args) == 2, len(args) == 1 && (hasKey || isFile):
		name, args = args[len(args)-1], args[:len(args)-1]
	}
	if hasKey || len(args) > 0 {
		err = o.key.take(cmd, args)
	}
	return name, err
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (o *explainOptions) check() error {
	if o.json && o.markdown || o.html != "" && (o.json || o.markdown) {
		return usageErrorf("", "--json, --markdown and --html exclude each other")
	}
	return checkFor(o.span)
}

func (p output) explain(o *explainOptions, name string) error {
	if err := o.check(); err != nil {
		return err
	}
	r, err := recording.Open(name)
	if err != nil {
		hint := map[bool]string{true: "name the file or directory of a recording after the key"}[name == explainFrom && !fileExists(name)]
		return &exitError{code: exitFailure, err: fmt.Errorf("open %s: %w%s", name, err, targetsIn(name)), hint: hint}
	}
	defer r.Close()
	defer collectAt(explainGCPercent)()
	from, to, err := o.window(r)
	if err != nil {
		return err
	}
	var keep func(keyspace.ID) bool // nil = all
	if o.key.key != "" {
		keep = func(id keyspace.ID) bool { return id.Key == o.key.key }
	}
	b := incident.NewBuilder(keep)
	if err := r.Walk(from, to, b, b.Load); err != nil {
		return fmt.Errorf("explain %s: %w", name, err)
	}
	s := render.Stories{Recording: name, From: from, To: to, Stories: b.Stories(), Damage: r.Damage()}
	if o.key.key != "" {
		if b.Locks() == 0 && s.Damage == nil {
			return &exitError{code: exitNoLock, err: fmt.Errorf("the recording has no lock %q from %s to %s", o.key.key, momentText(from), momentText(to)),
				hint: "without KEY, explain lists the incidents of this time"}
		}
		if len(s.Stories) == 0 {
			s.Calm = b.Summaries()
		}
	}
	s.Found = len(s.Stories)
	s.Stories = s.Stories[:min(len(s.Stories), explainMost)]
	if err := p.printStories(o, s); err != nil || s.Damage == nil {
		return err
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("incomplete: %s is %w; the intact part is explained", name, s.Damage)}
}

func momentText(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// window returns the time to explain.
func (o *explainOptions) window(r *recording.Reader) (from, to time.Time, err error) {
	first, last := r.Span()
	span := o.span
	if span == 0 {
		span = explainSpan
		if o.at == "" && !r.AlwaysOn() {
			span = explainWhole
		}
	}
	from, to = last.Add(-span), last
	if o.at != "" {
		at, err := humanize.ParseMoment(o.at, last, humanize.Span{First: first, Last: last})
		if err != nil {
			return from, to, usageErrorf("", "--at: %w", err)
		}
		from, to = at.Add(-span/2), at.Add(span/2)
	}
	return keyspace.Later(from, first), keyspace.Earliest(to, last), nil
}

// printStories prints the stories in the form that was asked for.
func (p output) printStories(o *explainOptions, s render.Stories) error {
	switch {
	case o.html != "":
		f, err := os.OpenFile(o.html, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
		return errors.Join(s.HTML(f), f.Close())
	case o.markdown:
		return p.printed("the story", false, nil, s.Markdown)
	}
	return p.printed("the story", o.json, s.Document(), func(w io.Writer) error { return s.Text(w, render.TerminalWidth(w)) })
}
