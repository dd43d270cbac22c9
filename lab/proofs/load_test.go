package proofs

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
)

// The share of the time in which a report says that a key was locked is that of the server, within 2 %: PTTL is
// asked beside the load. A lock of a dead or frozen client is locked until its lease ends. The report knows only what its
// clients do: that another program deletes a key, or a client the key of another, is not in it.
func TestTheLockedTimeOfAReportIsThatOfTheServer(t *testing.T) {
	testtier.Long(t, "it runs loads of some seconds")
	for name, scenario := range map[string]string{
		"contention":               "{lock: {kind: mutex}, clients: 3, hold: 400ms, think: 50ms, duration: 6s}",
		"one client with pauses":   "{lock: {kind: mutex}, clients: 1, hold: 200ms, think: 300ms, duration: 6s}",
		"a holder crashes":         "{lock: {kind: mutex, ttl: 3s}, clients: 2, hold: 100ms, think: 300ms, faults: [{at: 1s, fault: crash, for: 1s}], duration: 6s}",
		"a holder freezes":         "{lock: {kind: mutex, ttl: 1s}, clients: 2, hold: 100ms, think: 300ms, faults: [{at: 1s, fault: freeze, for: 2s}], duration: 6s}",
		"a lock with a count":      "{lock: {kind: reentrant, ttl: 1s}, clients: 2, hold: 300ms, think: 500ms, duration: 6s}",
		"a holder that only waits": "{lock: {kind: mutex, ttl: 1s, renew: off}, clients: 1, hold: 1500ms, think: 500ms, duration: 6s}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of its time
			addr := servertest.RedisForTest(t).Addr()
			rdb := labtest.Client(t, addr, server.ClientOptions{})
			file := filepath.Join(t.TempDir(), "scenario.yaml")
			check.NoError(t, os.WriteFile(file, []byte(scenario), 0o600))
			ctx, stop := context.WithCancel(t.Context())
			var locked time.Duration
			var asking sync.WaitGroup
			asking.Go(func() {
				was, at := false, time.Now()
				for ctx.Err() == nil {
					began := time.Now()
					is := rdb.PTTL(ctx, "job:1").Val() >= 0
					now := began.Add(time.Since(began) / 2)
					if is && was {
						locked += now.Sub(at)
					} else if is != was {
						locked += now.Sub(at) / 2
					}
					was, at = is, now
					time.Sleep(time.Millisecond) // without it, this takes a CPU from what it measures
				}
			})
			report := labtest.Decoded[struct {
				ElapsedMS float64 `json:"elapsed_ms"`
				Figures   struct {
					Utilisation float64 `json:"utilisation"`
				} `json:"figures"`
			}](t, labtest.Locktop(t, "load", file, "-u", "redis://"+addr, "--prefix", "job:", "--keys", "1", "--json").Out)
			stop()
			asking.Wait()
			share := locked.Seconds() * 1000 / report.ElapsedMS
			t.Logf("the report says %.1f %%, the server %.1f %%", 100*report.Figures.Utilisation, 100*share)
			check.True(t, share > 0 && report.Figures.Utilisation-share <= 0.02 && share-report.Figures.Utilisation <= 0.02,
				"the report says %.3f, and the server had the key for %.3f", report.Figures.Utilisation, share)
		})
	}
}
