package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

// allowed returns the commands that docs/operators.md allows locktop to send,
// as the server spells them: those of the recommended user.
func allowed(t *testing.T, addr string) []string {
	t.Helper()
	var names []string
	for _, word := range advised(t, addr) {
		if name, isCommand := strings.CutPrefix(word.(string), "+"); isCommand {
			names = append(names, name)
		}
	}
	for _, writes := range []string{"eval", "set", "del", "publish"} {
		check.Require(t, !slices.Contains(names, writes), "the list is no list of what only reads: %v", names)
	}
	return names
}

// allowedOfSentinels returns the commands that the page allows locktop to send
// to a Sentinel.
func allowedOfSentinels(t *testing.T) []string {
	t.Helper()
	for line := range strings.Lines(readText(t, "../docs/operators.md")) {
		if strings.HasPrefix(line, "+") && strings.Contains(line, "+sentinel|") {
			return strings.Split(strings.TrimSpace(line[1:]), " +")
		}
	}
	t.Fatal("it has no list for Sentinels")
	return nil
}

// checkSent checks the commands that the servers were sent since the last call
// of forget. optional are those that the documentation names for some purposes only.
func checkSent(t *testing.T, s topology, optional ...string) {
	t.Helper()
	all := s.sent(t) // before the user is created
	list := append(allowed(t, s.servers[0]), optional...)
	deadline := "pexpiretime"
	if !knows(t, s.servers[0], deadline) {
		deadline = "pttl"
	}
	expected := []string{"scan", "type", deadline, "hscan"}
	if s.moving {
		expected = append(expected, "asking")
	}
	for _, name := range expected {
		check.True(t, slices.Contains(all, name), "%s was never sent: the test proves little: %v", name, all)
	}
	for _, name := range all {
		// Redis 6 does not distinguish subcommands. The refusals to the
		// recommended user show them.
		listed := slices.ContainsFunc(list, func(l string) bool { return l == name || strings.HasPrefix(l, name+"|") })
		check.True(t, name == "config|resetstat" || name == "config" || listed, "%s was sent, and is not on the list", name)
	}
	if len(s.sentinels) == 0 {
		return
	}
	list, all = allowedOfSentinels(t), nil
	for _, sentinel := range s.sentinels {
		all = append(all, sentinel.noted()...)
	}
	check.True(t, slices.Contains(all, "sentinel|get-master-addr-by-name"), "the Sentinels were not asked: the test proves little: %v", all)
	for _, name := range all {
		check.True(t, slices.Contains(list, name), "a Sentinel was sent %s, which is not on the list", name)
	}
}

// looks returns the ways to read, and those that need --write and are refused
// without it.
func looks(t *testing.T, s topology) [][]string {
	all := [][]string{
		{"list"}, {"list", "--json", "--all"}, {"list", "--csv", "--stuck"}, {"list", "--lock", "some:*"},
		{"list", "-n", "all"}, {"list", "--budget", "full"},
		{"inspect", "lock:a"}, {"inspect", "orders", "--json"}, {"inspect", "nothing-there"},
		{"watch", "--for", "100ms"}, {"watch", "--json", "--for", "100ms"},
		{"doctor", "--for", "100ms"}, {"doctor", "--json", "--for", "100ms"},
		{"record", filepath.Join(t.TempDir(), "r.lockrec"), "--for", "100ms"},
		{"release", "lock:a"}, {"release", "lock:a", "--yes"}, {"release", "orders", "--yes", "--token", token},
		{"release", "lock:a", "--yes", "--give-ttl", "1m"}, {"release", "lock:a", "--dry-run"},
	}
	if len(s.sentinels) > 0 {
		all = append(all, []string{"list", "--prefer-replica"}, []string{"watch", "--prefer-replica", "--for", "100ms"})
	}
	return all
}

// lookAt reads in every way.
func lookAt(t *testing.T, s topology, as ...string) {
	t.Helper()
	for _, args := range looks(t, s) {
		got := locktop(t, slices.Concat(args, s.flags, as)...)
		check.True(t, got.code != exitFailure && got.code != exitNoConnect, "%v ends with %d: %s", args, got.code, got.errors)
	}
}

// checkNothingRefused checks that a server has refused no command.
func checkNothingRefused(t *testing.T, addr string) {
	t.Helper()
	all := check.Must(clientTo(t, addr).ACLLog(t.Context(), 100).Result())(t)
	for _, r := range all {
		t.Errorf("%s has refused %s to %s", addr, r.Object, r.Username)
	}
}

// pressEverything starts the screen and presses every key.
func pressEverything(t *testing.T, s topology) {
	term := openTerminal(t, 120, 35, s.flags...)
	eventually(t, func() bool { return strings.Contains(term.screen(), "lock:a") })
	for _, key := range strings.Split("x Enter y Escape Enter x y Escape d D Delete C-d Escape 2 x Enter Escape 3 Enter Space Escape 4 5 6 7 1 /", " ") {
		term.press(key)
	}
	for _, key := range []string{"Escape", "Down", "Enter", "x", "o", "Escape"} {
		term.press(key)
	}
	term.quit() // the screen handles the last key after all others
}

// Promise P9. Whatever locktop reads, whatever key is pressed, and whatever is
// requested without --write: servers with all permissions, and their Sentinels,
// receive only commands that the documentation lists, and no command is refused
// to the recommended user.
func TestNothingIsSentThatIsNotOnThePrintedList(t *testing.T) {
	t.Parallel()
	onEachTopology(t, func(t *testing.T, s topology) {
		t.Run("commands", func(t *testing.T) {
			s.forget(t)
			lookAt(t, s)
			checkSent(t, s)
		})
		t.Run("screen", func(t *testing.T) {
			s.forget(t)
			pressEverything(t, s)
			checkSent(t, s, "client|list") // by the page of a lock
		})
		t.Run("advised user", func(t *testing.T) {
			for _, addr := range s.servers {
				advised(t, addr)
			}
			lookAt(t, s, "--user", "locktop", "-a", "c4nary")
			for _, addr := range s.servers {
				checkNothingRefused(t, addr)
			}
		})
		got := s.stranger.Get(t.Context(), "lock:a").Val()
		check.True(t, got == token, "the lock is %q by now", got)
	})
}
