package tui

import (
	"errors"
	"testing"

	"locktop/internal/check"
)

// fakeMemory is a Memory without a file.
type fakeMemory struct {
	Remembered
	err   error
	saved int
}

func (m *fakeMemory) Recall() (Remembered, error) { return m.Remembered, m.err }
func (m *fakeMemory) Remember(r Remembered)       { m.Remembered, m.saved = r, m.saved+1 }

func TestASessionContinuesWithTheSettingsOfTheLast(t *testing.T) {
	m := &fakeMemory{}
	w := testConfig()
	w.Memory = m
	drive(t, w, func(d *driver) {
		d.size(160, 45)
		for _, text := range []string{"theme light", "sort fence", "page events"} {
			d.press(":").enter(text).press("enter")
		}
		d.press("1", "i", "6", "enter").want("newest first") // the page of a lock is not remembered
		d.app.remember()
	})
	want := Remembered{"events", "fence", true, true, "light"}
	check.Require(t, m.Remembered == want && m.saved == 1, "remembered %+v, %d times", m.Remembered, m.saved)
	drive(t, w, func(d *driver) {
		at, p := d.app.place(), d.app.locks()
		check.True(t, at == onEvents && p.columns()[p.sort].name == "fence" && p.reversed && p.wide, "it begins at %s with %+v", at, p)
		light := themeNamed("light", d.app.screen.renderer)
		check.True(t, d.app.screen.theme.bad == light.bad, "it has another theme")
		d.app.remember()
	})
	check.True(t, m.saved == 1, "it is written again, although nothing has changed")
	w.Theme = "mono"
	drive(t, w, func(d *driver) {
		mono := themeNamed("mono", d.app.screen.renderer)
		check.True(t, d.app.screen.theme.bad == mono.bad, "the theme of a flag does not precede")
		d.press("1").app.remember()
	})
	check.True(t, m.Theme == "light" && m.Page == "locks", "remembered %+v", m.Remembered)
}

func TestSettingsThatAreDamagedAreIgnoredWithAMessage(t *testing.T) {
	for _, m := range []*fakeMemory{
		{err: errors.New("screen.json is damaged")}, {Remembered: Remembered{Page: "coffee"}}, {Remembered: Remembered{Sort: "\x1b[2J"}}, {Remembered: Remembered{Page: "events", Theme: "beige"}},
	} {
		w := testConfig()
		w.Memory = m
		drive(t, w, func(d *driver) {
			d.want("the settings of the last session are ignored: ", "sorted worst first").press("j").wantNot("are ignored")
		})
	}
	w := testConfig()
	w.Load, w.Memory = nil, &fakeMemory{Remembered: Remembered{Page: "load"}}
	drive(t, w, func(d *driver) { d.want("sorted worst first") })
}
