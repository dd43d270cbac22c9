package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const unitFile = "../contrib/systemd/locktop-export.service"

// The unit starts the exporter with flags that exist.
func TestTheUnitStartsTheExporter(t *testing.T) {
	unit := readText(t, unitFile)
	_, line, found := strings.Cut(unit, "\nExecStart=/usr/local/bin/locktop ")
	if !found {
		t.Fatal("it starts another program")
	}
	line, _, _ = strings.Cut(line, "\n")
	wantFlags(t, strings.NewReplacer("${CREDENTIALS_DIRECTORY}", "/run", "${STATE_DIRECTORY}", "/var").Replace(line))
	if _, example, _ := strings.Cut(unit, "#   ExecStart=/usr/local/bin/locktop "); example == "" {
		t.Error("it has no example of another address")
	} else {
		example, _, _ = strings.Cut(example, "\n")
		wantFlags(t, strings.ReplaceAll(example, "${CREDENTIALS_DIRECTORY}", "/run"))
	}
}

// Systemd knows all settings of the unit, and its own figure for the exposure of the
// service, of 0 to 10, is at most 1.5.
func TestTheUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on PATH: install systemd to run this test")
	}
	self, err := exec.LookPath("locktop")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	write(t, unit, strings.ReplaceAll(readText(t, unitFile), "/usr/local/bin/locktop", self))
	for _, args := range [][]string{{"verify", "--man=no", unit}, {"security", "--offline=true", "--threshold=15", unit}} {
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %q: %v\n%s", args, err, out)
		}
	}
}
