package loadgen

import (
	"reflect"
	"slices"
	"strings"
)

// Setting is a field of a scenario, as its tags describe it: its place in a file, in a command line and in
// a form.
type Setting struct {
	Key   string // in a file, like lock.ttl; see [Scenario.Set]
	Flag  string // "" = none
	Usage string // of the flag, with <> around the word for its value
	Form  string // place in the form, and name there, like "6 lease"; "" = none

	index []int
}

// Settings returns the fields that have a flag or a place in the form, in the order of a file.
func Settings() []Setting { return settingsIn(reflect.TypeFor[Scenario](), "", nil) }

func settingsIn(t reflect.Type, path string, index []int) (all []Setting) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		x := Setting{path + key, f.Tag.Get("flag"), f.Tag.Get("usage"), f.Tag.Get("form"), append(slices.Clone(index), i)}
		if x.Flag != "" || x.Form != "" {
			all = append(all, x)
		}
		if f.Type.Kind() == reflect.Struct {
			all = append(all, settingsIn(f.Type, x.Key+".", x.index)...)
		}
	}
	return all
}

// In returns a pointer to the value of the setting in s.
func (x Setting) In(s *Scenario) any {
	return reflect.ValueOf(s).Elem().FieldByIndex(x.index).Addr().Interface()
}

// Usual sets what shows the point of the kind of lock, unless it is set: readers, or entries.
func (s *Scenario) Usual() {
	switch k := s.Lock.Kind; {
	case k != Exec && k.shared() && s.Reads == 0:
		s.Reads = 0.8
	case k == Reentrant && s.Depth == 0:
		s.Depth = 3
	}
}
