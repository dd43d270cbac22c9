package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// A screen keeps its settings in the state directory; with --no-state it neither reads nor writes
// them, and a damaged file is replaced.
func TestTheSettingsOfTheScreenAreInTheStateDirectory(t *testing.T) {
	testtier.Long(t, "it starts the screen several times")
	t.Parallel()
	addr := aLock(t)
	state := t.TempDir()
	file := filepath.Join(state, "locktop", "screen.json")
	program, err := executable()
	check.NoError(t, err)
	open := func(flags ...string) *terminal {
		return openTerminalFor(t, 80, 24, append([]string{"env", "XDG_STATE_HOME=" + state, program, "-u", "redis://" + addr}, flags...)...)
	}
	open("--no-state").want("lock:a").press("6").want("TIME").quit()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Fatalf("--no-state: %v", err)
	}
	open().want("lock:a").press("6").want("TIME").quit()
	text, err := os.ReadFile(file)
	check.Require(t, err == nil && string(text) == `{"page":"events","sort":"severity"}`+"\n", "%s, %v", text, err)
	open().want("TIME", "WHO").quit()
	write(t, file, `{"page":`)
	open().want("the settings of the last session are ignored: ", "lock:a").quit()
	text, err = os.ReadFile(file)
	check.True(t, err == nil && strings.Contains(string(text), `"page":"locks"`), "%s, %v", text, err)
}
