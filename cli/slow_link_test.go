package cli

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// shownTTL is the TTL of a row of the page with the locks, in seconds.
var shownTTL = regexp.MustCompile(`([0-9]+\.[0-9]) s  [█▏▎▍▌▋▊▉ ]* ?[●◐◆]`)

// On a slow link, the deadlines on the screen are those of the server, also if no lock
// changes. A new lock appears after a few round trips, and leaves at its deadline.
func TestTheScreenIsNotLateOnASlowLink(t *testing.T) {
	testtier.Long(t, "it measures the screen on a slow link")
	t.Parallel()
	proof := testtier.Proving()
	trips, watched, rounds, short := []time.Duration{100 * time.Millisecond}, 6*time.Second, 1, 5*time.Second
	if proof {
		trips, watched, rounds, short = []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}, 20*time.Second, 5, 2*time.Second
	}
	for _, trip := range trips {
		t.Run(trip.String(), func(t *testing.T) {
			addr := server.ForTest(t).Addr()
			rdb := clientTo(t, addr)
			keys := mixedLocks(t, rdb)[:14]
			network := netfault.New(redis.NewDialer(rdb.Options()))
			network.Delay(func() time.Duration { return trip / 2 })
			proxy := check.Must(network.Listen("tcp", addr))(t)
			t.Cleanup(func() { proxy.Close() })
			for i, key := range keys {
				check.NoError(t, rdb.PExpire(t.Context(), key, time.Duration(40+i)*time.Second).Err())
			}
			term := openTerminal(t, 140, 50, "-u", "redis://"+proxy.Addr())
			term.want(keys[0])
			worst, compared := time.Duration(0), 0
			for end := time.Now().Add(watched); time.Now().Before(end); {
				began := time.Now()
				screen := term.screen()
				for _, key := range keys {
					_, row, _ := strings.Cut(screen, " "+key+" ")
					row, _, _ = strings.Cut(row, "\n")
					shown := shownTTL.FindStringSubmatch(row)
					if shown == nil {
						continue
					}
					compared++
					left := rdb.PTTL(t.Context(), key).Val()
					seconds, _ := strconv.ParseFloat(shown[1], 64)
					worst = max(worst, (time.Duration(seconds*float64(time.Second))-left).Abs()-time.Since(began))
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Logf("%d TTLs are at most %v away from those of the server", compared, worst)
			check.True(t, (!proof || worst <= time.Second) && compared != 0, "%d TTLs are at most %v away", compared, worst)
			for range rounds {
				began := time.Now()
				send(t, addr, "SET", "lock:short", token, "PX", short.Milliseconds())
				term.want("lock:short")
				appeared := time.Since(began)
				term.wait("its end", func(screen string) bool { return !strings.Contains(screen, "lock:short") })
				left := time.Since(began) - short
				t.Logf("it appears after %v and leaves %v late", appeared, left)
				limit := 3*trip + time.Second + 200*time.Millisecond
				check.True(t, !proof || max(appeared, left) <= limit, "more than %v", limit) // the test reads the screen every 50 ms
			}
			term.quit()
		})
	}
}
