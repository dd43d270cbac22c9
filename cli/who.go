package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/internal/shell"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/tui/widget"
)

// whoOptions configures a run of who.
type whoOptions struct {
	token   string
	watch   time.Duration
	monitor bool
	force   bool
	json    bool
}

func (o *whoOptions) flags() *pflag.FlagSet {
	set := flagSection("Search")
	set.StringVar(&o.token, "token", "", "of several `holder`s, the one with this token or name")
	set.DurationVar(&o.watch, "for", 30*time.Second, "watch the lock for this `time` at most, if its value names no client")
	set.BoolVar(&o.monitor, "monitor", false, "run MONITOR for at most 15s: it proves which client holds the lock, and costs the server 13µs per command")
	set.BoolVar(&o.force, "force", false, "run MONITOR also if it costs more than 5% of a core")
	return set
}

func (p *program) whoCommand() *cobra.Command {
	var k keyFlags
	var o whoOptions
	set := flagSection("Output")
	set.BoolVar(&o.json, "json", false, "print one JSON document; errors are JSON, too")
	return p.readCommand(&cobra.Command{
		Use:   "who KEY [flags]",
		Short: "Find the process that holds a lock",
		Long: `Finds the process that holds a lock, and says how it is known:

  said         the value of the lock names a process, or is the name of a client
  hint         the value contains the name of a client; it may be another service
  coincidence  one client wrote each time the lock changed, and hardly ever at another
               time; locktop says "probably", never "certainly"
  renewal      several clients renew the lock, so which one holds it is not known; or one
               does, by a command such as EXPIRE, which a waiter may send, too
  proof        MONITOR has shown the command with the key and the token; only with --monitor

It needs the permission for CLIENT LIST, and with --monitor for MONITOR. locktop never
runs MONITOR unasked: MONITOR slows down the server. A process of its own runs it, for
at most 15s and 64 MiB, until the first command with the key and the token.`,
		Example: `  locktop who lock:orders:4711
  locktop who lock:orders:4711 --for 2m
  locktop who lock:orders:4711 --monitor
  locktop who job:nightly --json | jq -r '.clients[].addr'`,
		Args: k.take,
	}, o.check, func(ctx context.Context, r *reading, _ []string) error {
		return (&whoRun{program: p, reading: r, options: o}).run(ctx, k.key)
	}, k.flags(), o.flags(), set)
}

func (o *whoOptions) check() error {
	if o.force && !o.monitor {
		return usageErrorf("", "--force needs --monitor")
	}
	if o.watch <= 0 {
		return usageErrorf("as in --for 1m", "--for: not a positive time")
	}
	return nil
}

// How a process is known, in JSON.
const (
	bySaying      = "said"
	byHint        = "hint"
	byCoincidence = "coincidence"
	byRenewal     = "renewal"
	byProof       = "proof"
)

// whoRun is a run of who.
type whoRun struct {
	*program
	*reading
	options whoOptions
	scanner *inspect.Scanner // of the server on which the holder has the lock
	identity
}

// identity is the process that holds a lock, as far as it is known.
type identity struct {
	lock    keyspace.Lock
	holder  keyspace.Holder
	at      time.Time // of the read
	head    render.Head
	known   string           // how; "" = not known
	why     string           // evidence, one clause
	process keyspace.Process // in the value of the lock; zero = none
	clients []keyspace.Client
	seen    inspect.Investigation
}

