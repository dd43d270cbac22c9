package incident

import (
	"fmt"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/keyspace"
)

// docs/findings.md is made from the problems, and from the proofs of the rows that tell a cause.
func TestThePageOfFindingsIsUpToDate(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Findings\n\nFor operators. Made from the tables of the program; `go test ./keyspace/incident -run Page -update` makes it again.\n" +
		"The screen and `locktop inspect` say the same, with the keys and the commands for a remedy.\n\n" +
		"| finding | severity | what it means | the remedy |\n| --- | --- | --- | --- |\n")
	places := strings.NewReplacer("{deadline}", "`--give-ttl`", "{release}", "`locktop release`", "{wake}", "`locktop inspect` shows the command",
		"{limit}", "`--overdue`", "|", `\|`, "{match}", "`--match`", "{cluster}", "`--cluster`")
	for _, p := range append(keyspace.FindingProblems(), keyspace.TwoRenewers) {
		fmt.Fprintf(&b, "| `%s` | %v | %s | %s |\n", p.ID, p.Severity, p.Meaning, places.Replace(p.Remedy))
	}
	b.WriteString("\n## Causes of incidents\n\n| cause | what happened | what the recording proves |\n| --- | --- | --- |\n")
	rows, listed := causes(), map[string]bool{}
	for _, p := range keyspace.Causes() {
		row, ok := rows[Cause(p.ID)]
		if p.ID == string(Contended) {
			row.proof = "it was held 80 % of the time, and clients waited 90 % of it" // the story of contention decides
		}
		check.True(t, ok && row.says != nil && row.next != nil || p.ID == string(Contended), "no row of %s", p.ID)
		if !listed[p.ID] {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.ID, p.Meaning, row.proof)
		}
		listed[p.ID] = true
	}
	golden.Check(t, "../../../docs/findings.md", b.String())
}
