package cli

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

const dashboardFile = "../contrib/grafana/locktop.json"

// metric is what a scrape tells about a metric.
type metric struct {
	kind   string
	help   string
	labels []string // sorted
}

// scrape returns the metrics of a server with locks and of a Redlock, with all flags that add metrics, and the pages
// of both.
func scrape(t *testing.T) (all map[string]metric, pages []string) {
	t.Helper()
	f := newFailures(t, "--classes", "--lock-metric", "stock:victim:lock")
	f.clean()
	eventually(t, func() bool {
		return f.single.value("locktop_lock_held") == 1 && f.single.value("locktop_hold_seconds_count") > 0 && f.redlock.value("locktop_redlock_copies") > 0
	})
	all = map[string]metric{}
	for _, e := range []*exported{f.single, f.redlock} {
		text := e.page()
		pages = append(pages, text)
		for _, family := range regexp.MustCompile(`(?m)^# HELP (locktop_\w+) (.*)\n# TYPE \w+ (\w+)\n\w+\{?(.*)`).FindAllStringSubmatch(text, -1) {
			m := metric{kind: family[3], help: family[2]}
			for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(family[4], -1) {
				if l[1] != "le" {
					m.labels = append(m.labels, l[1])
				}
			}
			slices.Sort(m.labels)
			all[family[1]] = m
		}
	}
	return all, pages
}

// A scrape is what the page and the users of the metrics say.
func TestAScrape(t *testing.T) {
	t.Parallel()
	if !testtier.InLong() {
		needPrometheus(t, "promtool")
	}
	all, pages := scrape(t)
	t.Run("docs/metrics.md lists its metrics", func(t *testing.T) {
		testtier.Long(t, "it scrapes servers with every finding")
		var page strings.Builder
		page.WriteString("# Metrics\n\nFor those who run Prometheus. Made from a scrape; `LOCKTOP_LONG=1 go test ./cli -run AScrape -update` makes it again.\n\n" +
			"| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", name, all[name].kind, strings.Join(all[name].labels, ", "), all[name].help)
		}
		golden.Check(t, "../../docs/metrics.md", page.String())
	})
	t.Run("rules and dashboard use its metrics, and all but the version", func(t *testing.T) {
		testtier.Long(t, "it scrapes servers with every finding")
		used := map[string]bool{"locktop_build_info": true}
		uses := func(where, query string, templates ...string) {
			names, labels := usedBy(query, templates...)
			var known []string
			for _, name := range names {
				if part := regexp.MustCompile(`^(.*)_(bucket|sum|count)$`).FindStringSubmatch(name); part != nil && all[part[1]].kind == "histogram" {
					name = part[1]
					known = append(known, "le")
				}
				used[name] = true
				check.True(t, all[name].kind != "", "%s uses %s, which a scrape does not have: %s", where, name, query)
				known = append(known, all[name].labels...)
			}
			for _, m := range regexp.MustCompile(`\b(finding|severity|event|state)=~?"([^"]*)"`).FindAllStringSubmatch(query, -1) {
				for value := range strings.SplitSeq(m[2], "|") {
					check.True(t, strings.Contains(pages[0], fmt.Sprintf("%s=%q", m[1], value)),
						"%s uses the %s %s, which a scrape does not have: %s", where, m[1], value, query)
				}
			}
			for _, l := range labels {
				check.True(t, slices.Contains(known, l), "%s uses the label %s, which no metric of it has: %s", where, l, query)
			}
		}
		for _, a := range alerts(t) {
			uses(a.Alert, a.Expr, slices.Collect(maps.Values(a.Annotations))...)
		}
		dashboard := decoded[any](t, readText(t, dashboardFile))
		eachQuery(dashboard, func(query, legend string) { uses("the dashboard", query, legend) })
		for name := range all {
			check.True(t, used[name], "neither an alert nor the dashboard uses %s", name)
		}
	})
	t.Run("it passes promtool, which knows the conventions for names", func(t *testing.T) {
		needPrometheus(t, "promtool")
		for _, text := range pages {
			cmd := exec.Command("promtool", "check", "metrics")
			cmd.Stdin = strings.NewReader(text)
			out, err := cmd.CombinedOutput()
			check.True(t, err == nil && len(out) == 0, "promtool check metrics: %v\n%s", err, out)
		}
	})
}

