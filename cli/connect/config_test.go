package connect

import "testing"

func TestTheHintToHideAFileIsACommand(t *testing.T) {
	for path, want := range map[string]string{
		"/home/ann/config.yaml":      "chmod 600 /home/ann/config.yaml",
		"/home/$(touch pwned)/a b":   "chmod 600 '/home/$(touch pwned)/a b'",
		"/home/it's/config.yaml":     "", // its backslash would be doubled
		"/home/\x1b[2J/config.yaml":  "",
		"/home/\x00NUL/config.yaml":  "",
		"/home/newline\n/config.yml": "",
	} {
		if got := chmodHint(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
