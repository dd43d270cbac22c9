package cli

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

const dashboardFile = "../contrib/grafana/locktop.json"

// metric is what a scrape tells about a metric.
type metric struct {
	kind   string
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
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families := check.Must(parser.TextToMetricFamilies(strings.NewReader(text)))(t)
		for name, family := range families {
			m := metric{kind: strings.ToLower(family.GetType().String())}
			for _, l := range family.GetMetric()[0].GetLabel() {
				m.labels = append(m.labels, l.GetName())
			}
			slices.Sort(m.labels)
			all[name] = m
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
	t.Run("the table of the page lists exactly its metrics", func(t *testing.T) {
		testtier.Long(t, "it scrapes servers with every finding")
		left := maps.Clone(all)
		row := regexp.MustCompile("(?m)^\\| `(locktop_\\w+)` \\| (\\w+) \\| ([^|]*) \\|")
		for _, r := range row.FindAllStringSubmatch(readText(t, exportPage), -1) {
			name, labels := r[1], slices.Sorted(slices.Values(strings.Split(r[3], ", ")))
			if got := left[name]; got.kind != r[2] || !slices.Equal(got.labels, labels) {
				t.Errorf("%s is a %s with the labels %q, a scrape has a %s with %q", name, r[2], labels, got.kind, got.labels)
			}
			delete(left, name)
		}
		for name := range left {
			t.Errorf("%s does not list %s", exportPage, name)
		}
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

// usedBy returns the names of metrics and of labels in a query and in the templates that
// show its result.
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

// The exporter watches the server at least once per second. Between, 100 scrapes pass in
// which the server executes no command.
func TestAScrapeSendsNoCommand(t *testing.T) {
	t.Parallel()
	rdb := clientTo(t, server.ForTest(t).Addr())
	for i := range 10 {
		rdb.Set(t.Context(), fmt.Sprintf("lock:users:%d", i), uuid.NewString(), 10*time.Minute)
	}
	e := startReadyExport(t, "-u", "redis://"+rdb.Options().Addr)
	eventually(t, func() bool {
		before := callsOf(t, rdb)
		for range 100 {
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
	addr := server.ForTest(t).Addr()
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
func callsOf(t *testing.T, rdb *redis.Client) map[string]int {
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
