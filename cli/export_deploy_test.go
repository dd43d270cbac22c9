package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"locktop/internal/check"
)

const unitFile = "../contrib/systemd/locktop-export.service"

// Systemd knows all settings of the unit, and its own figure for the exposure of the
// service, of 0 to 10, is at most 1.5.
func TestTheUnitIsHardened(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on PATH: install systemd to run this test")
	}
	self := check.Must(exec.LookPath("locktop"))(t)
	unit := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	write(t, unit, strings.ReplaceAll(readText(t, unitFile), "/usr/local/bin/locktop", self))
	for _, args := range [][]string{{"verify", "--man=no", unit}, {"security", "--offline=true", "--threshold=15", unit}} {
		out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
		check.True(t, err == nil && (args[0] != "verify" || len(out) == 0), "systemd-analyze %q: %v\n%s", args, err, out)
	}
}
