package loadgen

import (
	"strings"
	"testing"
	"time"
)

func TestTheReportForBrowsersShowsTextAsText(t *testing.T) {
	r := Report{Scenario: Scenario{Name: `<script>alert("1 & 2")</script>`}}
	r.Metrics.Overlap.Count = 7
	r.Seconds = []Second{{Acquired: 10}, {Acquired: 40}, {Acquired: 20}}
	r.Metrics.Elapsed = 3 * time.Second
	var page strings.Builder
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<h1>&lt;script&gt;alert(&#34;1 &amp; 2&#34;)&lt;/script&gt;</h1>`,
		`<th>overlaps</th><td class="n">7</td>`,
		`Acquired per second (top: 40/s)`,
		`points="0.0,90.0 300.0,0.0 600.0,60.0 "`,
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page.String(), "<script>") || strings.Contains(page.String(), "%!") {
		t.Errorf("the page has what it must not have:\n%s", page.String())
	}
}
