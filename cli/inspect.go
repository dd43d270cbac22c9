package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/internal/shell"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/tui/widget"
)

func (p *program) inspectCommand() *cobra.Command {
	var k keyFlags
	var asJSON bool
	set := flagSection("Output")
	set.BoolVar(&asJSON, "json", false, "print one JSON document; errors are JSON, too")
	return p.readCommand(&cobra.Command{
		Use:   "inspect KEY [flags]",
		Short: "Explain one lock",
		Long: `Prints everything about one lock: its holders and waiters, its findings, the stored
values, the reason why its format was recognised, and the exact command that
releases exactly this hold. locktop reads only this lock's keys. If clients wait and nobody
holds it, it reads the lock again after 2.2 s: a release has woken them by then.`,
		Example: `  locktop inspect lock:orders:4711
  locktop inspect job:nightly --json | jq -r .redis_cli_command`,
		Args: k.take,
	}, func() error { return nil }, func(ctx context.Context, r *reading, _ []string) error { return p.inspect(ctx, r, asJSON, k.key) }, k.flags(), set)
}

// keyFlags is the key for a command: its argument, or --key-b64 for keys that cannot
// be arguments.
type keyFlags struct{ key, b64 string }

func (k *keyFlags) flags() *pflag.FlagSet {
	set := flagSection("Key")
	set.StringVar(&k.b64, "key-b64", "", "the `key` in base64, instead of KEY, if the shell cannot pass it")
	return set
}

// take sets the key from the arguments of a command.
func (k *keyFlags) take(cmd *cobra.Command, args []string) error {
	switch b64 := cmd.Flags().Changed("key-b64"); {
	case b64 && len(args) > 0:
		return usageErrorf("", "KEY and --key-b64 exclude each other")
	case len(args) > 1:
		return usageErrorf("quote it if it has spaces", "%s takes one key", cmd.CommandPath())
	case len(args) > 0:
		k.key = args[0]
		return nil
	case !b64:
		return usageErrorf("see "+cmd.CommandPath()+" --help", "%s needs the key of a lock", cmd.CommandPath())
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(k.b64, "="))
	if err != nil {
		return usageErrorf("as in --key-b64 bG9jazph", "--key-b64: this is not base64")
	}
	k.key = string(key)
	return nil
}

// Limits of the completion of KEY.
const (
	completionTime = time.Second
	completionKeys = 100
)

