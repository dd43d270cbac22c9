package compat

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/metrics"
)

// No key and no name of a target breaks the page of an exporter: Prometheus' parser reads it, and
// its linter has no complaint.
func FuzzHostileNames(f *testing.F) {
	for _, seed := range []string{
		"lock:1", "a\"b\\c\nd", "\xff\xfe", "{x=\"y\"}", "\x00", "é…\u2028", "# HELP x y\n# TYPE x counter\nx 1\n",
	} {
		f.Add(seed, seed, "other")
	}
	f.Fuzz(func(t *testing.T, target, key, second string) {
		if strings.ToValidUTF8(key, "") != key || key == "" {
			key = "lock" // the command refuses it in --lock-metric
		}
		now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
		a := keyspace.Lock{Key: key, Format: "set-nx", Kind: keyspace.Mutex, Node: "a:1", Expires: now.Add(time.Minute),
			Holders: []keyspace.Holder{{ID: "token", Depth: 1, Since: now.Add(-time.Hour), Expires: now.Add(time.Minute)}}}
		b := keyspace.Lock{Key: second, Format: target, Kind: keyspace.Mutex, Node: "a:1", Holders: []keyspace.Holder{{ID: "token", Depth: 1}}}
		e := metrics.New(metrics.Options{Version: target, Locks: []string{key}, Classes: true}, metrics.Target{Name: target, Flags: second})
		e.Observe(0, metrics.Reading{
			Snapshot: keyspace.Snapshot{
				At: now, Locks: []*keyspace.Lock{&a, &b}, Complete: true,
				Nodes:  []keyspace.Node{{Server: keyspace.Server{Addr: "a:1"}, Up: true}},
				Events: []keyspace.Event{{Kind: keyspace.Released, Lock: b, Held: time.Second}},
			},
			Commands: map[string]int64{"get": 1},
		})
		var text bytes.Buffer
		check.NoError(t, e.Write(&text))
		problems, err := promlint.New(bytes.NewReader(text.Bytes())).Lint()
		check.Require(t, err == nil && len(problems) == 0, "promlint: %v %v", problems, err)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		sum := 0.0
		for _, m := range check.Must(parser.TextToMetricFamilies(&text))(t)["locktop_class_locks"].GetMetric() {
			sum += m.GetGauge().GetValue()
		}
		check.True(t, sum == 2, "%v locks by class", sum)
	})
}
