package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// allowed are the commands that docs/operators.md lets locktop send, in the
// server's own spelling: those of the user that it advises, and the one that it
// says to add.
func allowed(t *testing.T) []string {
	t.Helper()
	names := []string{"client|no-touch"}
	for _, word := range advised(t) {
		if name, isCommand := strings.CutPrefix(word.(string), "+"); isCommand {
			names = append(names, name)
		}
	}
	return names
}

// sent are the commands that a server says it was sent since it was last told to
// forget; refused ones, too.
func sent(t *testing.T, addr string) []string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, Protocol: 2})
	defer rdb.Close()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(info) {
		if name, _, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); found {
			names = append(names, name)
		}
	}
	return names
}

// Promise P9. Whatever is looked at, and whatever is asked for without --write, a
// server with all rights to give is sent nothing but what the documentation lists.
func TestNothingIsSentThatIsNotOnThePrintedList(t *testing.T) {
	clearEnvironment(t)
	addr := server.ForTest(t).Addr()
	aLockOfEachType(t, addr)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	send(t, addr, "CONFIG", "RESETSTAT")
	for _, args := range [][]string{
		{"list"}, {"list", "--json", "--all"}, {"list", "--csv", "--stuck"}, {"list", "--lock", "some:*"},
		{"list", "-n", "all"}, {"list", "--budget", "full"},
		{"inspect", "lock:a"}, {"inspect", "orders", "--json"}, {"inspect", "nothing-there"},
		{"watch", "--for", "300ms"}, {"watch", "--json", "--for", "300ms"},
		{"doctor", "--for", "300ms"}, {"doctor", "--json", "--for", "300ms"},
		{"record", filepath.Join(t.TempDir(), "r.lockrec"), "--for", "300ms"},
		{"release", "lock:a"}, {"release", "lock:a", "--yes"}, {"release", "orders", "--yes", "--token", token},
	} {
		got := locktop(t, append(args, "-u", "redis://"+addr)...)
		if got.code == exitError || got.code == exitNoConnect {
			t.Errorf("%v ends with %d: %s", args, got.code, got.errors)
		}
	}
	list := allowed(t)
	if slices.Contains(list, "eval") || slices.Contains(list, "set") || slices.Contains(list, "del") {
		t.Fatalf("the list is no list of what only reads: %v", list)
	}
	all := sent(t, addr)
	for _, name := range []string{"scan", "type", "pexpiretime", "hscan"} {
		if !slices.Contains(all, name) {
			t.Errorf("%s was never sent: the test proves little: %v", name, all)
		}
	}
	for _, name := range all {
		if name != "config|resetstat" && !slices.Contains(list, name) {
			t.Errorf("%s was sent, and is not on the list", name)
		}
	}
}

// Promise P9, for whoever presses every key there is.
func TestTheScreenSendsNothingThatIsNotOnThePrintedList(t *testing.T) {
	clearEnvironment(t)
	addr := server.ForTest(t).Addr()
	aLockOfEachType(t, addr)
	send(t, addr, "CONFIG", "RESETSTAT")
	term := openTerminal(t, 120, 35, "-u", "redis://"+addr)
	eventually(t, func() bool { return strings.Contains(term.screen(), "lock:a") })
	for _, key := range strings.Split("x Enter y Escape Enter x y Escape d D Delete C-d Escape 2 x Enter Escape 3 Enter Space Escape 4 5 6 7 1 /", " ") {
		term.press(key)
	}
	for _, key := range []string{"Escape", "Down", "Enter", "x", "o", "Escape"} {
		term.press(key)
	}
	// What comes last is heeded only if all the rest was.
	term.quit()
	list := append(allowed(t), "config|resetstat")
	for _, name := range sent(t, addr) {
		if !slices.Contains(list, name) {
			t.Errorf("%s was sent, and is not on the list", name)
		}
	}
	if value(t, addr, "lock:a") != token {
		t.Error("a lock was broken")
	}
}