// completeKeys returns the completion of KEY: the locks of the server of c that begin with what is typed, as many as a
// scan within the budget finds in a short time. It asks nothing and runs no program.
func completeKeys(c *connect.Flags, s *selection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) (keys []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		if _, err := applyContext(c, s, nil, nil); err != nil || len(args) > 0 || c.Interactive() {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		t, err := new(connect.Session).Open(ctx, c, connect.Prompt{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer t.Close()
		s.databases = c.AllDatabases()
		s.scan.Match = []string{strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(begin) + "*"}
		snap, _ := s.scanOf(t, nil).Snapshot(ctx)
		for _, l := range s.filter(snap).Locks {
			if word, ok := shell.Word(l.Key); ok && !strings.HasPrefix(word, `"`) && len(keys) < completionKeys {
				keys = append(keys, cobra.CompletionWithDesc(l.Key, l.Format))
			}
		}
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}

// keyArguments returns the arguments that name key in a command.
func keyArguments(key string) []string {
	switch _, ok := shell.Word(key); {
	case !ok:
		return []string{"--key-b64", base64.StdEncoding.EncodeToString([]byte(key))}
	case strings.HasPrefix(key, "-"):
		return []string{"--", key}
	default:
		return []string{key}
	}
}

func (p *program) inspect(ctx context.Context, r *reading, asJSON bool, key string) error {
	g, l, err := p.inspectLock(ctx, r.target, &r.selection, key, repeated{2, keyspace.FreeTooLong + keyspace.FreeTooLong/10,
		func(l *keyspace.Lock, at time.Time) bool { return l.State(at) != keyspace.Waiting }})
	if err != nil {
		return err
	}
	if asJSON {
		err = render.JSON(p.out, inspectionOf(r.target.Resolved, g, l))
	} else {
		err = writeInspection(p.out, r.target.Resolved, g, l)
	}
	if err != nil {
		return err
	}
	if !g.Complete {
		return incomplete(g.Snapshot)
	}
	return nil
}

// repeated is how often to read a lock until enough is known, and with what pause: a single read shows neither renewals
// nor waiters that nobody wakes.
type repeated struct {
	most   int // 0 is one read, too
	pause  time.Duration
	enough func(l *keyspace.Lock, at time.Time) bool
}

// inspectLock reads the lock under one key from all servers, and warns of what could not be
// read.
func (p *program) inspectLock(ctx context.Context, t *connect.Target, s *selection, key string, how repeated) (inspection, keyspace.Lock, error) {
	g, err := inspectKey(ctx, t, s, key)
	known := keyspace.CarryOver(keyspace.Snapshot{}, g.Snapshot)
	for n := 1; n < how.most && err == nil && len(g.Locks) > 0 && !how.enough(g.Locks[0], g.At); n++ {
		pause, stop := context.WithTimeout(ctx, how.pause)
		<-pause.Done()
		stop()
		g, err = inspectKey(ctx, t, s, key)
		known = keyspace.CarryOver(known, g.Snapshot)
		g.View = render.NewView(known, s.databases)
	}
	if err != nil {
		return g, keyspace.Lock{}, scanFailed(fmt.Errorf("read %q on %s: %w", key, t.Title, err))
	}
	p.notes.problems(g.Snapshot)
	l, err := g.lock(key)
	return g, l, err
}

// inspection is everything about one key on all servers.
type inspection struct {
	render.View
	raw     []keyspace.Entry // with their servers
	keyType string           // reply to TYPE; "none": the key does not exist
	marks   []string         // patterns of --lock
}

// inspectKey reads one key from all servers, without a scan.
func inspectKey(ctx context.Context, t *connect.Target, s *selection, key string) (inspection, error) {
	var mu sync.Mutex
	g := inspection{keyType: "none", marks: s.lock}
	source := inspect.NewMultiSource(t.Sources(func(rdb inspect.Client, addr string, db int) inspect.Source {
		o := s.keyOptions(db)
		o.Cluster = t.Cluster
		scanner := inspect.NewScanner(rdb, o)
		return sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
			if err := t.Answers(ctx, rdb); err != nil {
				return keyspace.Snapshot{}, err
			}
			sight, err := scanner.ReadKey(ctx, key)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				g.add(sight, addr, t.Cluster != nil)
			}
			return sight.Snapshot, err
		})
	}), t.Multi)
	snap, err := source.Snapshot(ctx)
	g.View = render.NewView(snap, s.databases)
	return g, err
}

// whichDatabases lists the databases with the lock.
func (g inspection) whichDatabases() string {
	return strings.Join(render.Each(g.Locks, func(l *keyspace.Lock) string { return strconv.Itoa(l.DB) }), ", ")
}

// add adds the keys on one server. In a cluster the sources of all nodes read the same
// key, so add ignores repetitions.
func (g *inspection) add(sight inspect.Key, addr string, cluster bool) {
	for _, entry := range sight.Entries {
		entry.Node = cmp.Or(entry.Node, addr)
		if !cluster || !slices.ContainsFunc(g.raw, func(known keyspace.Entry) bool { return known.Node == entry.Node && known.Key == entry.Key }) {
			g.raw = append(g.raw, entry)
		}
	}
	if sight.Type != "none" {
		g.keyType = sight.Type
	}
}

// lock returns the lock of the inspection, or an exitError if the key is not a lock.
func (g inspection) lock(key string) (keyspace.Lock, error) {
	if len(g.Locks) > 0 {
		return *g.Locks[0], nil
	}
	if !g.Complete {
		return keyspace.Lock{}, incomplete(g.Snapshot)
	}
	f := &exitError{
		code: exitNoLock,
		err:  fmt.Errorf("%q is a %s that matches no known lock format", key, g.keyType),
		hint: "--lock GLOB treats a key as a lock, whatever its value",
	}
	if g.keyType == "none" {
		f.err, f.hint = fmt.Errorf("there is no key %q", key), "the lock is free, or its key has another name: see locktop list --match"
	}
	return keyspace.Lock{}, f
}

// remedy has the commands that force-release a lock, or the reason why none exists.
type remedy struct {
	release  string // a locktop command; empty: none
	redisCLI string // redis-cli commands
	reason   string
}

func remedyFor(c *connect.Resolved, l keyspace.Lock, marks []string) remedy {
	command, err := keyspace.ExactCommand(formats.WithUserPatterns(marks), keyspace.ForceRelease, l, 0, c.RedisCLI()...)
	switch {
	case errors.Is(err, keyspace.ErrChanged):
		return remedy{reason: "nobody holds it"}
	case err != nil:
		return remedy{reason: err.Error()}
	}
	return remedy{releaseLine(c, l, marks), command, ""}
}

