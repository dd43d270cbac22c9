package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/inspect"
	"locktop/tui"
)

// monitoring is MONITOR on the servers of a target, and what it and the reads show.
type monitoring struct {
	*reading
	ledger   *contention.Ledger
	names    []string // of the commands that MONITOR is to show
	last     keyspace.Snapshot
	takenAt  time.Time // of the last snapshot
	monitors []*lockMonitor
	began    time.Time // of MONITOR, on the local clock; zero = it does not run
	err      error     // why MONITOR has ended early
}

func newMonitoring(r *reading) *monitoring {
	known := r.formats()
	return &monitoring{reading: r, ledger: contention.NewLedger(known), names: contention.Commands(known)}
}

// start runs MONITOR on each server for a time, and returns when all send their commands. The
// servers of a Redlock receive the same attempts, so one of them is enough.
func (m *monitoring) start(ctx context.Context, window time.Duration, force bool) error {
	servers := m.target.Clients(ctx)
	addrs := slices.Sorted(maps.Keys(servers))
	if m.target.Multi.Redlock {
		addrs = addrs[:min(1, len(addrs))]
	}
	limit := int(maxMonitorShare / inspect.MonitorCost.Seconds())
	if force {
		limit = 0
	}
	for _, addr := range addrs {
		if !force {
			if err := mayMonitor(ctx, m.scanner(servers[addr], 0)); err != nil {
				return err
			}
		}
		one, err := startLockMonitor(ctx, m.target.Resolved, addr, m.names, window+maxMonitorMore, limit)
		if err != nil {
			return err
		}
		m.monitors = append(m.monitors, one)
	}
	for _, one := range m.monitors {
		<-one.began
		if _, _, err := one.take(); err != nil {
			return monitorFailed(err)
		}
	}
	m.nameClients(ctx)
	return nil
}

// nameClients gives the ledger the names of the connections, as far as the servers list them.
func (m *monitoring) nameClients(ctx context.Context) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, rdb := range m.target.Clients(within) {
		if list, _, err := m.scanner(rdb, 0).Clients(within, nil); err == nil {
			m.ledger.Clients(list)
		}
	}
}

// watchLag is the time within which changes are known.
const watchLag = 50 * time.Millisecond

// take gives the ledger a snapshot, and the commands up to it.
func (m *monitoring) take(snap keyspace.Snapshot) {
	m.takenAt = time.Now()
	ahead := snap.ClockAhead(m.takenAt)
	if at := m.takenAt.Add(ahead - watchLag); at.After(snap.At) {
		snap.At = at // no change was reported since the last read
	}
	m.last = snap
	m.ledger.Snapshot(snap)
	keys := slices.Concat(render.Each(snap.Locks, func(l *keyspace.Lock) string { return l.Key }),
		render.Each(snap.Events, func(e keyspace.Event) string { return e.Lock.Key }))
	until := m.takenAt
	for _, one := range m.monitors {
		one.add(keys)
		ran, to, err := one.take()
		if to.Before(until) {
			until = to
		}
		for _, command := range ran {
			m.ledger.Command(command.At, command.Addr, command.DB, command.Args)
		}
		if err != nil && m.err == nil {
			m.err = err
		}
	}
	if !m.began.IsZero() {
		m.ledger.Monitored(contention.Span{From: m.began.Add(ahead), Until: until.Add(ahead)})
	}
}

// monitorFlag is the flag of the screen and of record.
type monitorFlag struct{ on bool }

func (f *monitorFlag) flags() *pflag.FlagSet {
	set := flagSection("Waiters")
	set.BoolVar(&f.on, "monitor", false, "run MONITOR all the time: it shows clients that only poll and their deadlocks, and costs the server 13µs per command; not above 5% of a core")
	return set
}

// monitored adds to the snapshots of a source the clients that MONITOR shows to wait. MONITOR begins anew every
// minute, also after an error.
type monitored struct {
	tui.Source
	begin   func() *monitoring
	run     *monitoring      // the newest one that has begun
	next    chan *monitoring // that begins; nil = none does
	took    time.Duration    // for the last look at the waiters
	waiters contention.Waiters
}