// run identifies the process that holds the lock under a key, and prints it.
func (r *whoRun) run(ctx context.Context, key string) error {
	t, s, o := r.target, &r.selection, r.options
	g, l, err := r.inspectLock(ctx, t, s, key, repeated{})
	if err != nil {
		return err
	}
	if !g.Complete {
		r.notes.warning("%s", incomplete(g.Snapshot))
	}
	r.identity = identity{at: g.At, head: render.HeadOf(g.Snapshot), lock: l}
	if r.holder, err = chooseHolder(r.lock, o.token); err != nil {
		return err
	}
	rdb, err := clientOfHolder(ctx, t, r.lock, r.holder)
	if err != nil {
		return err
	}
	options := s.keyOptions(r.lock.DB)
	options.Budget, options.Cluster = s.budget.pace(), t.Cluster
	r.scanner = inspect.NewScanner(rdb, options)
	if o.monitor {
		err = r.prove(ctx)
	} else {
		err = r.identify(ctx, func(ctx context.Context) []*keyspace.Lock { return s.locksOfClient(ctx, rdb, r.lock, r.holder) })
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if o.json {
		return render.JSON(r.out, identityOf(r.identity))
	}
	return writeIdentity(r.out, r.identity)
}

// chooseHolder returns the holder that token names, or the only one.
func chooseHolder(l keyspace.Lock, token string) (keyspace.Holder, error) {
	if len(l.Holders) == 0 {
		return keyspace.Holder{}, &exitError{code: exitNoLock, err: fmt.Errorf("nobody holds %q", l.Key)}
	}
	if token == "" && len(l.Holders) == 1 {
		return l.Holders[0], nil
	}
	i := slices.IndexFunc(l.Holders, func(h keyspace.Holder) bool { return h.ID == token || h.Label == token })
	if token == "" || i < 0 {
		return keyspace.Holder{}, usageErrorf("--token names one of them: locktop inspect lists them", "%q has %s", l.Key, humanize.Plural(len(l.Holders), "holder"))
	}
	return l.Holders[i], nil
}

// clientOfHolder returns a client of a server on which a holder has the lock. In a cluster
// the inspector follows redirections, so the node that it names may not be the one that has
// the key.
func clientOfHolder(ctx context.Context, t *connect.Target, l keyspace.Lock, h keyspace.Holder) (inspect.Client, error) {
	if t.Cluster == nil {
		if rdb := t.ClientOf(l.HeldOn(h), l.DB); rdb != nil {
			return rdb, nil
		}
		return nil, fmt.Errorf("%s, which has the lock, cannot be reached", l.HeldOn(h))
	}
	for addr := range t.Clients(ctx) {
		rdb := t.ClientOf(addr, l.DB)
		if rdb == nil {
			continue
		}
		err := rdb.Type(ctx, l.Key).Err()
		switch {
		case err == nil:
			return rdb, nil
		case redis.HasErrorPrefix(err, "ASK"):
			return nil, &exitError{code: exitFailure, err: fmt.Errorf("the slot of %q is moving to another node", l.Key), hint: "try again after that"}
		}
	}
	return nil, fmt.Errorf("the node that has %q cannot be reached", l.Key)
}

// maxSearch is the limit of a search for the other locks of a client.
const maxSearch = 5 * time.Second

// locksOfClient returns the locks on a server that the client of a holder has, as far as a
// scan finds them within maxSearch. It scans only if the ID of the holder names a client.
func (s *selection) locksOfClient(ctx context.Context, rdb inspect.Client, l keyspace.Lock, h keyspace.Holder) []*keyspace.Lock {
	if h.ClientID() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxSearch)
	defer cancel()
	o := s.options(l.DB, s.budget.pace())
	o.Match = nil
	o.Formats = slices.DeleteFunc(o.Formats, func(f keyspace.Format) bool { return f.Name != l.Format })
	var found []*keyspace.Lock
	o.Progress = func(snap keyspace.Snapshot) {
		for _, other := range snap.Locks {
			if slices.ContainsFunc(other.Holders, h.SameOwner) {
				found = append(found, other)
			}
		}
	}
	_, _ = inspect.NewScanner(rdb, o).Scan(ctx) // without them, the watch takes longer
	return found
}

// identify finds the client of a holder by what the lock says, or by coincidence.
// otherLocks returns the other locks of that client.
func (r *whoRun) identify(ctx context.Context, otherLocks func(context.Context) []*keyspace.Lock) error {
	var said bool
	id := &r.identity
	if id.process, said = id.holder.Process(); said {
		id.known, id.why = bySaying, "the value of the lock names the process"
		if !id.process.Sure {
			id.why = "the value of the lock looks like a host and a process ID"
		}
	}
	clients, _, err := r.scanner.Clients(ctx, nil)
	if err != nil {
		if said {
			r.notes.warning("its connections are not shown: %v", err)
			return nil
		}
		return cannotIdentify(err)
	}
	clients = withoutOwn(clients)
	found, hint := id.holder.ClientsOf(clients)
	if len(found) > 0 && !hint {
		id.known, id.why, id.clients = bySaying, "the value of the lock names the client", found
		return nil
	}
	if said {
		return nil
	}
	if len(found) > 0 {
		r.notes.note("the value contains the name %s; it may be another service", found[0].Name)
	}
	err = r.watchFor(ctx, otherLocks(ctx))
	if f, ok := errors.AsType[*exitError](err); ok && f.code == exitFailure && len(found) > 0 && ctx.Err() == nil {
		id.known, id.clients = byHint, found
		id.why = fmt.Sprintf("the value contains the name %s; it may be another service (%v)", found[0].Name, f.err)
		return nil
	}
	return err
}

// withoutOwn returns the clients without the connections of locktop.
func withoutOwn(clients []keyspace.Client) []keyspace.Client {
	return slices.DeleteFunc(clients, keyspace.Client.IsLocktop)
}

// watchFor finds the client of a holder by coincidence, with the changes of its other locks.
func (r *whoRun) watchFor(ctx context.Context, others []*keyspace.Lock) error {
	id, watch := &r.identity, r.options.watch
	line := r.program.newProgressLine()
	line.show(fmt.Sprintf("the value names no client: watching the lock for up to %s", humanize.Setting(watch)))
	seen, err := r.scanner.WatchHolder(ctx, id.lock, id.holder, others, watch, func(i inspect.Investigation) {
		line.show(i.Text())
	})
	line.clear()
	id.seen = seen
	switch {
	case err != nil:
		return cannotIdentify(err)
	case len(seen.Renewers) > 0:
		id.known, id.clients, id.why = byRenewal, seen.Renewers, seen.Text()
		return nil
	case seen.Named:
		id.known, id.clients = byCoincidence, []keyspace.Client{seen.Client}
		id.why = seen.Text()
		return nil
	}
	text := "no client can be named: " + seen.Text()
	switch {
	case seen.Changes == 0 && len(seen.Lock.Holders) == 0:
		text = "no client can be named: the lock is free now"
	case seen.Changes == 0:
		text = fmt.Sprintf("no client can be named: the lock did not change within %s", humanize.Setting(watch))
	}
	return &exitError{code: exitFailure, err: errors.New(text), hint: "--for watches longer, --monitor proves which client it is"}
}

