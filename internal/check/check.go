// Package check has the checks that tests repeat. A failed check ends in one line: what was looked
// at, what was got and what was wanted.
package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(label(what) + err.Error())
	}
}

// Must returns a function that ends the test if err is not nil, and returns v: Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		NoError(t, err)
		return v
	}
}

// ErrorIs fails the test if err is not want, as [errors.Is] sees it; nil wants no error.
func ErrorIs(t testing.TB, err, want error, what ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%sgot %v, want %v", label(what), err, want)
	}
}

// ErrorContains fails the test if err is nil or its text lacks part.
func ErrorContains(t testing.TB, err error, part string, what ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%sgot %v, want an error with %q", label(what), err, part)
	}
}

// Contains fails the test if text lacks part.
func Contains(t testing.TB, text, part string, what ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%sno %q in\n%s", label(what), part, text)
	}
}

// True fails the test with a message if the condition is false. The arguments of the message are
// evaluated in any case.
func True(t testing.TB, condition bool, message string, args ...any) {
	t.Helper()
	if !condition {
		t.Errorf(message, args...)
	}
}

// Require is [True] for a condition that the rest of the test needs: it ends the test.
func Require(t testing.TB, condition bool, message string, args ...any) {
	t.Helper()
	if !condition {
		t.Fatalf(message, args...)
	}
}

// False fails the test with a message if the condition is true.
func False(t testing.TB, condition bool, message string, args ...any) {
	t.Helper()
	True(t, !condition, message, args...)
}

// Equal fails the test if got is not want.
func Equal[T comparable](t testing.TB, got, want T, what ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%sgot %+v, want %+v", label(what), got, want)
	}
}

// DeepEqual is [Equal] for values that == does not compare.
func DeepEqual(t testing.TB, got, want any, what ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\ngot  %+v\nwant %+v", label(what), got, want)
	}
}

// Between fails the test if got is less than least or more than most.
func Between[T cmp.Ordered](t testing.TB, got, least, most T, what ...any) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%sgot %v, want %v to %v", label(what), got, least, most)
	}
}

// AtMost fails the test if got is more than most.
func AtMost[T cmp.Ordered](t testing.TB, got, most T, what ...any) {
	t.Helper()
	if got > most {
		t.Errorf("%sgot %v, want at most %v", label(what), got, most)
	}
}

// AtLeast fails the test if got is less than least.
func AtLeast[T cmp.Ordered](t testing.TB, got, least T, what ...any) {
	t.Helper()
	if got < least {
		t.Errorf("%sgot %v, want at least %v", label(what), got, least)
	}
}

// Part returns a part of a JSON file: what the keys of the path lead to.
func Part[T any](t testing.TB, file, path string) T {
	t.Helper()
	var part any
	NoError(t, json.Unmarshal(Must(os.ReadFile(file))(t), &part))
	for key := range strings.SplitSeq(path, "/") {
		object, _ := part.(map[string]any)
		part = object[key]
	}
	v, ok := part.(T)
	Require(t, ok, "%s of %s is %v", path, file, part)
	return v
}

// label is the beginning of a message: what are a format and its arguments.
func label(what []any) string {
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprintf(what[0].(string), what[1:]...) + ": "
}
