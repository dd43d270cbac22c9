package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"locktop/internal/htmlpage"
	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
)

// MarshalJSON returns the report as a JSON document. docs/json.md explains it.
func (r Result) MarshalJSON() ([]byte, error) { return json.Marshal(r.document()) }

// jsonReport is the JSON form of a report. All times are in milliseconds.
type jsonReport struct {
	Name      string             `json:"name"`
	Lock      string             `json:"lock"`
	Seed      uint64             `json:"seed"`
	Began     string             `json:"began"`
	Elapsed   float64            `json:"elapsed_ms"`
	Scenario  string             `json:"scenario"` // in the file format
	Clients   int                `json:"client_count"`
	Conns     int                `json:"connection_count"`
	Keys      int                `json:"key_count"`
	Figures   loadgen.Figures    `json:"figures"`
	Explained []oracle.Explained `json:"explained"`
	Faults    []jsonFault        `json:"faults"`
	Evidence  []jsonEvidence     `json:"violations"` // the first of each kind
	Seconds   []jsonSecond       `json:"seconds"`
	Verdict   jsonVerdict        `json:"verdict"`
	Witness   *jsonWitness       `json:"witness,omitempty"`
	Agents    []jsonAgent        `json:"agents,omitempty"`
	Baseline  map[string]any     `json:"baseline,omitempty"`
	LastError string             `json:"last_error,omitempty"`
	Unclean   string             `json:"unclean,omitempty"`
}

type jsonAgent struct {
	Number  int             `json:"number"`
	Name    string          `json:"name"`
	Clock   float64         `json:"clock_behind_ms"`
	Lost    bool            `json:"unreachable"`
	Clients int             `json:"client_count"`
	Figures loadgen.Figures `json:"figures"`
}

type jsonWitness struct {
	witness.Counts
	Unseen int64   `json:"unseen_count"`
	P50    float64 `json:"entry_p50_ms"`
	P99    float64 `json:"entry_p99_ms"`
	Error  string  `json:"error,omitempty"`
}

type jsonFault struct {
	Fault  string  `json:"fault"` // in the file format
	Kind   string  `json:"kind"`
	At     float64 `json:"at_ms"`
	Struck int     `json:"struck_count"`
	Why    string  `json:"why,omitempty"`
}

type jsonEvidence struct {
	Violation oracle.Violation `json:"violation"`
	Key       string           `json:"key"`
	At        float64          `json:"at_ms"`
	Length    float64          `json:"length_ms"`
	First     *jsonSide        `json:"first,omitempty"`
	Others    []*jsonSide      `json:"others,omitempty"`
	Second    *jsonSide        `json:"second,omitempty"`
	Cause     string           `json:"cause,omitempty"`
}

type jsonSide struct {
	Owner    string  `json:"owner"`
	Token    string  `json:"token,omitempty"`
	Fence    int64   `json:"fence,omitempty"`
	Reader   bool    `json:"reader,omitempty"`
	From     float64 `json:"from_ms"`
	To       float64 `json:"until_ms"`
	Inside   bool    `json:"inside,omitempty"` // still inside at To
	Deadline float64 `json:"deadline_ms"`
}

type jsonSecond struct {
	Acquired int64   `json:"acquired_count"`
	P50      float64 `json:"wait_p50_ms"`
	P99      float64 `json:"wait_p99_ms"`
}

type jsonVerdict struct {
	Safe     bool       `json:"safe"`
	Expected bool       `json:"expected"`
	Text     string     `json:"text"`
	Missed   []string   `json:"missed"`
	Gaps     []string   `json:"gaps"`
	Proof    *jsonProof `json:"proof,omitempty"` // absent: nothing is proved
}

// jsonProof is a proof that has a result.
type jsonProof struct {
	Holds        int64  `json:"hold_count"`
	Unknown      int64  `json:"unknown_count"` // part of Holds: a fault may have ended them, and nothing is proved of them
	Linearizable bool   `json:"linearizable"`
	Text         string `json:"text"`
}

func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

func (r Result) document() jsonReport {
	m, v := r.Metrics, r.Verdict()
	doc := jsonReport{
		Name: name(r.Scenario), Lock: r.Lock(), Seed: r.Scenario.Seed,
		Began: m.Began.UTC().Format("2006-01-02T15:04:05.000Z"), Elapsed: ms(m.Elapsed),
		Scenario: string(r.Scenario.Marshal()),
		Clients:  r.Scenario.Clients, Conns: min(r.Scenario.Conns, r.Scenario.Clients), Keys: r.Scenario.Keys.N,
		Figures: m.Figures(), Explained: append([]oracle.Explained{}, m.Violations.Explained...),
		Faults: []jsonFault{}, Evidence: []jsonEvidence{}, Seconds: []jsonSecond{},
		Verdict:   jsonVerdict{Safe: v.Safe, Expected: v.Expected, Text: v.Text(), Missed: append([]string{}, v.Missed...), Gaps: append([]string{}, v.Gaps...)},
		LastError: m.LastErr, Unclean: r.Unclean,
	}
	if p := r.proof(v); p != nil && (p.Known || !p.Sound) {
		doc.Verdict.Proof = &jsonProof{p.Holds, p.Unknown, p.Sound, p.String()}
	}
	for _, a := range r.Agents {
		doc.Agents = append(doc.Agents, jsonAgent{a.Number, a.Name, ms(a.Clock), a.Lost, a.Clients, a.Metrics.Figures()})
	}
	if r.Baseline != nil {
		doc.Baseline = loadgen.NestFigures(r.Baseline.changes(doc.Figures), func(c change, scale float64) any {
			in := func(v float64) float64 { return loadgen.InJSON(v * scale) }
			return change{in(c.Median), in(c.Least), in(c.Most), in(c.Now), c.Beyond}
		})
	}
	if w := r.Witness; w != nil {
		doc.Witness = &jsonWitness{Counts: w.Counts, Unseen: w.Unseen, P50: ms(w.P50), P99: ms(w.P99)}
		doc.Witness.Examples = append([]oracle.Crossing{}, w.Examples...)
		if w.Err != nil {
			doc.Witness.Error = w.Err.Error()
		}
	}
	for _, f := range m.Faults {
		doc.Faults = append(doc.Faults, jsonFault{loadgen.YAML(f.Fault), string(f.Fault.Kind), ms(f.Fault.At), f.Struck, f.Why})
	}
	for _, e := range m.Violations.Evidence {
		evidence := jsonEvidence{
			Violation: e.Violation, Key: e.Key, At: ms(e.At.Sub(m.Began)), Length: ms(e.Length),
			First: sideJSON(e.First, m.Began), Second: sideJSON(e.Second, m.Began), Cause: e.Cause,
		}
		for _, other := range e.Others {
			evidence.Others = append(evidence.Others, sideJSON(other, m.Began))
		}
		doc.Evidence = append(doc.Evidence, evidence)
	}
	for _, s := range r.Seconds {
		doc.Seconds = append(doc.Seconds, jsonSecond{s.Acquired, ms(s.Wait.P50), ms(s.Wait.P99)})
	}
	return doc
}

func sideJSON(s oracle.Side, began time.Time) *jsonSide {
	if s.Client == 0 {
		return nil
	}
	return &jsonSide{
		oracle.ClientLabel(s.Client), s.Token, s.Fence, s.Reader,
		ms(s.From.Sub(began)), ms(s.To.Sub(began)), s.Inside, ms(s.Deadline.Sub(began)),
	}
}

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
