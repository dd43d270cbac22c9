package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
	"locktop/internal/testtier"
)

// The Load page runs clients on a server of the user: with the flag at once,
// otherwise after a question. They leave nothing behind, and change nothing
// else.
func TestTheScreenRunsALoadOnTheServerItShows(t *testing.T) {
	testtier.Long(t, "it runs the program in a terminal, and a load")
	t.Parallel()
	child := server.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), DisableIdentity: true})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "lock:mine", "somebody", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--load"}, nil} {
		term := openTerminal(t, 120, 40, append([]string{"-u", "redis://" + child.Addr()}, flags...)...)
		if flags == nil {
			term.want("lock:mine").press("3").want("s runs clients on it, after a question")
			if keys := rdb.Keys(t.Context(), "load:*").Val(); len(keys) > 0 {
				t.Errorf("before the question is answered there are %q", keys)
			}
			term.press("s").want("Run clients on this server?", "do not run").press("y").want("own server", "connections", "rate")
		} else {
			term.want("m shows ", "READ-ONLY + LOAD")
			term.press("3").want("nothing has run yet").press("s")
		}
		term.want("● running", "20 clients", "0 overlaps: mutual exclusion held")
		term.press("f").want("Inject a fault").press("c").want("dies without releasing load:", "1 dead")
		term.press("1").want("load c", "lock:mine")
		term.quit()
		if keys := rdb.Keys(context.Background(), "*").Val(); len(keys) != 1 || keys[0] != "lock:mine" {
			t.Errorf("%q: the server is left with %q", flags, keys)
		}
	}
}

func TestTheLoadOfTheScreenIsRefusedWhereItHasNoPlace(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-u redis://10.1.2.3:6379 --load", "is on another machine"},
		{"-u redis://127.0.0.1:1 --load --production", "contradict"},
		{"-u redis://127.0.0.1:1 --load -n all", "one database"},
		{"--redlock redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3 --load", "one server"},
	} {
		var out, messages strings.Builder
		code := Run(t.Context(), strings.Fields(c.args), strings.NewReader(""), &out, &messages)
		if code != exitUsage || !strings.Contains(messages.String(), c.want) {
			t.Errorf("%s: exit code %d, %q, want %q", c.args, code, messages.String(), c.want)
		}
	}
}

// processesWith returns the processes whose command line contains a text, without those of tmux.
func processesWith(t *testing.T, text string) []string {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, text) && !strings.Contains(line, "tmux") && strings.Fields(line)[1][0] != 'Z' {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// A client of the user runs on the Load page like our own kinds, and none of its processes is
// left, whatever ends it.
func TestTheScreenRunsAClientOfTheUser(t *testing.T) {
	testtier.Long(t, "it runs the program in a terminal, and several loads")
	t.Parallel()
	child := server.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), DisableIdentity: true})
	defer rdb.Close()
	mark := fmt.Sprint(1_000_000_000 + rand.IntN(1_000_000_000))
	t.Cleanup(func() {
		for _, process := range processesWith(t, mark) { // of a failed test
			_ = exec.Command("kill", "-9", strings.Fields(process)[0]).Run()
		}
	})
	gone := func(t *testing.T, how string) {
		t.Helper()
		left := processesWith(t, mark)
		for range 600 {
			if len(left) == 0 {
				return
			}
			time.Sleep(50 * time.Millisecond)
			left = processesWith(t, mark)
		}
		t.Errorf("%s: left are %q", how, left)
	}
	ended := func(term *terminal) {
		for range 600 {
			if exec.Command("tmux", "-S", term.socket, "has-session").Run() != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("it does not end\n%s", term.screen())
	}
	open := func(command string) *terminal {
		term := openTerminal(t, 120, 40, "-u", "redis://"+child.Addr(), "--load")
		term.want("m shows ")
		return term.press(":").enter("exec " + command).press("Enter")
	}
	const running = "client locktop mutex"
	client := fmt.Sprintf("locktop load --as-client mutex --seed %s; sleep %s", mark, mark) // goes on after the end of its stdin

	term := open(client).want(running, "● running", "20 clients", "0 overlaps: mutual exclusion held", "client process")
	if n := len(processesWith(t, mark)); n < 20 {
		t.Errorf("%d processes for 20 clients", n)
	}
	term.press("f").want("SIGKILL to the process").press("c").want("dies without releasing load:", "1 dead")
	term.press("f").want("Inject a fault").press("z").want("freezes while holding load:", "1 frozen")
	term.press("n").want("scene 1 of")
	gone(t, "another scene")
	term.press(":").press("Up").press("Enter").want("client starting 200 of")
	term.press("C-c")
	ended(term)
	gone(t, "an interrupt of the start")
	term = open("sleep " + mark).want("client starting 20 of")
	term.quit()
	gone(t, "quitting while a client does not say hello")
	open(client).want(running).quit()
	gone(t, "quitting")
	if keys := rdb.Keys(context.Background(), "*").Val(); len(keys) > 0 {
		t.Errorf("the server is left with %q", keys)
	}
	term = open(client).want(running)
	if out, err := exec.Command("kill", "-9", strings.TrimSpace(term.tmux("display-message", "-p", "#{pane_pid}"))).CombinedOutput(); err != nil {
		t.Fatalf("kill: %v: %s", err, out)
	}
	ended(term)
	gone(t, "kill -9")
	term = open("no-such-client-"+mark).want("it exited: exit status 127; its stderr ends with:", "no-such-client-"+mark+": ", "nothing has run yet")
	term.quit()
}