// monitored returns the source with MONITOR, which runs until the target is closed. The error says why it may not run.
func (f *monitorFlag) monitored(ctx context.Context, r *reading, source tui.Source) (tui.Source, error) {
	if !f.on {
		return source, nil
	}
	within, end := context.WithCancel(context.WithoutCancel(ctx))
	m := &monitored{Source: source}
	m.begin = func() *monitoring {
		run := newMonitoring(r)
		run.err = run.start(within, maxMonitorTime, false)
		run.began = time.Now()
		return run
	}
	if m.run = m.begin(); m.run.err != nil {
		end()
		return nil, m.run.err
	}
	r.target.OnClose(end)
	return m, nil
}

// Snapshot implements [tui.Source]. It looks at the waiters once a second, with many locks less often.
func (m *monitored) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	snap, err := m.Source.Snapshot(ctx)
	if err != nil {
		return snap, err
	}
	select {
	case m.run = <-m.next:
		m.next = nil
	default:
	}
	if m.next == nil && time.Since(m.run.began) > maxMonitorTime {
		next := make(chan *monitoring, 1)
		m.next = next
		go func() { next <- m.begin() }()
	}
	if began := time.Now(); m.run.err == nil && began.Sub(m.run.takenAt) > max(time.Second, contentionRest*m.took) {
		if m.run.take(snap); began.Sub(m.run.began) > monitorSettled {
			m.waiters = m.run.ledger.Waiters(m.run.last, m.waiters)
		}
		m.took = time.Since(began)
	}
	if m.run.err != nil {
		m.waiters = nil
		snap.Watch.Limitations = append(slices.Clip(snap.Watch.Limitations), fmt.Sprintf("MONITOR has ended, so clients that only poll are not seen any more: %v.", m.run.err))
	}
	return m.waiters.AddTo(snap), nil
}

// monitorSettled is how long MONITOR runs before it shows who waits.
const monitorSettled = 2 * time.Second

// prove finds the client of a holder with MONITOR.
func (r *whoRun) prove(ctx context.Context) error {
	id := &r.identity
	if !r.options.force {
		if err := mayMonitor(ctx, r.scanner); err != nil {
			return err
		}
	}
	q := inspect.MonitorQuery{Key: id.lock.Key, Token: id.holder.ID, DB: id.lock.DB, Window: maxProofTime}
	if ends := id.holder.Expires; !ends.IsZero() { // before it, the lock is renewed, or gone
		q.Window = min(max(ends.Sub(id.at), 0)+time.Second, maxProofTime)
	}
	line := r.program.newProgressLine()
	line.show(fmt.Sprintf("MONITOR runs for up to %s", humanize.Duration(q.Window)))
	seen, err := monitorInChild(ctx, r.target.Resolved, r.scanner.Addr(), q)
	line.clear()
	switch {
	case errors.Is(err, inspect.ErrNotSighted):
		text := fmt.Errorf("within %s, %w", humanize.Duration(q.Window), err)
		if seen.Command != "" {
			text = fmt.Errorf("%w; %s has sent %s with the key and the value of the lock, which is no proof: %s",
				text, render.Text(seen.Addr), strings.ToUpper(render.Text(seen.Command)), seen.Doubt)
		}
		return &exitError{code: exitFailure, err: text, hint: "its holder may not renew it: try again, or when it is released"}
	case err != nil:
		return monitorFailed(err)
	}
	id.known, id.why = byProof, fmt.Sprintf("MONITOR showed its %s with the key and the token", strings.ToUpper(seen.Command))
	id.clients = []keyspace.Client{{Addr: seen.Addr}}
	if clients, _, err := r.scanner.Clients(ctx, nil); err == nil {
		if i := slices.IndexFunc(clients, func(c keyspace.Client) bool { return c.Addr == seen.Addr }); i >= 0 {
			id.clients[0] = clients[i]
		}
	}
	return nil
}

// maxProofTime is how long MONITOR runs at most for a proof.
const maxProofTime = 15 * time.Second
