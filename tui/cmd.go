package tui

import (
	"context"
	"runtime/debug"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// This file holds everything that the screen does besides drawing. It is the
// only one that reads the clock.

// beat is the time between two pictures. Nothing on the screen moves faster.
const beat = 250 * time.Millisecond

func tick() tea.Cmd {
	return tea.Tick(beat, func(now time.Time) tea.Msg { return tickMsg{now} })
}

// look asks the source for a picture, and works out what follows from it.
func look(ctx context.Context, source Source) tea.Cmd {
	return guarded(func() tea.Msg {
		snap, err := source.Snapshot(ctx)
		at := time.Now()
		if err != nil {
			return lookedMsg{at: at, err: err}
		}
		return lookedMsg{at: at, picture: newPicture(snap, at)}
	})
}

// measure asks the generator what it is doing.
func measure(load Load, resizes int) tea.Cmd {
	return guarded(func() tea.Msg { return measuredMsg{load.Metrics(), load.Scenario(), resizes} })
}

func startLoad(load Load) tea.Cmd {
	return guarded(func() tea.Msg { return doneMsg{"the load runs", load.Start()} })
}

func stopLoad(load Load) tea.Cmd {
	return guarded(func() tea.Msg { return doneMsg{"the load has stopped, all its locks are released", load.Stop()} })
}

func setClients(load Load, n int) tea.Cmd {
	return guarded(func() tea.Msg {
		load.SetClients(n)
		return resizedMsg{n}
	})
}

// guarded hands a panic to the event loop. bubbletea would print it while the
// terminal is still in its hands.
func guarded(cmd tea.Cmd) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if v := recover(); v != nil {
				msg = crashMsg{v, debug.Stack()}
			}
		}()
		return cmd()
	}
}
