package connect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"locktop/internal/check"
)

// Another process does not read the context: it gets the files of TLS as flags. The line of an
// alert names the context, which has them.
func TestTheFilesOfAContextReachOtherProcesses(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home) // other systems have another directory
	t.Setenv("HOME", home)
	t.Setenv("AppData", home)
	path := check.Must(ConfigurationPath())(t)
	ca := filepath.Join(home, "ca.crt")
	text := "contexts: {prod: {url: 'rediss://10.0.0.1', cacert: '" + ca + "', cert: '" + ca + "', key: '" + ca + "', sni: redis.test, insecure: true}}"
	check.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	c := parsed(t, "--context", "prod")
	for range 2 { // export reads it twice
		check.Must(c.Context())(t)
	}
	const want = "--cacert CA --cert CA --key CA --sni redis.test --insecure"
	short := func(flags []string) string { return strings.ReplaceAll(strings.Join(flags, " "), ca, "CA") }
	args, _, err := c.Child(t.Context(), "10.0.0.1:6379", 0)
	got := short(args)
	check.True(t, err == nil && got == "-u rediss://10.0.0.1:6379 --timeout 2s "+want, "a child: %s, %v", got, err)
	got = short(c.RedisCLI())
	check.True(t, got == "--tls "+want, "redis-cli: %s", got)
	got, err = c.Line()
	check.True(t, err == nil && got == "--context prod", "an alert: %s, %v", got, err)
}

func TestTheHintToHideAFileIsACommand(t *testing.T) {
	for path, want := range map[string]string{
		"/home/ann/config.yaml":      "chmod 600 /home/ann/config.yaml",
		"/home/$(touch pwned)/a b":   "chmod 600 '/home/$(touch pwned)/a b'",
		"/home/it's/config.yaml":     "", // its backslash would be doubled
		"/home/\x1b[2J/config.yaml":  "",
		"/home/\x00NUL/config.yaml":  "",
		"/home/newline\n/config.yml": "",
	} {
		got := chmodHint(path)
		check.True(t, got == want, "%q: %q, want %q", path, got, want)
	}
}
