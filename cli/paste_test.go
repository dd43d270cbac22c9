package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/shell"
	"locktop/internal/testtier"
)

// hostileKeys are names of locks that have an effect in a shell if they are not
// quoted, that a shell cannot pass on, or that a terminal would interpret.
var hostileKeys = []string{
	"lock:a'$(touch pwned)'b", "lock:`touch pwned`", `lock:App\Jobs\X`, `lock:"; touch pwned; "`, "-lock", "--write", "lock: two  words ", "lock:!!", "lock:%s%n", "lock:=ls",
	"\x1b[2J", "\x1b]0;title\a", "\x1b]52;c;ZXZpbA==\x1b\\", "\x1b]8;;http://evil\x1b\\x", "\x1bP+q\x1b\\", "\x1b[6n", "\x1b[8m",
	"\x9b2J", "\u009b2J", "\u0085", "lock:evil\rlock:good", "a\bb", "\a", "\x00", "a\nfake row", "a\n", "\t", "\x7f", "\x0e", "\v\f",
	"\u202egnp.exe", "\u2066\u2069", "\u200b", "\ufeff", "\u00ad", "\U000e0041", "\ufe0f", "\u3164", "\u2800", "\u2028\u2029",
	"\xff\xfe", "\xed\xa0\x80", "\xf0\x9f", "e" + strings.Repeat("\u0301", 50), "👩\u200d👧", "🇩🇪", "\ue000", "\uffff", "ก็", "각",
}

// printedLines returns the command lines that inspect prints for a key. The text and the JSON must agree.
func printedLines(t *testing.T, key string, flags ...string) (release, redisCLI string) {
	t.Helper()
	args := slices.Concat([]string{"inspect"}, flags, keyArguments(key))
	if strings.Contains(key, "\x00") {
		args = append(args, "--json")
	} else {
		args = slices.Concat([]string{"inspect", "--json"}, flags, []string{"--", key})
	}
	j := documentIn[jsonInspection](t, locktop(t, args...))
	shown := locktop(t, slices.Concat([]string{"inspect"}, flags, keyArguments(key))...)
	for _, line := range []string{j.ReleaseCommand, j.RedisCommand} {
		check.True(t, line != "" && strings.Contains(shown.out, line), "%q: %q is not in\n%s", key, line, shown.out)
		check.False(t, strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }),
			"%q: %q is not printable ASCII", key, line)
	}
	return j.ReleaseCommand, j.RedisCommand
}

// printedLine returns the line of inspect for locktop, with --yes, or for redis-cli.
func printedLine(t *testing.T, program, key string, flags ...string) string {
	t.Helper()
	release, redisCLI := printedLines(t, key, flags...)
	if program == "redis-cli" {
		return redisCLI
	}
	return strings.Replace(release, " --write", " --write --yes", 1)
}

// Whatever the key is and however the servers are reached, both command lines
// that inspect prints release that lock, and nothing else.
func TestTheLinesThatInspectPrintsWorkInAShell(t *testing.T) {
	long(t, "it starts shells")
	onEachTopology(t, func(t *testing.T, s topology) {
		keys := []string{"lock:a'$(touch pwned)'b", `lock:App\Jobs\X`, "lock:a\x00b", "-lock\x1b"}
		if len(s.servers) == 1 {
			keys = append(keys, hostileKeys...)
		}
		for _, key := range keys {
			for _, way := range []string{"locktop", "redis-cli"} {
				if s.redlock() {
					s.sendAll(t, "SET", key, token, "PX", 600_000)
				} else {
					check.NoError(t, s.stranger.Set(t.Context(), key, token, 10*time.Minute).Err())
				}
				pasted(t, printedLine(t, way, key, s.flags...))
				check.True(t, s.stranger.Exists(t.Context(), key).Val() == 0, "%q is there yet", key)
				for _, addr := range s.servers {
					check.True(t, !s.redlock() || value(t, addr, key) == "", "%q is there yet, at %s", key, addr)
				}
			}
		}
	})
}

// redlock reports whether each server has a copy of a lock.
func (s topology) redlock() bool { return len(s.flags) > 0 && s.flags[0] == "--redlock" }

