package tui

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/recording"
)

// fakePlayer is a player whose time the test sets.
type fakePlayer struct {
	reader  *recording.Reader
	playing PlaybackState
	shown   time.Time
}

func (p *fakePlayer) Pause(on bool)          { p.playing.Paused = on }
func (p *fakePlayer) Seek(to time.Time)      { p.playing.At, p.shown = to, time.Time{} }
func (p *fakePlayer) SetSpeed(f float64)     { p.playing.Speed = f }
func (p *fakePlayer) Playing() PlaybackState { return p.playing }

func (p *fakePlayer) Snapshot(context.Context) (keyspace.Snapshot, error) {
	snap, err := p.reader.At(p.playing.At, p.shown)
	p.shown = p.playing.At
	return snap, err
}

// recorded returns a recording of some seconds of the office.
func recorded(t *testing.T) *recording.Reader {
	t.Helper()
	return writeRecording(t, false, func(t *testing.T, w *recording.Writer) {
		play := sampleServer()
		drive(t, Config{Source: sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
			snap, err := play.Snapshot(ctx)
			if err := w.Add(snap); err != nil {
				t.Error(err)
			}
			return snap, err
		})}, func(d *driver) { busyDay(d, play) })
	})
}

// writeRecording records to a file, and opens it.
func writeRecording(t *testing.T, redact bool, record func(t *testing.T, w *recording.Writer)) *recording.Reader {
	t.Helper()
	name := filepath.Join(t.TempDir(), "a.lockrec")
	f := check.Must(os.Create(name))(t)
	w := recording.NewWriter(f, redact)
	record(t, w)
	check.NoError(t, errors.Join(w.Close(), f.Close()))
	r := check.Must(recording.Open(name))(t)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// busyDay acquires and releases locks for half a minute.
func busyDay(d *driver, v *fakeServer) {
	for i := range 10 {
		v.locks = append(sampleServer().locks[:8-i%3:8-i%3], mutex("lock:turn", "worker-"+humanize.Count(i), time.Duration(4*i)*time.Second))
		d.wait(3 * time.Second)
	}
}

func TestAReplayShowsTheFramesOfTheLiveRun(t *testing.T) {
	r := recorded(t)
	frames := func(w Config, between func(d *driver)) []string {
		var all []string
		drive(t, w, func(d *driver) {
			for range 4 {
				between(d)
				for _, page := range []string{"1", "2", "4", "5", "6"} {
					all = append(all, d.press(page).app.View())
				}
			}
		})
		return all
	}
	play := sampleServer()
	live := frames(Config{Source: play, Title: "here"}, func(d *driver) { busyDay(d, play) })
	last := time.Time{}
	again := frames(Config{Title: "here", Source: sourceFunc(func(context.Context) (keyspace.Snapshot, error) {
		snap, err := r.At(time.Now(), last)
		last = time.Now()
		return snap, err
	})}, func(d *driver) { d.wait(30 * time.Second) })
	for i := range live[:5] { // for the length of the recording
		check.True(t, live[i] == again[i], "frame %d was\n%s\n\nand is now\n%s", i, live[i], again[i])
	}
}

func TestTheKeysOfTimeDriveThePlayer(t *testing.T) {
	r := recorded(t)
	first, final := r.Span()
	p := &fakePlayer{reader: r, playing: PlaybackState{At: first.Add(20 * time.Second), First: first, Last: final, Speed: 1}}
	w := Config{Source: p, Player: p, Title: "office.lockrec"}
	drive(t, w, func(d *driver) {
		d.want("REPLAY", "▶ 00:20 / 00:30", "worker-6").press(" ").want("‖ 00:20").press(" ").want("▶ 00:20")
		d.press("x").want("a recording cannot be changed")
		d.press("<", "<", "<").wait(tickInterval).want("▶ 00:05", "worker-1").wantNot("worker-6")
		d.press(">").wait(tickInterval).want("▶ 00:10", "worker-3")
		d.press("6").want("worker-3").wantNot("worker-6").press("1").press("F").wait(tickInterval).want("worker-9")
		d.press("+", "+").want("4×").press("-").want("2×")
		d.press(":").enter("at 00:00:03").press("enter").wait(tickInterval).want("worker-0", "▶ 00:0")
		d.press(":").enter("at -18s").press("enter").wait(tickInterval).want("worker-3")
		d.press(":").enter("at 12:00").press("enter").want("at: 1999-12-31 12:00:00 UTC is not in the recording")
		d.press(":").enter("speed 8").press("enter").want("8×")
		p.playing.GapFrom, p.playing.GapUntil = first, first.Add(time.Minute)
		d.wait(tickInterval).want("nothing was recorded from 00:00:00 to 00:01:00: this is the state before")
		p.playing.GapFrom = time.Time{}
		d.wait(tickInterval).wantNot("nothing was recorded")
		p.playing.Damage = "damaged at byte 7"
		d.wait(tickInterval).want("REPLAY, damaged")
	})
	drive(t, testConfig(), func(d *driver) { d.press(":").enter("speed 2").press("enter").want("this is live") })
}

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