// eachQuery calls f for each query of a dashboard, with the text that names its series.
func eachQuery(part any, f func(query, legend string)) {
	switch node := part.(type) {
	case map[string]any:
		legend, _ := node["legendFormat"].(string)
		if query, ok := node["expr"].(string); ok && !strings.HasPrefix(query, "ALERTS") {
			f(query, legend)
		}
		if query, ok := node["definition"].(string); ok {
			f(query, "")
		}
		for _, child := range node {
			eachQuery(child, f)
		}
	case []any:
		for _, child := range node {
			eachQuery(child, f)
		}
	}
}

// usedBy returns the names of metrics and of labels in a query and in the templates that show its result.
func usedBy(query string, templates ...string) (names, labels []string) {
	names = regexp.MustCompile(`\blocktop_\w+`).FindAllString(strings.Join(append(templates, query), " "), -1)
	for _, m := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`).FindAllStringSubmatch(query, -1) {
		labels = append(labels, m[1])
	}
	for _, m := range regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)|label_values\([^,]*(?:\{[^}]*\})?,\s*(\w+)\)`).FindAllStringSubmatch(query, -1) {
		labels = append(labels, regexp.MustCompile(`\w+`).FindAllString(m[1]+" "+m[2], -1)...)
	}
	for _, text := range templates {
		for _, m := range regexp.MustCompile(`\bquery \(printf "(locktop_\w+)\{(\w+)=%q\}" \$labels\.(\w+)\)[^{]*\{\{ \. \| first \| label "(\w+)"`).FindAllStringSubmatch(text, -1) {
			names, labels = append(names, m[1]), append(labels, m[2:]...)
		}
		for _, m := range regexp.MustCompile(`\{\{-?\s*(?:(?:if|with)\s+)?(?:\$labels\.)?(\w+)\b`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains([]string{"if", "else", "end", "with", "query", "printf"}, m[1]) {
				labels = append(labels, m[1])
			}
		}
	}
	return names, labels
}

// The exporter watches the server at least once per second. Between, 10 scrapes pass in
// which the server executes no command.
func TestAScrapeSendsNoCommand(t *testing.T) {
	t.Parallel()
	rdb := clientTo(t, servertest.RedisForTest(t).Addr())
	for i := range 10 {
		rdb.Set(t.Context(), fmt.Sprintf("lock:users:%d", i), uuid.NewString(), 10*time.Minute)
	}
	e := startReadyExport(t, "-u", "redis://"+servertest.AddrOf(rdb))
	eventually(t, func() bool {
		before := callsOf(t, rdb)
		for range 10 {
			n := e.value("locktop_locks")
			check.Require(t, n == 10, "there are %v locks, want 10", n)
		}
		after := callsOf(t, rdb)
		before["info"]++ // of this test
		return maps.Equal(before, after)
	})
	check.True(t, e.value("locktop_commands_total", `command="scan"`) != 0, "the exporter has sent no SCAN")
}

// The user of docs/operators.md, with the permission to list clients and with its password
// in a file, is enough for the exporter.
func TestTheAdvisedUserCanExport(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	healthy(t, rdb, 60)
	advised(t, addr)
	send(t, addr, "ACL", "SETUSER", "locktop", "+client|list")
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, "c4nary\n")
	e := startReadyExport(t, "-u", "redis://locktop@"+addr, "--password-file", password)
	scans := func() float64 { return e.value("locktop_commands_total", `command="scan"`) }
	eventually(t, func() bool { return scans() >= 3 })
	if e.value("locktop_up") != 1 || e.value("locktop_locks") != 60 || e.value("locktop_findings", `finding="no-notify-right"`) != 0 {
		t.Errorf("this user does not see everything:\n%s", e.page())
	}
	checkNothingRefused(t, addr)
}

