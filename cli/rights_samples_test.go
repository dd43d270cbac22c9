package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// The recommended user sees the locks of all formats as a user with all
// permissions does, with every command that reads, and no command is refused.
// If its key patterns are limited, it sees only the locks that match, and the
// number of the others.
func TestTheAdvisedUserSeesTheLocksOfAllFormats(t *testing.T) {
	testtier.Long(t, "it writes the locks of all formats")
	addr := server.ForTest(t).Addr()
	rdb := clientTo(t, addr)
	states := loadSamples(t, rdb)
	line := advised(t, addr)
	want := listed(t, addr, "--all")
	t.Setenv("REDISCLI_AUTH", "c4nary")
	as := []string{"--user", "locktop", "-u", "redis://" + addr}

	got := listed(t, addr, "--all", "--user", "locktop")
	for _, s := range states {
		for _, e := range append(s.locks, s.possible...) {
			e.check(t, s.name, got)
		}
	}
	for key := range want {
		seen, all := outline(got[key]), outline(want[key])
		check.True(t, seen == all, "%q is %s, and this user sees %s", key, all, seen)
	}
	check.True(t, len(got) == len(want) && len(want) >= 100, "this user sees %d of %d locks", len(got), len(want))
	for _, key := range slices.Sorted(maps.Keys(want))[:testtier.Size(20, len(want), len(want))] {
		ran := locktop(t, append(append([]string{"inspect", "--all"}, as...), "--", key)...)
		check.True(t, ran.code == exitFine, "inspect %q ends with %d: %s", key, ran.code, ran.errors)
	}
	for _, args := range [][]string{{"watch", "--for", "300ms"}, {"doctor", "--for", "300ms"}} {
		if ran := locktop(t, append(args, as...)...); ran.code == exitFailure || ran.code == exitNoConnect || strings.Contains(ran.errors, "may not") {
			t.Errorf("%s ends with %d: %s", args[0], ran.code, ran.errors)
		}
	}
	checkNothingRefused(t, addr)

	var rights []string
	for _, word := range line[3:] {
		rights = append(rights, word.(string))
	}
	aUser(t, addr, "locktop", append(rights, "resetkeys", "%R~lock:*")...)
	few := listed(t, addr, "--all", "--user", "locktop")
	for key := range want {
		check.True(t, strings.HasPrefix(key, "lock:") == (few[key] != nil), "limited to lock:*, this user sees %q: %v", key, few[key] != nil)
	}
	check.True(t, len(few) >= 10, "limited to lock:*, this user sees %d locks: the test proves little", len(few))
}

// outline returns the fields of a listed lock without times.
func outline(lock any) string {
	if lock == nil {
		return "nothing"
	}
	return fmt.Sprint(at(lock, "format"), at(lock, "confidence"), at(lock, "kind"), at(lock, "state"), at(lock, "holders.len"), at(lock, "waiter_count"), at(lock, "fence"))
}
