package tui

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// This file holds all side effects of the screen besides drawing, and the messages with their
// results. No other file reads the clock.

// tickInterval is the time between two frames.
const tickInterval = 250 * time.Millisecond

func tick() tea.Cmd {
	return tea.Tick(tickInterval, func(now time.Time) tea.Msg { return tickMsg{now} })
}

// fetchSnapshot requests a snapshot and derives its view model. before is the previous view
// model, or nil. If a frame shows the ownerships of a lock, the new view model comes with
// them: the next frame then does not wait for the search.
func fetchSnapshot(ctx context.Context, source Source, before *viewModel, jump int) tea.Cmd {
	var shown *ownerships
	if before != nil && before.owners != nil && before.owners.drawn {
		shown = before.owners
	}
	return guarded(func() tea.Msg {
		snap, err := source.Snapshot(ctx)
		at := time.Now()
		if err != nil {
			return reply(func(a *app) tea.Cmd { return a.onSnapshot(nil, at, err, jump) })
		}
		model := newViewModel(snap, at, before)
		if shown != nil {
			if l, known := model.lock(shown.lock); known {
				model.owners = model.searchOwnerships(&l, shown)
			}
		}
		return reply(func(a *app) tea.Cmd { return a.onSnapshot(model, at, nil, jump) })
	})
}

// sumWaiting computes the waiting for locks. jump is the number of seeks so far.
func sumWaiting(compute func() waiting, jump int) tea.Cmd {
	return guarded(func() tea.Msg {
		w := compute()
		return answer(func(a *app) { a.onSums(w, jump) })
	})
}

// connect requests another target.
func connect(ctx context.Context, g Connector, v Target) tea.Cmd {
	return guarded(func() tea.Msg {
		w, err := g(ctx, v)
		return answer(func(a *app) { a.onConnected(v, w, err) })
	})
}

// readStored requests the raw values of the keys of a lock.
func readStored(ctx context.Context, store Store, l keyspace.Lock) tea.Cmd {
	return guarded(func() tea.Msg {
		at := time.Now()
		items := store(ctx, l)
		return answer(func(a *app) { a.raw.onAnswer(l.ID(), at, items) })
	})
}

// listClients lists the clients of the server that has a lock, if list is set, and searches the last
// list for holders. Of too many clients it lists those that were found before.
func listClients(ctx context.Context, f Finder, l keyspace.Lock, list bool, server string, of serverClients, holders []keyspace.Holder, offset time.Duration) tea.Cmd {
	return guarded(func() tea.Msg {
		if list {
			began, known, all := time.Now(), of.known(), true
			of.clients, all, of.err = f.Clients(ctx, l, known)
			if all {
				known = nil
			}
			of.closings.Listed(of.clients, known, of.err, began, time.Now())
		}
		of.match(holders, offset)
		return answer(func(a *app) { a.onClients(f, server, of) })
	})
}

// watchHolder watches a lock for the client of a holder.
func watchHolder(ctx context.Context, f Finder, l keyspace.Lock, h keyspace.Holder, others []*keyspace.Lock) tea.Cmd {
	return guarded(func() tea.Msg {
		found, err := f.WatchHolder(ctx, l, h, others)
		return answer(func(a *app) { a.clients.onWatched(l.ID(), h, found, err) })
	})
}

// fetchMetrics requests the metrics of the generator and its events after number seen. If the
// run did not begin at began, it requests all events.
func fetchMetrics(load Load, changes int, began time.Time, seen uint64) tea.Cmd {
	return guarded(func() tea.Msg {
		msg := metricsMsg{metrics: load.Metrics(), scenario: load.Scenario(), compared: load.Beside(), changes: changes}
		if by, ok := load.(AgentLoad); ok {
			msg.agents = agentsState{by.Agents(), by.Incomplete(), by.Witness()}
		}
		msg.newRun = !msg.metrics.Began.Equal(began)
		if msg.newRun {
			seen = 0
		}
		msg.events = load.Events(seen)
		return msg
	})
}

// beginLoad opens a load on the current server, and starts it.
func beginLoad(ctx context.Context, l Loader) tea.Cmd {
	return guarded(func() tea.Msg {
		load, err := l(ctx)
		return reply(func(a *app) tea.Cmd {
			if err != nil {
				a.rejectStart(widget.Plain(err.Error()))
				return nil
			}
			a.run.load, a.run.scenario, a.run.launching = load, load.Scenario(), true
			return startLoad(load)
		})
	})
}

// startLoad starts the clients.
func startLoad(load Load) tea.Cmd {
	return guarded(func() tea.Msg {
		err := load.Start()
		return answer(func(a *app) {
			if a.run.launching = false; err != nil {
				a.rejectStart(shortError(err))
				return
			}
			a.run.failed = ""
			a.notify("the clients are running")
		})
	})
}

