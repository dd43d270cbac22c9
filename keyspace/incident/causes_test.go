package incident

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/keyspace"
)

// Each cause is told by its row, and the docs have the proof of the row.
func TestTheDocsHaveTheProofOfEachCause(t *testing.T) {
	page := string(check.Must(os.ReadFile("../../docs/stuck-lock.md"))(t))
	rows := causes()
	for _, p := range keyspace.Causes() {
		row, ok := rows[Cause(p.ID)]
		check.True(t, ok || p.ID == string(Contended), "no row of %s", p.ID)
		line := fmt.Sprintf("| `%s` | %s | %s |\n", p.ID, p.Meaning, row.proof)
		check.True(t, !ok || row.says != nil && row.next != nil && strings.Contains(page, line), "docs/stuck-lock.md has no line %s", line)
	}
}
