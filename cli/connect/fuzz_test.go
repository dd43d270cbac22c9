package connect

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

const canary = "c4nary"

// checkRefusal checks that an error is one line and does not repeat what may be
// a password.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	check.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }), "%q is no line for people", err)
	check.False(t, strings.Contains(err.Error(), canary), "%q repeats the password", err)
}

// Whatever surrounds a password in an address, the password is either parsed,
// or the address is refused without repeating it. An address that is shown
// never contains it.
func FuzzURL(f *testing.F) {
	for _, around := range [][2]string{
		{"redis://ann:", "@localhost:6379/3"}, {"rediss://:", "@h"}, {"unix://u:", "@/tmp/r.sock?db=2"}, {"redis://u:", "@[::1]:1/0?db=1"},
		{"redis://user:", "@host:99999x/0"}, {"redis://a:", "@ b"}, {"redis://%zz", "@"}, {"http://x:", "@y"}, {"", ""}, {"\x00", "\n"},
		{"redis://h/-1?p=", ""}, {"redis:", ""}, {"redis://h#", ""}, {"redis://", ""}, {"redis://h/", ""}, {"redis://h?db=", ""},
	} {
		f.Add(around[0], around[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		e, err := parseURL("--url", before+canary+after)
		checkRefusal(t, err)
		if err != nil {
			return
		}
		check.True(t, e.addr != "" && e.db >= 0 && (e.network == "tcp" || e.network == "unix"), "%q is %+v", before+canary+after, e)
		check.True(t, !strings.Contains(e.pass, canary) || strings.Contains(e.addr, canary) || !strings.Contains(e.String()+e.title(), canary),
			"it is shown with its password: %s", e)
	})
}

// Any file is either a configuration, or refused without repeating one of its
// values, which may be a password.
func FuzzConfig(f *testing.F) {
	for _, around := range [][2]string{
		{"contexts:\n  prod: {url: 'redis://:", "@h', production: true, readonly: true, theme: dark, locks: ['a*']}\n"},
		{"contexts: [", "]"}, {"contexts:\n  a: &x {url: 1}\n  b: *x\n#", ""}, {"contexts:\n  a: {production: ", "}"}, {"a: b: ", ""}, {"\t", ""},
		{"%YAML 9", ""}, {"contexts: {a: {locks: ", "}}"}, {"contexts: {a: {url: !!int ", "}}"}, {"- ", ""}, {"&a *", ""},
	} {
		f.Add(around[0], around[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + canary + after
		_, err := ParseConfiguration("config.yaml", strings.NewReader(text))
		// The name of an unknown key may be repeated: it helps, and is not a
		// value.
		if err == nil || !strings.Contains(err.Error(), "there is no key") {
			checkRefusal(t, err)
		}
	})
}
