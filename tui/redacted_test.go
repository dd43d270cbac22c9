package tui

import (
	"strings"
	"testing"

	"locktop/keyspace/recording"
)

// A recording without tokens has no command that could ever act.
func TestARecordingWithoutTokensOffersNoCommand(t *testing.T) {
	v := sampleServer()
	snap, _ := v.Snapshot(t.Context())
	v.locks = nil
	for _, l := range recording.NewRedactor().Redact(snap).Locks {
		v.locks = append(v.locks, *l)
	}
	w := testConfig()
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("j", "enter").want("the recording hides the token")
		if text := d.screen(); strings.Contains(text, "redis-cli") {
			t.Errorf("a command with a hidden token:\n%s", text)
		}
	})
}