// The command line that inspect prints connects to the same server and database, as the same user and with the same
// security, however these were given.
func TestTheLinesThatInspectPrintsLeadToTheSameServer(t *testing.T) {
	testtier.Long(t, "it runs 32 printed lines in a shell")
	folder := socketDir(t)
	socket := filepath.Join(folder, "it's a socket")
	addr := servertest.RedisForTest(t, "--unixsocket", socket).Addr()
	aUser(t, addr, "o'neil", "on", ">"+canary, "~*", "&*", "+@all")
	host, port, _ := strings.Cut(addr, ":")
	secret := filepath.Join(folder, "it's a secret")
	write(t, secret, `{"username":"o'neil","password":"`+canary+`"}`)
	prints, ok := shell.Line("cat", secret)
	check.Require(t, ok, "no command")
	configureIn(t, folder, 0o600, "contexts:", "  \"c's\": {url: 'redis://o%27neil:"+canaryInURLs+"@"+addr+"/2'}")
	for name, c := range map[string]struct {
		db    int
		env   []string
		flags []string
		asks  bool
	}{
		"url":               {0, nil, []string{"-u", "redis://" + addr}, false},
		"database in url":   {3, nil, []string{"-u", "redis://" + addr + "/3"}, false},
		"database":          {3, nil, []string{"-u", "redis://" + addr, "-n", "3"}, false},
		"database 0":        {0, nil, []string{"-u", "redis://" + addr + "/3", "-n", "0"}, false},
		"all databases":     {5, nil, []string{"-u", "redis://" + addr, "-n", "all"}, false},
		"host":              {1, nil, []string{"-H", host, "-p", port, "-n", "1", "--timeout", "3s"}, false},
		"socket":            {4, nil, []string{"-s", socket, "-n", "4"}, false},
		"environment":       {2, []string{"REDIS_URL=redis://" + addr + "/2"}, nil, false},
		"user and variable": {0, []string{"REDISCLI_AUTH=" + canary}, []string{"-u", "redis://" + addr, "--user", "o'neil"}, false},
		"user in url":       {0, nil, []string{"-u", "redis://o%27neil:" + canaryInURLs + "@" + addr}, true},
		"command":           {3, nil, []string{"-u", "redis://" + addr + "/3", "--password-command", prints}, false},
		"file":              {0, nil, []string{"-u", "redis://" + addr, "--password-file", secret}, false},
		"context":           {2, []string{"XDG_CONFIG_HOME=" + folder}, []string{"--context", "c's"}, false},
		"context, all":      {6, []string{"XDG_CONFIG_HOME=" + folder}, []string{"--context", "c's", "-n", "all"}, false},
		"redlock":           {7, nil, []string{"--redlock", "redis://o%27neil:" + canaryInURLs + "@" + addr + "/7"}, true},
		"redlock, all":      {7, nil, []string{"--redlock", "redis://" + addr, "-n", "all"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range c.env {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			rdb := clientWith(t, addr, server.ClientOptions{DB: c.db})
			const key = "lock:it's"
			for _, way := range []string{"locktop", "redis-cli"} {
				check.NoError(t, rdb.Set(t.Context(), key, token, 0).Err())
				line := printedLine(t, way, key, c.flags...)
				check.False(t, strings.Contains(line, "c4nary"), "it has the password: %s", line)
				if asks := strings.Contains(line, "--askpass"); way == "locktop" && asks != c.asks {
					t.Errorf("it asks for the password: %v: %s", asks, line)
				} else if asks {
					line = "echo '" + canary + "' | " + line
				}
				pasted(t, line, c.env...)
				check.True(t, rdb.Exists(t.Context(), key).Val() == 0, "it is there yet: %s", line)
			}
		})
	}
}

func TestAKeyIsTakenInBase64(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token)
	for _, b64 := range []string{"bG9jazph", "bG9jazph=="} {
		got := locktop(t, "inspect", "-u", "redis://"+addr, "--key-b64", b64)
		check.True(t, got.code == exitFine && strings.HasPrefix(got.out, "lock:a\n"), "%s: %+v", b64, got)
	}
}

// pasted runs a line in a POSIX shell that finds locktop and redis-cli, with
// additional environment variables, and returns the output.
func pasted(t *testing.T, line string, env ...string) string {
	t.Helper()
	for _, name := range []string{"sh", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			check.Require(t, os.Getenv(servertest.RequireRedis) == "", "%v", err)
			t.Skipf("%v: install redis-server, which brings it (apt-get install redis-server, brew install redis), to run this test", err)
		}
	}
	run := exec.Command("sh")
	run.Dir = t.TempDir()
	run.Stdin = strings.NewReader(line + "\n") // it may be longer than an argument
	run.Env = append([]string{"PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + t.TempDir()}, env...)
	out, err := run.CombinedOutput()
	check.Require(t, err == nil, "%s\n%v: %s", line, err, out)
	made, err := os.ReadDir(run.Dir)
	check.Require(t, err == nil && len(made) == 0, "%s\nmakes %v, %v", line, made, err)
	return strings.TrimSpace(string(out))
}
