package inspect

import (
	"fmt"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// onServerInfo compares what the server reports about itself with the last report.
func (w *Watcher) onServerInfo(s keyspace.Server, now time.Time) {
	const rounding = 2 * time.Second // clock and uptime are in whole seconds
	was, passed := w.server, now.Sub(w.serverAt)
	w.server, w.serverAt = s, now
	switch {
	case was.RunID == "" || s.RunID == "":
	case was.RunID == s.RunID && was.Role == "master" && s.Role == "slave":
		w.serverNotice = &keyspace.Notice{Kind: keyspace.ServerFailover, Text: "the server is a replica now"}
	case was.RunID == s.RunID:
	case s.Port == was.Port && s.Uptime < passed+rounding:
		w.serverNotice = &keyspace.Notice{Kind: keyspace.ServerRestarted, Text: "it was started again"}
	default:
		w.serverNotice = &keyspace.Notice{Kind: keyspace.ServerFailover, Text: fmt.Sprintf("another server has taken its place, which is up for %s", humanize.Duration(s.Uptime))}
	}
}

// onError records a failed cycle.
func (w *Watcher) onError(err error) {
	w.pass, w.complete, w.missedEvents, w.nextScan = nil, false, true, time.Time{}
	w.clients.seenConnected = nil // the server may have been replaced
	if w.failures == 0 {
		w.addNotice(keyspace.ServerLost, err.Error())
	}
	pause := min(minRetry<<min(w.failures, 10), maxRetry)
	w.failures++
	w.retryAt = time.Now().Add(pause)
}

// onSuccess records a successful cycle.
func (w *Watcher) onSuccess() {
	switch {
	case w.failures > 0 && w.serverNotice != nil:
		w.addNotice(keyspace.ServerBack, w.serverNotice.Text)
	case w.failures > 0:
		w.addNotice(keyspace.ServerBack, "")
	case w.serverNotice != nil:
		w.addNotice(w.serverNotice.Kind, w.serverNotice.Text)
	}
	w.failures, w.missedEvents, w.serverNotice = 0, false, nil
	w.updateMode()
	was := w.deniedBefore
	w.deniedBefore = len(w.denied)
	switch {
	case was == 0 && w.deniedBefore > 0:
		w.addNotice(keyspace.RightsChanged, "known locks may not be read any more; they are shown as they were")
	case was > 0 && w.deniedBefore == 0:
		w.addNotice(keyspace.RightsChanged, "all known locks may be read again")
	}
}

// updateMode reports a lasting change of the watch mode.
func (w *Watcher) updateMode() {
	now, mode := time.Now(), w.tracking.mode()
	switch {
	case mode == w.mode:
		w.modeAt = now
	case w.mode == "" || now.Sub(w.modeAt) > modeGrace:
		if w.mode == keyspace.Push || w.degraded {
			w.addNotice(keyspace.WatchModeChanged, "changes are learnt of by "+string(mode)+" now")
			w.degraded = mode != keyspace.Push
		}
		w.mode, w.modeAt = mode, now
	}
}

// addNotice adds a notice unless it repeats the last one.
func (w *Watcher) addNotice(kind keyspace.NoticeKind, text string) {
	n := keyspace.Notice{At: time.Now(), Kind: kind, Node: w.scanner.node, Text: text}
	if last := len(w.notices) - 1; last >= 0 && w.notices[last].Kind == kind && w.notices[last].Text == text {
		return
	}
	w.notices = append(w.notices, n)
}

// syncClock measures the offset of the server's clock. A reported time is always late,
// so the largest offset is the best.
func (w *Watcher) syncClock(began time.Time) {
	offset := time.Until(w.reader.conn.now)
	if offset < w.clockOffset && w.clockOffset-offset < time.Since(began)+time.Second && w.clockOffset != 0 {
		return
	}
	w.clockOffset = offset
}

// serverNow returns the estimated time of the server.
func (w *Watcher) serverNow() time.Time { return time.Now().Add(w.clockOffset) }

// status returns how changes are detected.
func (w *Watcher) status() keyspace.WatchStatus {
	follow := keyspace.WatchStatus{Mode: w.tracking.mode(), Lag: w.lag.value(), Blind: w.tracking.limitations(w.reader.formats)}
	if follow.Mode == keyspace.Polling {
		follow.Lag = pollEvery
	}
	follow.Blind = append(follow.Blind, w.clients.limitations(w.reader.conn.denied.has(cmdClient))...)
	if follow.Mode == keyspace.Push && w.complete {
		late := (passEvery + w.passTime).Round(100 * time.Millisecond)
		follow.Blind = append(follow.Blind, fmt.Sprintf("holds shorter than %s may not be seen under a name that begins like no lock of before: only a pass over all keys finds it", humanize.Duration(late)))
	}
	if n := len(w.denied); n > 0 {
		follow.Blind = append(follow.Blind, fmt.Sprintf("%d known locks may not be read by this user any more", n))
	}
	return follow
}
