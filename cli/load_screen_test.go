package cli

import (
	"context"
	"testing"

	"locktop/internal/check"
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
	rdb := clientTo(t, child.Addr())
	check.NoError(t, rdb.Set(t.Context(), "lock:mine", "somebody", 0).Err())
	for _, flags := range [][]string{{"--load"}, nil} {
		term := openTerminal(t, 120, 40, append([]string{"-u", "redis://" + child.Addr()}, flags...)...)
		if flags == nil {
			term.want("lock:mine").press("3").want("s runs clients on it, after a question")
			keys := rdb.Keys(t.Context(), "load:*").Val()
			check.True(t, len(keys) == 0, "before the question is answered there are %q", keys)
			term.press("s").want("Run clients on this server?", "do not run").press("y").want("own server", "connections", "rate")
		} else {
			term.want("m shows ", "READ-ONLY + LOAD")
			term.press("3").want("nothing has run yet").press("s")
		}
		term.want("● running", "20 clients", "0 overlaps: mutual exclusion held")
		term.press("f").want("Inject a fault").press("c").want("dies without releasing load:", "1 dead")
		term.press("1").want("load c", "lock:mine")
		term.quit()
		keys := rdb.Keys(context.Background(), "*").Val()
		check.True(t, len(keys) == 1 && keys[0] == "lock:mine", "%q: the server is left with %q", flags, keys)
	}
}