// callsOf returns how often a server has executed each command.
func callsOf(t *testing.T, rdb server.Client) map[string]int {
	t.Helper()
	text, err := rdb.Info(t.Context(), "commandstats").Result()
	check.NoError(t, err)
	calls := map[string]int{}
	for _, m := range regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		calls[m[1]], err = strconv.Atoi(m[2])
		check.NoError(t, err)
	}
	return calls
}

// value returns the sum of the samples of a metric that have all of these labels, each as name="value".
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

// promServer is a prometheus that scrapes exporters and evaluates the alerts once per second.
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
	server := spawnCommand(p.t, exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+strings.TrimPrefix(p.addr, "http://"), "--log.level=warn"))
	p.t.Cleanup(func() {
		if p.t.Failed() && ready {
			p.t.Logf("raised: %q; up: %v", p.raised(), p.ask("/api/v1/query", url.Values{"query": {"locktop_up or locktop_pass_complete"}}))
		}
	})
	eventually(p.t, func() bool {
		select {
		case <-server.ended:
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

// raised lists the alerts whose expression has a result, also those whose time has not passed yet.
func (p promServer) raised() []string {
	return alertNames(at(p.ask("/api/v1/alerts", nil), "alerts"), "labels.alertname")
}

// since lists the alerts that were raised at any time since began.
func (p promServer) since(began time.Time) []string {
	seconds := int(time.Since(began).Seconds()) + 1
	query := fmt.Sprintf("count by (alertname) (count_over_time(ALERTS[%ds]))", seconds)
	return alertNames(at(p.ask("/api/v1/query", url.Values{"query": {query}}), "result"), "metric.alertname")
}

func alertNames(list any, path string) (names []string) {
	all, _ := list.([]any)
	for _, a := range all {
		names = append(names, at(a, path).(string))
	}
	slices.Sort(names)
	return slices.Compact(names)
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
	variables := strings.NewReplacer("$target", ".*", "$format", ".*", "$__rate_interval", "1m")
	eachQuery(decoded[any](t, readText(t, dashboardFile)), func(query, _ string) { // one that prometheus cannot run ends the test
		if !strings.HasPrefix(query, "label_values(") {
			prom.ask("/api/v1/query", url.Values{"query": {variables.Replace(query)}})
		}
	})

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

// failures makes locks and what goes wrong with them.
type failures struct {
	t               *testing.T
	redis           *server.Child
	rdb             server.Client
	nodes           []server.Client // of the Redlock
	holder          server.Client   // the connection of a holder that will be gone
	single, redlock *exported
	stops           []func()
}

func newFailures(t *testing.T, flags ...string) *failures {
	f := &failures{t: t, redis: servertest.RedisForTest(t)}
	f.rdb = clientTo(t, f.redis.Addr())
	var nodes []string
	for range 3 {
		node := servertest.RedisForTest(t)
		f.nodes = append(f.nodes, clientTo(t, node.Addr()))
		nodes = append(nodes, "--redlock", "redis://"+node.Addr())
	}
	f.single = startReadyExport(t, append(slices.Clip(flags), "-u", "redis://"+f.redis.Addr(), "--overdue", "stock:slow:*=2s", "--record", t.TempDir())...)
	f.redlock = startReadyExport(t, slices.Concat(flags, nodes, []string{"--record", t.TempDir()})...)
	return f
}

func (f *failures) send(rdb server.Client, words ...any) {
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

// clean makes locks without findings, four clients that acquire and release, and the holds that will go wrong.
func (f *failures) clean() {
	healthy(f.t, f.rdb, 120)
	for i := range 4 {
		client := newLockClient(f.t, f.rdb, fmt.Sprintf("client-%d", i))
		busy := check.Must(client.Mutex("stock:busy", lock.Options{}))(f.t)
		f.repeat(20*time.Millisecond, func(ctx context.Context) {
			if lease, err := busy.Lock(ctx); err == nil {
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
