package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/lock"
)

// value returns the sum of the samples of a metric that have all of these labels, each
// as name="value".
func (e *exported) value(metric string, labels ...string) (sum float64) {
	e.t.Helper()
	for line := range strings.Lines(e.page()) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		series, number, _ := strings.Cut(rest, "} ")
		if name != metric || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		check.Require(e.t, err == nil, "%s: %v", line, err)
		sum += n
	}
	return sum
}

// promServer is a prometheus that scrapes exporters and evaluates the alerts once per
// second.
type promServer struct {
	t    *testing.T
	addr string
}

func startPrometheus(t *testing.T, exporters ...*exported) promServer {
	t.Helper()
	needPrometheus(t, "prometheus")
	rules := check.Must(filepath.Abs(rulesFile))(t)
	var targets []string
	for _, e := range exporters {
		u := check.Must(url.Parse(e.base))(t)
		targets = append(targets, strconv.Quote(u.Host))
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	write(t, config, fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: locktop
    static_configs: [{targets: [%s]}]
`, rules, strings.Join(targets, ", ")))
	const tries = 3 // another process may take the port first
	for range tries {
		p := promServer{t, "http://127.0.0.1:" + freePort(t)}
		if p.start(config, dir) {
			return p
		}
	}
	t.Fatal("prometheus does not start")
	return promServer{}
}

// start starts the process and reports whether it got ready. It ends with the test.
func (p promServer) start(config, dir string) (ready bool) {
	p.t.Helper()
	said := newLines()
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+strings.TrimPrefix(p.addr, "http://"), "--log.level=warn")
	cmd.Stdout, cmd.Stderr = said, said
	check.NoError(p.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the test looks at what it answers
	}()
	p.t.Cleanup(func() {
		if p.t.Failed() && ready {
			p.t.Logf("raised: %q; up: %v", p.raised(), p.ask("/api/v1/query", url.Values{"query": {"locktop_up or locktop_pass_complete"}}))
		}
		_ = cmd.Process.Kill()
		<-ended
		if p.t.Failed() {
			p.t.Logf("prometheus: %s", said)
		}
	})
	eventually(p.t, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		got, err := http.Get(p.addr + "/-/ready")
		if err != nil {
			return false
		}
		defer got.Body.Close()
		ready = got.StatusCode == http.StatusOK
		return ready
	})
	return ready
}

// ask returns the data of an answer of the API.
func (p promServer) ask(path string, values url.Values) any {
	p.t.Helper()
	_, text := fetch(p.t, p.addr+path+"?"+values.Encode())
	answer := decoded[any](p.t, text)
	return at(answer, "data")
}

// holds reports whether an expression has a result.
func (p promServer) holds(expr string) bool {
	p.t.Helper()
	return at(p.ask("/api/v1/query", url.Values{"query": {expr}}), "result.len") != 0
}

// raised lists the alerts whose expression has a result, also those whose time has not
// passed yet.
func (p promServer) raised() (names []string) {
	p.t.Helper()
	all, _ := at(p.ask("/api/v1/alerts", nil), "alerts").([]any)
	for _, a := range all {
		names = append(names, at(a, "labels.alertname").(string))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// since lists the alerts that were raised at any time since began.
func (p promServer) since(began time.Time) (names []string) {
	p.t.Helper()
	seconds := int(time.Since(began).Seconds()) + 1
	all, _ := at(p.ask("/api/v1/query", url.Values{"query": {fmt.Sprintf("count by (alertname) (count_over_time(ALERTS[%ds]))", seconds)}}), "result").([]any)
	for _, a := range all {
		names = append(names, at(a, "metric.alertname").(string))
	}
	slices.Sort(names)
	return names
}

// Prometheus scrapes two exporters, of a server and of a Redlock. While the locks are
// acquired and released properly, it raises no alert. Then eight failures happen, and
// each raises its alert, and no other alert is raised. At last a server does not answer.
func TestPrometheusRaisesTheAlertOfEachFailureAndNoOther(t *testing.T) {
	t.Parallel()
	needPrometheus(t, "prometheus")
	f := newFailures(t)
	f.clean()
	prom := startPrometheus(t, f.single, f.redlock)

	// An alert of locktop_up may have been raised before the first scrape.
	within(t, longestWait, func() bool { return prom.holds("sum(locktop_pass_complete) == 2") && len(prom.raised()) == 0 })
	began := time.Now()
	within(t, longestWait, func() bool { return prom.holds("min(count_over_time(locktop_up[1h])) >= 15") })
	if wrong := prom.since(began); len(wrong) > 0 || !prom.holds(`sum(increase(locktop_events_total{event="released"}[1m])) > 10`) {
		t.Fatalf("alerts without a failure, or no traffic: %q", wrong)
	}
	prom.runDashboard()

	staged := time.Now()
	f.stageAll()
	missing := []string{
		"LocktopExpiredNotReleased", "LocktopHolderGone", "LocktopNeverExpires", "LocktopOverdue", "LocktopRedlockMinority",
		"LocktopRenewedForever", "LocktopStolen", "LocktopWaitersNoHolder",
	}
	all := slices.Clone(missing)
	within(t, longestWait, func() bool {
		for _, name := range prom.raised() {
			if i := slices.Index(missing, name); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
				t.Logf("%s after %.1f s", name, time.Since(staged).Seconds())
			}
		}
		return len(missing) == 0
	})
	got := prom.since(began)
	check.True(t, slices.Equal(got, all), "raised are %q, want %q", got, all)
	f.quiet()
	check.NoError(t, f.redis.Kill())
	within(t, longestWait, func() bool { return slices.Contains(prom.raised(), "LocktopDown") })
}

// runDashboard runs all queries of the dashboard. A query that prometheus cannot run ends
// the test.
func (p promServer) runDashboard() {
	p.t.Helper()
	dashboard := decoded[any](p.t, readText(p.t, dashboardFile))
	variables := strings.NewReplacer("$target", ".*", "$format", ".*", "$__rate_interval", "1m")
	eachQuery(dashboard, func(query, _ string) {
		if !strings.HasPrefix(query, "label_values(") {
			p.ask("/api/v1/query", url.Values{"query": {variables.Replace(query)}})
		}
	})
}

// failures makes locks and what goes wrong with them.
type failures struct {
	t               *testing.T
	redis           *server.Child
	rdb             *redis.Client
	nodes           []*redis.Client // of the Redlock
	holder          *redis.Client   // the connection of a holder that will be gone
	single, redlock *exported
	stops           []func()
}

func newFailures(t *testing.T, flags ...string) *failures {
	f := &failures{t: t, redis: server.ForTest(t)}
	f.rdb = clientTo(t, f.redis.Addr())
	var nodes []string
	for range 3 {
		node := server.ForTest(t)
		f.nodes = append(f.nodes, clientTo(t, node.Addr()))
		nodes = append(nodes, "--redlock", "redis://"+node.Addr())
	}
	f.single = startReadyExport(t, append(slices.Clip(flags), "-u", "redis://"+f.redis.Addr(), "--overdue", "stock:slow:*=2s", "--record", t.TempDir())...)
	f.redlock = startReadyExport(t, slices.Concat(flags, nodes, []string{"--record", t.TempDir()})...)
	return f
}

func (f *failures) send(rdb *redis.Client, words ...any) {
	f.t.Helper()
	err := rdb.Do(f.t.Context(), words...).Err()
	check.Require(f.t, err == nil, "%v: %v", words, err)
}

// repeat calls do at each interval until quiet, or the end of the test.
func (f *failures) repeat(interval time.Duration, do func(ctx context.Context)) {
	f.stops = append(f.stops, repeat(f.t, interval, do))
}

// quiet ends what repeat has begun.
func (f *failures) quiet() {
	for _, stop := range f.stops {
		stop()
	}
}

// owned returns the value of a lock of package lock.
func owned(owner string) string { return owner + "~" + uuid.Must(uuid.NewV7()).String() }

// clean makes locks without findings, four clients that acquire and release, and the holds
// that will go wrong.
func (f *failures) clean() {
	healthy(f.t, f.rdb, 120)
	for i := range 4 {
		client := newLockClient(f.t, f.rdb, fmt.Sprintf("client-%d", i))
		f.repeat(20*time.Millisecond, func(ctx context.Context) {
			if lease, err := client.Mutex("stock:busy", lock.Options{}).Lock(ctx); err == nil {
				_ = lease.Unlock(ctx) // the test does not need it
			}
		})
	}
	token := uuid.NewString()
	for _, node := range f.nodes {
		f.send(node, "SET", "lock:orders", token, "PX", 600_000)
	}
	f.holder = namedClient(f.t, f.redis.Addr(), "batch-99")
	f.send(f.holder, "SET", "job-lock:default:export", "ADDED:"+time.Now().UTC().Format("2006-01-02T15:04:05.000Z")+"@batch-99", "PX", 600_000)
	f.send(f.rdb, "SET", "stock:victim:lock", owned("pay-1"), "PX", 600_000)
	f.send(f.rdb, "SET", "stock:renewed:lock", owned("pay-2"), "PX", 600_000)
	f.send(f.rdb, "HSET", "report:long", uuid.NewString()+":1", 1)
	f.send(f.rdb, "PEXPIRE", "report:long", 600_000)
}

// stageAll makes all failures happen.
func (f *failures) stageAll() {
	f.send(f.rdb, "SET", "lock:report:weekly", uuid.NewString())            // never expires
	f.send(f.rdb, "SET", "stock:slow:lock", owned("pay-3"), "PX", 600_000)  // overdue
	f.send(f.nodes[0], "SET", "lock:lost", uuid.NewString(), "PX", 600_000) // minority
	const waiter = "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:7"                 // waits for a free lock
	f.send(f.rdb, "ZADD", "redisson_lock_timeout:{printer:attic}", time.Now().Add(time.Hour).UnixMilli(), waiter)
	f.send(f.rdb, "RPUSH", "redisson_lock_queue:{printer:attic}", waiter)
	f.holder.Close() // gone

	f.repeat(500*time.Millisecond, func(ctx context.Context) { // stolen
		f.rdb.Do(ctx, "SET", "stock:victim:lock", owned("thief"), "XX", "KEEPTTL")
	})
	ttl := 600_000
	f.repeat(20*time.Millisecond, func(ctx context.Context) { // renewed forever
		ttl += 1000
		f.rdb.PExpire(ctx, "stock:renewed:lock", time.Duration(ttl)*time.Millisecond)
	})
	f.repeat(300*time.Millisecond, func(ctx context.Context) { // expired, and not released
		_, _ = f.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, "report:short", uuid.NewString()+":1", 1)
			p.PExpire(ctx, "report:short", 200*time.Millisecond)
			return nil
		})
	})
}
