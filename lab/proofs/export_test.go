package proofs

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
)

// exporter is a running locktop export.
type exporter struct {
	*labtest.Program
	t       *testing.T
	address string // of its metrics
}

func startExport(t *testing.T, args ...string) *exporter {
	t.Helper()
	e := &exporter{labtest.Start(t, append([]string{"export", "--web.listen-address", "127.0.0.1:0"}, args...)...), t, ""}
	labtest.Within(t, labtest.LongestWait, func() bool {
		said := regexp.MustCompile(`serving (http://\S+/metrics)`).FindStringSubmatch(e.Errors.String())
		if said != nil {
			e.address = said[1]
		}
		return said != nil
	})
	return e
}

// page returns the metrics.
func (e *exporter) page() string {
	e.t.Helper()
	resp := check.Must(http.Get(e.address))(e.t)
	defer resp.Body.Close()
	body := check.Must(io.ReadAll(resp.Body))(e.t)
	check.Require(e.t, resp.StatusCode == http.StatusOK, "%d %s", resp.StatusCode, body)
	return string(body)
}

// value returns the sum of the samples of a metric with a label.
func (e *exporter) value(metric, label string) (sum float64) {
	e.t.Helper()
	for _, sample := range regexp.MustCompile(`(?m)^`+metric+`\{(.*)\} (\S+)$`).FindAllStringSubmatch(e.page(), -1) {
		if strings.Contains(sample[1], label) {
			sum += check.Must(strconv.ParseFloat(sample[2], 64))(e.t)
		}
	}
	return sum
}

// With LOCKTOP_PROOF: 1,000,000 keys with 100,000 locks, of which 20 are acquired anew and
// 1,000 renewed per second. Without it, a hundredth.
func TestAnExportOfManyLocksIsSmallAndFast(t *testing.T) {
	testtier.Long(t, "it watches 10,000 keys for some seconds")
	t.Parallel()
	keys, locks := testtier.Size(10_000, 10_000, 1_000_000), testtier.Size(1000, 1000, 100_000)
	rdb := labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{})
	pipelined := func(n int, add func(p redis.Pipeliner, i int)) {
		t.Helper()
		for from := 0; from < n; from += 10_000 {
			p := rdb.Pipeline()
			for i := from; i < min(from+10_000, n); i++ {
				add(p, i)
			}
			check.Must(p.Exec(t.Context()))(t)
		}
	}
	key := func(i int) string { return fmt.Sprintf("lock:order:%d", i) }
	acquire := func(p redis.Pipeliner, i int) { p.Set(t.Context(), key(i), uuid.NewString(), time.Hour) }
	pipelined(keys-locks, func(p redis.Pipeliner, i int) { p.Set(t.Context(), fmt.Sprintf("cache:%d", i), i, 0) })
	pipelined(locks, acquire)

	e := startExport(t, "-u", "redis://"+servertest.AddrOf(rdb), "--classes")
	labtest.Within(t, 10*time.Minute, func() bool {
		return e.value("locktop_pass_complete", "") == 1 && e.value("locktop_locks", "") == float64(locks)
	})
	t.Logf("after the first scan of %.0f s: %s", e.value("locktop_pass_duration_seconds", ""), e.memory())
	n := e.value("locktop_class_locks", `class="lock:order:*"`)
	check.True(t, n == float64(locks), "%v locks in their class, want %d", n, locks)
	series := len(regexp.MustCompile(`(?m)^locktop_`).FindAllString(e.page(), -1))
	var took []time.Duration
	for n := range testtier.Size(30, 100, 300) {
		pipelined(locks/1000, func(p redis.Pipeliner, i int) { p.PExpire(t.Context(), key(n*locks/1000+i), time.Hour) })
		pipelined(2, func(p redis.Pipeliner, i int) {
			p.Del(t.Context(), key(n*2+i))
			acquire(p, n*2+i)
		})
		began := time.Now()
		e.page()
		took = append(took, time.Since(began))
		time.Sleep(100*time.Millisecond - time.Since(began)) // the pace of the changes
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d series; a scrape takes %v (p50), %v (p99); with changes: %s", series, took[len(took)/2], p99, e.memory())
	check.True(t, series <= 2000 && (!testtier.Proving() || p99 <= 10*time.Millisecond), "%d series, scrape p99 %v", series, p99)
}

// The seconds that clients have waited for the locks of a load since its start, by its own events, are never
// less than those of the metric. Without LOCKTOP_PROOF the load is short.
func TestTheBlockedSecondsOfAnExportAreNoMoreThanTheTruth(t *testing.T) {
	testtier.Long(t, "it watches loads for some seconds")
	t.Parallel()
	for name, args := range map[string][]string{
		"short holds":          {"--clients", "20", "--keys", "3", "--hold", "exp:50ms", "--think", "exp:50ms"},
		"long holds":           {"--clients", "20", "--keys", "3", "--hold", "exp:1s", "--think", "exp:1s"},
		"waiters that give up": {"--clients", "20", "--keys", "3", "--hold", "exp:1s", "--patience", "1500ms"},
		"fair":                 {"--kind", "fair", "--clients", "20", "--keys", "3", "--hold", "exp:200ms"},
		"readers and writers":  {"--kind", "rw", "--clients", "20", "--keys", "3", "--hold", "exp:200ms"},
		"one that polls":       {"--clients", "2", "--keys", "1", "--hold", "6s", "--wait", "{poll: 100ms}"},
		"many that poll":       {"--clients", "20", "--keys", "3", "--hold", "6s", "--wait", "{poll: 100ms}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := servertest.RedisForTest(t).Addr()
			end := loadUntil(t, addr, append(args, "--prefix", "job:")...)
			e := startExport(t, "-u", "redis://"+addr, "--classes")
			counted := func() float64 { return e.value("locktop_blocked_seconds_total", "job:") }
			labtest.Within(t, labtest.LongestWait, func() bool { return counted() > 0 })
			time.Sleep(time.Duration(testtier.Size(3, 5, 60)) * time.Second) // the span that is compared
			blocked, until := counted(), time.Now()
			var truth time.Duration
			for _, waited := range truthOf(end(), time.Time{}, until) {
				truth += waited
			}
			t.Logf("%.1f s of %.1f s: %.0f %%", blocked, truth.Seconds(), 100*blocked/truth.Seconds())
			check.True(t, blocked <= truth.Seconds(), "the metric has %.2f s, and clients waited for %.2f s", blocked, truth.Seconds())
		})
	}
}

// memory returns the resident memory of the process and its peak, where the system tells.
func (e *exporter) memory() string {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(e.Process.Pid) + "/status")
	if err != nil {
		return "memory unknown"
	}
	lines := regexp.MustCompile(`(?m)^Vm(RSS|HWM):\s+.*$`).FindAllString(string(status), -1)
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}
