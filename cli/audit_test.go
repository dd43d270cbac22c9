package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"locktop/keyspace"
)

func TestOnlyTheOwnerCanReadTheAuditLog(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for range 2 { // the second run appends
		l, err := openAudit()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Write(keyspace.AuditRecord{ID: "1", Action: keyspace.ForceRelease, Lock: keyspace.ID{Key: "a\x1b[2J\n"}, Outcome: keyspace.Intended}); err != nil {
			t.Fatal(err)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if l.Write(keyspace.AuditRecord{}) == nil {
			t.Error("a log that is closed takes another line")
		}
	}
	path := filepath.Join(os.Getenv("XDG_STATE_HOME"), "locktop", "audit.jsonl")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v", info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), text)
	}
	var got auditLine
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Key != "a\x1b[2J\n" || got.Act != keyspace.ForceRelease || got.Outcome != keyspace.Intended || strings.Contains(string(text), "\x1b") {
		t.Errorf("written is %q", lines[0])
	}
}
