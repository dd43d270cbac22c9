package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"locktop/internal/htmlpage"
	"locktop/internal/humanize"
)

// Suite is the outcome of the rows of a suite for one lock.
type Suite struct {
	Lock string `json:"lock"`
	Rows []Row  `json:"rows"`
}

// Row is the outcome of one row.
type Row struct {
	Name   string  `json:"row"`
	Result string  `json:"result"` // one of the constants
	Why    string  `json:"why"`
	Report *Result `json:"report,omitempty"` // of the worst run; nil: there was none
}

// Results of a [Row].
const (
	Pass      = "pass"
	Fail      = "fail"
	NotJudged = "not judged"
)

// Summary counts the rows by their results.
func (s Suite) Summary() string {
	counts, failed := map[string]int{}, ""
	for _, r := range s.Rows {
		if counts[r.Result]++; r.Result == Fail {
			failed += ", " + r.Name
		}
	}
	if failed != "" {
		failed = " (" + failed[2:] + ")"
	}
	return fmt.Sprintf("%s of %s passed, %d failed%s, %d not judged.", humanize.Count(counts[Pass]), humanize.Plural(len(s.Rows), "row"), counts[Fail], failed, counts[NotJudged])
}

// WriteText writes one line for each row. Plain must make text from the server safe for a terminal.
func (s Suite) WriteText(w io.Writer, plain func(string) string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "suite: %s\n%s\n\n", plain(s.Lock), s.Summary())
	for _, r := range s.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Name, map[string]string{Fail: "FAIL"}[r.Result]+map[string]string{Pass: Pass, NotJudged: NotJudged}[r.Result], plain(r.Why))
	}
	return t.Flush()
}

// WriteHTML writes the rows as a self-contained page, with the charts and the evidence of those that failed.
func (s Suite) WriteHTML(w io.Writer) error {
	p := page{Page: htmlpage.New("locktop load --suite: "+s.Lock, "")}
	p.Put(`<h1>%v</h1><p>%v</p><table>`, s.Lock, s.Summary())
	for _, r := range s.Rows {
		p.Put(`<tr><th>%v</th><td>%v</td><td>%v</td></tr>`, r.Name, r.Result, r.Why)
	}
	p.Put(`</table>`)
	for _, r := range s.Rows {
		if r.Result == Fail && r.Report != nil {
			p.Put(`<h2>%v</h2><p>%v</p>`, r.Name, r.Report.Scenario.Caption)
			p.verdict(r.Report.Verdict())
			p.charts(*r.Report)
			p.evidence(*r.Report)
		}
	}
	if err := p.Close(w); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
