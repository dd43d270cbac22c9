package keyspace

import (
	"fmt"
	"time"

	"locktop/humanize"
)

// meet notes what the server says of itself.
func (w *Watcher) meet(s Server, now time.Time) {
	const rounding = 2 * time.Second // its clock and its start are in whole seconds
	was, passed := w.server, now.Sub(w.met)
	w.server, w.met = s, now
	switch {
	case was.RunID == "" || s.RunID == "":
	case was.RunID == s.RunID && was.Role == "master" && s.Role == "slave":
		w.news = &Notice{Kind: ServerFailover, Text: "the server is a replica now"}
	case was.RunID == s.RunID:
	case s.Port == was.Port && s.Uptime < passed+rounding:
		w.news = &Notice{Kind: ServerRestarted, Text: "it was started again"}
	default:
		w.news = &Notice{Kind: ServerFailover, Text: fmt.Sprintf("another server has taken its place, which is up for %s", humanize.Duration(s.Uptime))}
	}
}

// failed books a look that failed.
func (w *Watcher) failed(err error) {
	w.pass, w.complete, w.blind, w.restsTo = nil, false, true, time.Time{}
	w.attendance.came = nil // it may be another server by now
	if w.failures == 0 {
		w.notice(ServerLost, err.Error())
	}
	pause := min(retryFirst<<min(w.failures, 10), retryLast)
	w.failures++
	w.retryAt = time.Now().Add(pause)
}

// succeeded books a look that went well.
func (w *Watcher) succeeded() {
	switch {
	case w.failures > 0 && w.news != nil:
		w.notice(ServerBack, w.news.Text)
	case w.failures > 0:
		w.notice(ServerBack, "")
	case w.news != nil:
		w.notice(w.news.Kind, w.news.Text)
	}
	w.failures, w.blind, w.news = 0, false, nil
	w.modes()
	was := w.hidden
	w.hidden = len(w.denied)
	switch {
	case was == 0 && w.hidden > 0:
		w.notice(RightsChanged, "known locks may not be read any more; they are shown as they were")
	case was > 0 && w.hidden == 0:
		w.notice(RightsChanged, "all known locks may be read again")
	}
}

// modes tells when changes are learnt of in another way than before, and that
// lasts.
func (w *Watcher) modes() {
	now, mode := time.Now(), w.track.mode()
	switch {
	case mode == w.mode:
		w.modeAt = now
	case w.mode == "" || now.Sub(w.modeAt) > modeLasts:
		if w.mode == Push || w.fell {
			w.notice(WatchModeChanged, "changes are learnt of by "+string(mode)+" now")
			w.fell = mode != Push
		}
		w.mode, w.modeAt = mode, now
	}
}

// notice books something that happened to the server, or to our view of it.
func (w *Watcher) notice(kind NoticeKind, text string) {
	n := Notice{At: time.Now(), Kind: kind, Node: w.scanner.node, Text: text}
	if last := len(w.notices) - 1; last >= 0 && w.notices[last].Kind == kind && w.notices[last].Text == text {
		return
	}
	w.notices = append(w.notices, n)
}

// clock compares the server's clock with ours. A reading is old by the time it
// comes: the one that puts the server ahead most is the best.
func (w *Watcher) clock(began time.Time) {
	offset := time.Until(w.reader.now)
	if offset < w.offset && w.offset-offset < time.Since(began)+time.Second && w.offset != 0 {
		return
	}
	w.offset = offset
}

// serverNow is what the server's clock says, as far as we know.
func (w *Watcher) serverNow() time.Time { return time.Now().Add(w.offset) }

// following says how the locks are followed.
func (w *Watcher) following() WatchStatus {
	follow := WatchStatus{Mode: w.track.mode(), Lag: w.lag.of(), Blind: w.track.blind(w.reader.formats)}
	if follow.Mode == Polling {
		follow.Lag = pollEvery
	}
	follow.Blind = append(follow.Blind, w.attendance.blind(w.reader.refused.has(rolling))...)
	if follow.Mode == Push && w.complete {
		late := (walkEvery + w.passed).Round(100 * time.Millisecond)
		follow.Blind = append(follow.Blind, fmt.Sprintf("holds shorter than %s may not be seen under a name that begins like no lock of before: only a pass over all keys finds it", humanize.Duration(late)))
	}
	if n := len(w.denied); n > 0 {
		follow.Blind = append(follow.Blind, fmt.Sprintf("%d known locks may not be read by this user any more", n))
	}
	return follow
}
