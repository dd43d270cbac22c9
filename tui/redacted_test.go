package tui

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace/recording"
)

func TestARecordingWithoutTokensOffersNoCommand(t *testing.T) {
	v := sampleServer()
	snap, _ := v.Snapshot(t.Context())
	v.locks = nil
	r := writeRecording(t, true, func(t *testing.T, w *recording.Writer) { check.NoError(t, w.Add(snap)) })
	recorded := check.Must(r.At(snap.At, time.Time{}))(t)
	for _, l := range recorded.Locks {
		v.locks = append(v.locks, *l)
	}
	w := testConfig()
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("j", "enter").want("the recording hides the token")
		d.wantNot("redis-cli")
	})
}
