package tui

import (
	"fmt"
	"slices"
)

// Remembered is what one session of the screen leaves to the next.
type Remembered struct {
	Page     string `json:"page,omitzero"`     // as in :page
	Sort     string `json:"sort,omitzero"`     // as in :sort
	Reversed bool   `json:"reversed,omitzero"` // of the order
	Wide     bool   `json:"wide,omitzero"`     // more columns
	Theme    string `json:"theme,omitzero"`    // chosen by :theme
}

// check returns an error for a name that does not exist.
func (r Remembered) check() error {
	for _, one := range []struct {
		what, name string
		known      []string
	}{{"page", r.Page, pageNames()}, {"sort", r.Sort, orders()}, {"theme", r.Theme, Themes()}} {
		if one.name != "" && !slices.Contains(one.known, one.name) {
			return fmt.Errorf("unknown %s", one.what)
		}
	}
	return nil
}

// recall restores what an earlier session has remembered. A theme of the configuration precedes.
func (a *app) recall() {
	if a.config.Memory == nil {
		return
	}
	r, err := recall(a.config.Memory)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		a.notice = notice{text: "the settings of the last session are ignored: " + shortError(err), bad: true}
		return
	}
	a.recalled, a.chosenTheme = r, r.Theme
	if a.config.Theme == "" && r.Theme != "" {
		a.screen.theme = themeNamed(r.Theme, a.screen.renderer)
	}
	p := a.locks()
	p.wide = r.Wide
	p.sortByName(r.Sort)
	p.reversed = r.Reversed
	if i := pageOf(action(r.Page)); i >= 0 && (action(r.Page) != openLoad || a.run.load != nil) {
		a.goToPage(i)
	}
}

// remember stores what has changed since an earlier session.
func (a *app) remember() {
	if a.config.Memory == nil {
		return
	}
	open, p := a.open, a.locks()
	if a.place() == onLock {
		open = a.from
	}
	r := Remembered{Page: (pageSet(1) << open).String(), Sort: "severity", Reversed: p.reversed, Wide: p.wide, Theme: a.chosenTheme}
	if p.sort != bySeverity && p.group != byClass {
		r.Sort = p.columns()[p.sort].name
	}
	if r != a.recalled {
		remember(a.config.Memory, r)
	}
}