// releaseLine returns a shell command in which locktop releases the lock on the
// servers of c; "" if the key is too long for a command. The command contains no
// password and asks for one if necessary.
func releaseLine(c *connect.Resolved, l keyspace.Lock, marks []string) string {
	flags := c.Arguments(l.DB)
	for _, mark := range marks {
		if strings.HasPrefix(l.Format, "marked") { // no other format needs it
			flags = append(flags, "--lock", mark)
		}
	}
	line, _ := shell.Line(slices.Concat([]string{"locktop", "release"}, flags, []string{"--write"}, keyArguments(l.Key))...)
	return line
}

// writeInspection prints a lock for people.
func writeInspection(w io.Writer, c *connect.Resolved, g inspection, l keyspace.Lock) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n", render.ShortKey(l.Key))
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if g.Databases {
		line("database", "%d", l.DB)
	}
	if g.Databases && len(g.Locks) > 1 {
		line("", "it is in databases %s: -n says which to show", g.whichDatabases())
	}
	line("state", "%s, %s", l.State(g.At), render.Deadline(l, g.At))
	kind := string(l.Kind) + " lock"
	if l.Kind == keyspace.Unknown {
		kind = "lock"
	}
	library := l.Format
	known := formats.WithUserPatterns(g.marks)
	if i := slices.IndexFunc(known, func(f keyspace.Format) bool { return f.Name == l.Format }); i >= 0 {
		library = known[i].Library
	}
	line("format", "%s, a %s of %s (%s)", l.Format, kind, library, l.Confidence)
	for i, why := range l.Evidence {
		line(first(i, "because"), "%s", widget.Plain(why))
	}
	for i, h := range l.Holders {
		line(first(i, "held by"), "%s", holderLine(h, g.At))
	}
	for i, text := range processLines(l) {
		line(first(i, "process"), "%s", text)
	}
	if permits := l.PermitsInUse(); permits != "" {
		line("limit", "%s", permits)
	}
	for i, wt := range l.Waiters {
		line(first(i, "waiting"), "%s", waiterLine(wt, g.At))
	}
	if n := l.WaiterCount() - len(l.Waiters); n > 0 {
		line(first(len(l.Waiters), "waiting"), "%d whose names cannot be seen", n)
	}
	if l.Fence > 0 {
		line("fence", "%d", l.Fence)
	}
	for i, v := range l.Votes {
		line(first(i, "votes"), "%s", voteLine(v, g.At))
	}
	for _, f := range g.Findings[l.ID()] {
		line(f.Severity.String(), "%s: %s %s", f.ID, widget.Plain(f.Text), render.Remedy(f))
	}
	out.WriteString("\nStored as\n")
	for _, e := range g.raw {
		writeRaw(&out, e)
	}
	if wake := wakeCommand(c, l, g.At); wake != "" {
		fmt.Fprintf(&out, "\nTo wake the next waiter\n  %s\n", wake)
		return render.Written(w, out.String())
	}
	out.WriteString("\nExact release, only of this hold\n")
	r := remedyFor(c, l, g.marks)
	if r.reason == "" {
		fmt.Fprintf(&out, "  %s\n", l.Consequence(keyspace.ForceRelease, 0, "Its holder", g.At, g.At))
	}
	switch {
	case r.reason != "":
		fmt.Fprintf(&out, "  %s\n", widget.Plain(r.reason))
	case r.release != "":
		fmt.Fprintf(&out, "  %s\n  or, for somebody without locktop:\n%s\n", r.release, r.redisCLI)
	default:
		fmt.Fprintf(&out, "%s\n", r.redisCLI)
	}
	return render.Written(w, out.String())
}

// wakeCommand returns the redis-cli command that wakes the next waiter of a free lock; "" if
// there is none.
func wakeCommand(c *connect.Resolved, l keyspace.Lock, at time.Time) string {
	return keyspace.WakeCommand(formats.All(), l, at, c.RedisCLI()...)
}

// processLines returns the processes that the holders name, or the command that finds
// them.
func processLines(l keyspace.Lock) []string {
	var all []string
	for _, h := range l.Holders {
		if p, ok := h.Process(); ok {
			all = append(all, p.String())
		}
	}
	if len(all) == 0 && len(l.Holders) > 0 {
		return []string{"locktop who finds it"}
	}
	return slices.Compact(all)
}

