package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// mixedLocks loads 20 locks of at least ten formats, none of which stores when it was acquired.
func mixedLocks(t *testing.T, rdb *redis.Client) (keys []string) {
	t.Helper()
	now := rdb.Time(t.Context()).Val()
	of := make(map[string]bool)
	for _, f := range formats.All() {
		for _, s := range f.Samples {
			w := s.Want
			if len(keys) == 20 || len(w.Holders) != 1 || !w.Holders[0].Since.IsZero() || s.TTL == 0 || w.Confidence < keyspace.Likely || w.Stamped || f.Actions == nil || f.Actions.Extend == "" || of[f.Name+"/2"] {
				continue
			}
			if n, _ := rdb.Exists(t.Context(), w.Key).Result(); n > 0 {
				continue // a lock of another sample
			}
			for _, c := range formats.At(s, now).Commands {
				issue(t, rdb, c)
			}
			keys = append(keys, w.Key)
			of[f.Name+"/2"] = of[f.Name]
			of[f.Name] = true
		}
	}
	formats := 0
	for name := range of {
		if !strings.Contains(name, "/") {
			formats++
		}
	}
	check.Require(t, len(keys) >= 20 && formats >= 10, "%d locks of %d formats", len(keys), formats)
	return keys
}

// Locks that are held and renewed since before locktop has started are overdue as soon as
// locktop has seen them for longer than the limit.
func TestLocksHeldBeforeTheStartBecomeOverdue(t *testing.T) {
	testtier.Long(t, "it waits until locks are overdue")
	t.Parallel()
	addr := server.ForTest(t).Addr()
	rdb := clientTo(t, addr)
	keys := mixedLocks(t, rdb)
	repeat(t, 300*time.Millisecond, func(ctx context.Context) {
		for _, key := range keys {
			_ = rdb.PExpire(ctx, key, time.Minute).Err() // the test may end
		}
	})
	limit, observed := "2s", "3s"
	if testtier.Proving() {
		limit, observed = "10s", "11s"
	}
	flags := []string{"-u", "redis://" + addr, "--overdue", limit}
	wanted := func(from, text string) {
		t.Helper()
		for _, key := range keys {
			check.True(t, strings.Contains(text, strings.Trim(fmt.Sprintf("%q", key), `"`)), "%s: %q is not overdue:\n%s", from, key, text)
		}
	}
	term := openTerminal(t, 180, 45, flags...)
	exported := append([]string{"--record", filepath.Join(t.TempDir(), "box")}, flags...)
	e := startReadyExport(t, exported...)

	doc, _ := listedOn(t, append([]string{"--stuck", "--for", observed}, flags...)...)
	var listed strings.Builder
	atLeast := 0
	for _, l := range doc.Locks {
		if slices.ContainsFunc(l.Findings, func(f render.Finding) bool { return f.ID == "overdue" }) {
			fmt.Fprintf(&listed, "%q\n", string(l.Key))
			if l.HeldAtLeast {
				atLeast++
			}
		}
	}
	check.True(t, atLeast >= 10, "%d locks are held for an unknown time; the test needs 10", atLeast)
	wanted("list", listed.String())
	wanted("doctor", locktop(t, append([]string{"doctor", "--json", "--for", observed}, flags...)...).out)
	within(t, longestWait, func() bool { return e.value("locktop_findings", `finding="overdue"`) == float64(len(keys)) })
	term.want(fmt.Sprintf("%d findings", len(keys)), "Held for at least", "≥")
	term.quit()

	e.kill() // it loses what it knows, but not its recording
	e = startReadyExport(t, exported...)
	n := e.value("locktop_findings", `finding="overdue"`)
	check.True(t, n == float64(len(keys)), "after a restart %v locks are overdue", n)
}
