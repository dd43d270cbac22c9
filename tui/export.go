package tui

import (
	"fmt"
	"strings"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"locktop/tui/svg"
)

// exportMenu returns the menu of file formats for the frame on the screen.
func (a *app) exportMenu() *menu {
	frame, w, h := a.View(), a.screen.w, a.screen.h
	title := "locktop " + a.address()
	m := &menu{title: "save this frame"}
	for _, f := range []struct {
		key, label, detail string
		data               func() []byte
	}{
		{"t", "text", "as it can be pasted into a ticket", func() []byte { return []byte(plainText(frame)) }},
		{"a", "ansi", "with its colours; cat shows it", func() []byte { return []byte(frame + "\n") }},
		{"s", "svg", "a picture, for a page or a mail", func() []byte { return svg.Draw(title, frame, w, h) }},
	} {
		c := choice{key: f.key, label: f.label, detail: f.detail}
		if a.config.Frames == nil {
			c.refuse = "frames cannot be saved from here"
		}
		c.pick = func(*state) (dialog, tea.Cmd) { return nil, saveFrame(a.config.Frames, ending(f.label), f.data) }
		m.choices = append(m.choices, c)
	}
	return m
}

// writeScenario saves the current scenario of the load as a file.
func (a *app) writeScenario() tea.Cmd {
	switch {
	case a.run.load == nil:
		a.reject(noLoad)
	case a.config.Frames == nil:
		a.reject("nothing can be saved from here")
	default:
		return saveFrame(a.config.Frames, "scenario.yaml", a.run.scenario.Marshal)
	}
	return nil
}

// ending returns the file name for an export format.
func ending(form string) string {
	if form == "text" {
		return "frame.txt"
	}
	return "frame." + form
}

// plainText returns a frame without colours and trailing blanks.
func plainText(frame string) string {
	var b strings.Builder
	for line := range strings.Lines(ansi.Strip(frame) + "\n") {
		fmt.Fprintln(&b, strings.TrimRight(line, " \n"))
	}
	return b.String()
}