// cannotIdentify returns the error for a client that cannot be found by CLIENT LIST.
func cannotIdentify(err error) error {
	if errors.Is(err, inspect.ErrMayNotList) {
		return &exitError{code: exitFailure, err: fmt.Errorf("the process cannot be found: %w", err), hint: "it needs +client|list: see docs/operators.md"}
	}
	if isUnreachable(err) {
		return scanFailed(err)
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("the process cannot be found: %w", err), hint: "--monitor proves which client it is"}
}

// next returns the commands to paste.
func (id *identity) next() []string {
	var all []string
	if id.process.Host != "" {
		if line, ok := shell.Line("ssh", id.process.Host, "ps", "-o", "pid,lstart,args", "-p", strconv.Itoa(id.process.PID)); ok {
			all = append(all, line)
		}
	}
	for _, c := range id.clients[:min(len(id.clients), clientsListed)] {
		all = append(all, c.ProcessCommands()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// clientsListed is the maximum number of connections that are listed.
const clientsListed = 8

// clientLine describes a client for people.
func clientLine(c keyspace.Client) string {
	parts := []string{c.Addr}
	for _, one := range [][2]string{{"client name ", c.Name}, {"user ", c.User}, {"", c.Library}} {
		if one[1] != "" {
			parts = append(parts, one[0]+one[1])
		}
	}
	if c.Age > 0 {
		parts = append(parts, "connected for "+humanize.Duration(c.Age))
	}
	return widget.Plain(strings.Join(parts, ", "))
}

// writeIdentity prints the process for people.
func writeIdentity(w io.Writer, id identity) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n", render.ShortKey(id.lock.Key))
	line := func(name, text string) { fmt.Fprintf(&out, "  %-10s %s\n", name, text) }
	line("held by", holderLine(id.holder, id.at))
	doubt := map[string]string{byCoincidence: "probably ", byHint: "perhaps ", byRenewal: "renewed by "}[id.known]
	n := 0
	if id.process.Host != "" {
		line("process", id.process.String())
		n++
	}
	for _, c := range id.clients[:min(len(id.clients), clientsListed)] {
		line(first(n, "process"), doubt+clientLine(c))
		n++
	}
	if more := len(id.clients) - clientsListed; more > 0 {
		line("", fmt.Sprintf("and %s", humanize.Plural(more, "more connection")))
	}
	line("known by", id.known+": "+widget.Plain(id.why))
	if f, found := id.seen.Finding(id.lock.ID()); found {
		line("finding", f.ID+": "+f.Remedy)
	}
	for i, command := range id.next() {
		line(first(i, "next"), command)
	}
	if slices.ContainsFunc(id.clients, func(c keyspace.Client) bool { return c.ProcessCommands() != nil }) {
		line("", "(ss: on the machine with the address)")
	}
	return render.Written(w, out.String())
}

// jsonIdentity is the output of `who --json`.
type jsonIdentity struct {
	render.Head
	render.LockID
	Holder       render.Holder   `json:"holder"`
	KnownBy      string          `json:"known_by"` // said, hint, coincidence, renewal or proof
	Evidence     []string        `json:"evidence"`
	Process      *jsonProcess    `json:"process,omitzero"` // in the value of the lock
	Clients      []render.Client `json:"clients"`
	ChangeCount  int             `json:"change_count,omitzero"`  // of the lock, while it was watched
	HitCount     int             `json:"hit_count,omitzero"`     // of these: those at which the client had just run a command
	SuspectCount int             `json:"suspect_count,omitzero"` // clients that cannot be excluded
	Finding      *render.Finding `json:"finding,omitzero"`       // two-renewers
	Commands     []string        `json:"commands"`               // to paste
}

type jsonProcess struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

func identityOf(id identity) jsonIdentity {
	j := jsonIdentity{
		Head: id.head, LockID: render.LockIDOf(id.lock.ID()), Holder: render.HolderOf(id.holder, id.at), KnownBy: id.known, Evidence: []string{render.Text(id.why)},
		ChangeCount: id.seen.Changes, HitCount: id.seen.Hits, SuspectCount: id.seen.Left, Commands: append([]string{}, id.next()...),
		Clients: render.Each(id.clients, render.ClientOf),
	}
	if f, found := id.seen.Finding(id.lock.ID()); found {
		j.Finding = new(render.FindingOf(f))
	}
	j.Node = render.Text(id.lock.HeldOn(id.holder))
	if id.process.Host != "" {
		j.Process = &jsonProcess{id.process.Host, id.process.PID}
	}
	return j
}