// first returns name for the first of several lines, and spaces for the others.
func first(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

func holderLine(h keyspace.Holder, at time.Time) string {
	parts := []string{render.ShortKey(h.ID)}
	if h.Label != "" {
		parts[0] = render.ShortKey(h.Label) + ", token " + render.ShortKey(h.ID)
	}
	if h.Mode != "" {
		parts = append(parts, string(h.Mode))
	}
	if h.Depth > 1 {
		parts = append(parts, fmt.Sprintf("%d times", h.Depth))
	}
	if age := h.Age(at); age.Duration > 0 || age.Wide() {
		parts = append(parts, "held "+age.String())
	}
	if !h.Expires.IsZero() && !h.Expires.After(at) {
		parts = append(parts, "its lease is over")
	} else if !h.Expires.IsZero() {
		parts = append(parts, humanize.Left(h.Expires.Sub(at))+" left")
	}
	return strings.Join(parts, ", ")
}

func waiterLine(w keyspace.Waiter, at time.Time) string {
	s := render.ShortKey(w.ID)
	if w.Mode != "" {
		s += ", " + string(w.Mode)
	}
	switch dead := w.DeadFor(at); {
	case dead > 0:
		s += ", dead for " + humanize.Duration(dead)
	case !w.Since.IsZero():
		s += ", for " + humanize.Duration(at.Sub(w.Since))
	}
	return s
}

func voteLine(v keyspace.Vote, at time.Time) string {
	switch {
	case v.Unreachable:
		return v.Node + ": does not answer"
	case v.Token == "":
		return v.Node + ": free"
	case v.Expires.IsZero():
		return v.Node + ": " + render.ShortKey(v.Token) + ", never expires"
	default:
		return v.Node + ": " + render.ShortKey(v.Token) + ", for " + humanize.Left(v.Expires.Sub(at)) + " more"
	}
}

// Limits of the output for one value.
const (
	rawBytes   = 512
	rawMembers = 32
)

// writeRaw prints a key and its value on one server, up to the limits and without
// control characters.
func writeRaw(out *strings.Builder, e keyspace.Entry) {
	ttl := "no TTL"
	if !e.Expires.IsZero() {
		ttl = "TTL " + humanize.Left(e.Expires.Sub(e.Now))
	}
	fmt.Fprintf(out, "  %s  %s, %s, on %s\n", render.ShortKey(e.Key), e.Type, ttl, e.Node)
	if e.Type == "string" {
		fmt.Fprintf(out, "    %s%s\n", truncated(e.Value), moreNote(e.Len, int64(min(len(e.Value), rawBytes)), "byte"))
		return
	}
	for _, m := range e.Members[:min(len(e.Members), rawMembers)] {
		switch e.Type {
		case "hash":
			fmt.Fprintf(out, "    %s = %s\n", truncated(m.Name), truncated(m.Value))
		case "zset":
			fmt.Fprintf(out, "    %s at %.0f%s\n", truncated(m.Name), m.Score, humanize.Score(m.Score, e.Now))
		default:
			fmt.Fprintf(out, "    %s\n", truncated(m.Name))
		}
	}
	if more := moreNote(e.Len, int64(min(len(e.Members), rawMembers)), "element"); more != "" {
		fmt.Fprintf(out, "   %s\n", more)
	}
}

// truncated returns the part of a value that is shown, without control characters.
func truncated(s string) string { return widget.Plain(s[:min(len(s), rawBytes)]) }

// moreNote returns a note about the part of a value that is not shown.
func moreNote(all, shown int64, noun string) string {
	if all <= shown {
		return ""
	}
	return " … and " + humanize.Plural(all-shown, "more "+noun)
}

// jsonInspection is the output of `inspect --json`.
type jsonInspection struct {
	render.Head
	render.Lock
	Entries        []render.Entry `json:"entries"`
	ReleaseCommand string         `json:"release_command,omitzero"`   // of locktop: it force-releases the lock
	RedisCommand   string         `json:"redis_cli_command,omitzero"` // does so, only for this hold
	NoRelease      string         `json:"no_release,omitzero"`        // why there is none
	WakeCommand    string         `json:"wake_command,omitzero"`      // of redis-cli: it wakes the next waiter of a free lock
}

func inspectionOf(c *connect.Resolved, g inspection, l keyspace.Lock) jsonInspection {
	r := remedyFor(c, l, g.marks)
	return jsonInspection{
		render.HeadOf(g.Snapshot), render.LockOf(l, g.At, g.Findings[l.ID()]),
		render.Each(g.raw, func(e keyspace.Entry) render.Entry { return render.EntryOf(e, l.DB) }), r.release, r.redisCLI, r.reason, wakeCommand(c, l, g.At),
	}
}
