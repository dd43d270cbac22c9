package render

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
)

// someContention is a report with a class of each way in which the waiting is known, and one without any.
func someContention() contention.Report {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	seen, asked := keyspace.ID{Node: "a:1", Key: "order:1"}, keyspace.ID{Node: "a:1", Key: "job;1"}
	return contention.Report{
		Watched: contention.Span{From: at, Until: at.Add(21 * time.Second)}, Monitored: contention.Span{From: at.Add(time.Second), Until: at.Add(3 * time.Second)},
		Classes: []contention.Class{
			{Name: "order:*", Locks: 2, Held: 0.67, Source: holds.Seen, MostWaiting: 7, Blocked: 4.98, Waited: 10 * time.Second, Attempts: 40, Acquired: 10, Worst: "worker-8", WorstShare: 0.17,
				P50: contention.Quantile{Duration: 153 * time.Millisecond}, P99: contention.Quantile{Duration: 711 * time.Millisecond, AtLeast: true}},
			{Name: "job;*", Locks: 1, Held: 1, Source: holds.Asked, MostWaiting: 1, Blocked: 0.5, Waited: 10 * time.Second, Attempts: 9, Worst: "cron", WorstShare: 1},
			{Name: "idle:*", Locks: 3},
		},
		Blames: []contention.Blame{
			{Lock: seen, Holder: "worker-8", Source: holds.Seen, Clients: 2, Total: 10 * time.Second, Longest: 700 * time.Millisecond},
			{Lock: asked, Holder: "cron", Source: holds.Asked, Clients: 1, Total: 10 * time.Second, Longest: 10 * time.Second},
		},
		Waits: []contention.Blocked{
			{Lock: asked, Holder: "cron", Waited: 10 * time.Second},
			{Lock: seen, Holder: "worker-8", Waiter: "worker-1", Waited: 4 * time.Second},
			{Lock: seen, Holder: "worker-8", Waiter: "10.0.0.1:4711", Waited: 6 * time.Second},
		},
	}
}

func TestTheTableOfContention(t *testing.T) {
	var out strings.Builder
	check.NoError(t, Contention(&out, someContention(), false, 10, 0))
	want := `CLASS    LOCKS  HELD  WAITERS  TRIES/ACQ  BLOCKED    WORST HOLDER  WAIT P50  P99      KNOWN BY
order:*  2      67%   7        4.0        4.98 s/s   worker-8 17%  153 ms    ≥711 ms  seen
job;*    1      100%  ≥1       9/0        ≥0.50 s/s  cron 100%                        asked
idle:*   3      0%

Blocked by
HOLDER    LOCK     CLIENTS  TOTAL   LONGEST  KNOWN BY
worker-8  order:1  2        10 s  700 ms   seen
cron      job;1    ≥1       ≥10 s  ≥10 s  asked
watched for 21 s, MONITOR ran for 2.0 s of it
`
	got := out.String()
	check.True(t, squeezed(got) == squeezed(want), "it prints\n%s\nwant\n%s", got, want)
	out.Reset()
	check.NoError(t, Orders(&out, someContention(), 10, 0))
	check.NoError(t, Contention(&out, contention.Report{}, false, 10, 0))
	check.Contains(t, out.String(), "no owner was seen to acquire", "without an order it prints")
	check.Contains(t, out.String(), "\nno lock was seen\n", "without a lock it prints")
	out.Reset()
	r := someContention()
	r.Monitored, r.Classes[0].Held = contention.Span{}, math.NaN() // it was watched for no time
	check.True(t, classOf(r.Classes[0]).HeldShare == nil && *classOf(r.Classes[1]).HeldShare == 1, "the shares of the time are %+v", r.Classes)
	if err := Contention(&out, r, true, 1, 60); err != nil || !strings.Contains(out.String(), "0:order:*") || !strings.Contains(out.String(), " ? ") || strings.Contains(out.String(), "job") ||
		!strings.Contains(out.String(), "clients that only poll are seen with --monitor") {
		t.Errorf("%v: it prints\n%s", err, out.String())
	}
}

// squeezed returns a text with one blank where it has several.
func squeezed(s string) string {
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return s
}

func TestTheFoldedContentionHasALineForEachWaiter(t *testing.T) {
	var out strings.Builder
	want := "*;job,1;cron;(not_named) 10000\norder:*;order:1;worker-8;worker-1 4000\norder:*;order:1;worker-8;10.0.0.1:4711 6000\n"
	err := Folded(&out, someContention())
	check.True(t, err == nil && out.String() == want, "%v: it prints\n%s\nwant\n%s", err, out.String(), want)
}

func TestTheDocumentOfContentionSaysWhatItLeavesOut(t *testing.T) {
	d := ContentionOf(someContention(), keyspace.Snapshot{Complete: true}, 1)
	text, err := json.Marshal(d)
	if err != nil || d.ClassesOmitted != 2 || d.BlockedByOmitted != 1 || len(d.BlockedBy) != 1 || len(d.BlockedBy[0].Waiters) != 2 || *d.Classes[0].P99MS != 711 || !d.Classes[0].P99AtLeast {
		t.Errorf("%v: it is %s", err, text)
	}
}
