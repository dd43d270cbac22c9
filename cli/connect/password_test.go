package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/auth"

	"locktop/internal/check"
)

// told collects the credentials that a connection gets.
type told struct {
	mu  sync.Mutex
	got []string
}

func (c *told) OnNext(now auth.Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, now.RawCredentials())
}

func (c *told) OnError(error) {}

func (c *told) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.got, " ")
}

func TestASecretIsALineOrJSON(t *testing.T) {
	for text, want := range map[string]string{
		"pw":                       ":pw",
		" p w \r\n":                ": p w ",
		`{"password":"{x"}` + "\n": ":{x",
		`{"username":"ann","password":"pw","engine":"redis","expires_at":"2999-01-31T12:00:00Z"}`: "ann:pw",
		"":                     "there is no password",
		"\n":                   "there is no password",
		"c4nary\nc4nary":       "there is more than one line",
		"{c4nary":              "it begins with { and is not JSON",
		`{"password":"c4nary"`: "it begins with { and is not JSON",
		`{"user":"c4nary"}`:    `the JSON has no "password"`,
		`{"password":"c4nary","expires_at":"c4nary"}`:               "it begins with { and is not JSON",
		`{"password":"c4nary","expires_at":"2001-01-31T12:00:00Z"}`: "the credentials expired at 2001-01-31T12:00:00Z",
		strings.Repeat("c4nary", maxSecret):                         "the password is longer than 65,536 bytes",
	} {
		c, err := parseSecret([]byte(text))
		got := c.user + ":" + c.pass
		if err != nil {
			got = err.Error()
		}
		check.True(t, strings.HasPrefix(got, want) && !strings.Contains(got, "c4nary"), "%.80q is %.80q, want %q", text, got, want)
	}
}

// Credentials that expire are asked for in time, also after errors, and as long as there is a connection.
func TestASecretIsAskedForBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), []string{}
		var failing atomic.Bool
		s := &secret{origin: "--password-command", reuse: secretReuse, listeners: make(map[auth.CredentialsListener]string)}
		s.read = func(context.Context) ([]byte, error) {
			at := time.Since(began)
			asked = append(asked, at.String())
			if failing.Load() {
				return nil, errors.New("no network")
			}
			return fmt.Appendf(nil, `{"password":"pw-%d","expires_at":%q}`, len(asked), time.Now().Add(time.Hour).Format(time.RFC3339Nano)), nil
		}
		var one, two told
		now, unsubscribe, err := userSecret{s, "ann"}.Subscribe(&one)
		check.Require(t, err == nil && now.RawCredentials() == "ann:pw-1", "%v %v", now, err)
		now, leave, err := userSecret{s, "bob"}.Subscribe(&two)
		check.True(t, err == nil && now.RawCredentials() == "bob:pw-1", "another connection at the same time asked again: %v %v", now, err)
		time.Sleep(46 * time.Minute)
		synctest.Wait()
		check.True(t, one.String() == "ann:pw-2" && two.String() == "bob:pw-2", "after three quarters of an hour: %s, %s", &one, &two)
		failing.Store(true)
		time.Sleep(55 * time.Minute) // 56 minutes since the last success
		synctest.Wait()
		failing.Store(false)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(asked); !strings.HasPrefix(one.String(), "ann:pw-2 ann:pw-") || !strings.HasPrefix(got, "[0s 45m0s 1h30m0s 1h33m45s 1h36m33.75s ") {
			t.Errorf("after errors: %s, asked at %s", &one, got)
		}
		n := len(asked)
		_ = unsubscribe()
		time.Sleep(time.Hour)
		synctest.Wait()
		check.True(t, one.String() == strings.Join(one.got[:2], " ") && len(two.got) == 3 && len(asked) == n+1,
			"a closed connection was told: %s; the other one: %s; asked at %v", &one, &two, asked)
		_ = leave()
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		check.True(t, len(asked) <= n+2, "without connections it was asked for at %v", asked)
	})
}

// A password without an expiry changes: the next connection learns it, and the others authenticate again.
func TestANewPasswordIsToldToTheOtherConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	write := func(pass string) { check.NoError(t, os.WriteFile(path, []byte(pass+"\n"), 0o600)) }
	write("old")
	s := check.Must(newSecret(source{origin: "--password-file", file: path}))(t)
	var one, two told
	now, _, err := userSecret{s, ""}.Subscribe(&one)
	check.Require(t, err == nil && now.RawCredentials() == ":old", "%v %v", now, err)
	write("new")
	now, _, err = userSecret{s, ""}.Subscribe(&two)
	check.Require(t, err == nil && now.RawCredentials() == ":new", "%v %v", now, err)
	check.True(t, one.String() == ":new" && two.String() == "", "they were told %q and %q", &one, &two)
}

func TestAPasswordCommandThatFailsIsOneLine(t *testing.T) {
	for line, want := range map[string]string{
		`sh -c 'echo c4nary; echo no credentials >&2; echo more >&2; exit 3'`: "--password-command: exit status 3: no credentials",
		`sh -c 'echo c4nary; echo bad c4nary >&2; exit 3'`:                    "--password-command: exit status 3",
		`sh -c 'printf "a\033[2J\n" >&2; exit 1'`:                             `--password-command: exit status 1: a\x1b[2J`,
		`no-such-program c4nary`:                                              `--password-command: exec: "no-such-program": executable file not found`,
		`true`:                                                                "--password-command: there is no password",
		`'`:                                                                   "--password-command is no command: a quote has no end",
		` `:                                                                   "--password-command is no command: it is empty",
	} {
		s, err := newSecret(source{origin: "--password-command", command: line})
		if err == nil {
			_, err = s.now(t.Context())
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") || strings.Contains(err.Error(), "c4nary") {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	s, err := newSecret(source{origin: "--password-command", command: "sleep 60"})
	check.NoError(t, err)
	_, err = s.now(ctx)
	check.True(t, errors.Is(err, context.Canceled), "a cancelled command ends with %v", err)
}