// stopLoad stops the clients, or a start that waits for agents, and reports that.
func stopLoad(load Load, text string) tea.Cmd {
	return guarded(func() tea.Msg { return done(text, load.Stop()) })
}

// apply applies a scenario to the load, and starts the load if start is set.
func apply(load Load, s loadgen.Scenario, start bool) tea.Cmd {
	return guarded(func() tea.Msg {
		err := load.Apply(s)
		if err == nil && start {
			err = load.Start()
		}
		return reply(func(a *app) tea.Cmd {
			if err != nil {
				a.rejectStart(shortError(err))
			}
			return a.run.applied()
		})
	})
}

func inject(load Load, f loadgen.Fault) tea.Cmd {
	text := "fault injected: " + string(f.Kind)
	if f.Waits() {
		client := "a client"
		if f.Client > 0 {
			client = oracle.ClientLabel(f.Client)
		}
		text += ", which strikes " + client + " while it holds a lock"
	}
	return guarded(func() tea.Msg { return done(text, load.Inject(f)) })
}

// act performs an action on one lock after the other, each with its TTL. It continues after an
// error. The screen ends after it.
func (a *app) act(b Executor, d pendingAction, ttls []time.Duration) tea.Cmd {
	return guarded(func() tea.Msg {
		a.acting.RLock()
		defer a.acting.RUnlock()
		results := make([]acted, len(d.locks))
		for i, l := range d.locks {
			record, err := b.Act(a.ctx, d.act, l, ttls[i])
			results[i] = acted{l, record, err}
		}
		return reply(func(a *app) tea.Cmd { return a.onActed(b, d, results) })
	})
}

// allowWrite lets the screen act, or only read.
func allowWrite(ctx context.Context, w Writer, on bool) tea.Cmd {
	return guarded(func() tea.Msg {
		e, err := w(ctx, on)
		why := ""
		if err == nil && e != nil {
			why = e.Refused(ctx)
		}
		return answer(func(a *app) { a.onExecutor(e, why, err) })
	})
}

// recheck reads a lock again after an action without an answer, as soon as its servers answer.
func (a *app) recheck(b Executor, r acted) tea.Cmd {
	return guarded(func() tea.Msg {
		_, text, err := b.Recheck(a.ctx, r.record, r.lock)
		if err != nil {
			text = "it is still not known: " + shortError(err)
		}
		return answer(func(a *app) {
			a.notice, a.refresher.next = notice{text: a.privacy.key(r.lock.Key) + ": " + text, bad: true}, a.now
		})
	})
}

func copyText(to func(string) error, what, text string) tea.Cmd {
	return guarded(func() tea.Msg { return done("copied the "+what, to(text)) })
}

func saveFrame(to FrameSaver, name string, data func() []byte) tea.Cmd {
	return guarded(func() tea.Msg {
		where, err := to(name, data())
		return done("saved as "+widget.Plain(where), err)
	})
}

// sendNotice notifies the user. Only a failure is reported.
func sendNotice(to Notifier, text string) tea.Cmd {
	return guarded(func() tea.Msg {
		if err := to(text); err != nil {
			return done("", err)
		}
		return nil
	})
}

// runProgram runs a program of the user in place of the screen.
func runProgram(ctx context.Context, r Runner, name string, args []string) tea.Cmd {
	return tea.Exec(r(ctx, args), func(err error) tea.Msg {
		return reply(func(a *app) tea.Cmd { return a.onProgram(name, err) })
	})
}

// guarded delivers a panic to the event loop, which restores the terminal before it prints the panic.
// Otherwise bubbletea prints it first.
func guarded(cmd tea.Cmd) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if v := recover(); v != nil {
				stack := debug.Stack()
				msg = answer(func(*app) { panic(fmt.Sprintf("%v\n\n%s", v, stack)) })
			}
		}()
		return cmd()
	}
}

// tickMsg carries the current time. Messages are the screen's only source of time.
type tickMsg struct{ now time.Time }

// metricsMsg carries the state of the load generator.
type metricsMsg struct {
	metrics  loadgen.Metrics
	scenario loadgen.Scenario
	compared []loadgen.Compared
	agents   agentsState
	events   []loadgen.Event // after those already received
	newRun   bool            // another run than that of the request
	changes  int             // changes of the scenario before the request
}

// answer is what the result of a command changes in the app.
type answer func(*app)

// reply is an answer that another command may follow.
type reply func(*app) tea.Cmd

// done reports the result of a command: a text, or its error.
func done(text string, err error) tea.Msg {
	return reply(func(a *app) tea.Cmd {
		if err != nil {
			return a.reject(shortError(err))
		}
		return a.notify(text)
	})
}
