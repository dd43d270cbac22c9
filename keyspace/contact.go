package keyspace

import (
	"fmt"
	"time"

	"locktop/humanize"
)

// meet notes what the server says of itself.
func (f *Follower) meet(s Server, now time.Time) {
	const rounding = 2 * time.Second // its clock and its start are in whole seconds
	was, passed := f.server, now.Sub(f.met)
	f.server, f.met = s, now
	switch {
	case was.RunID == "" || s.RunID == "":
	case was.RunID == s.RunID && was.Role == "master" && s.Role == "slave":
		f.news = &Notice{Kind: ServerFailover, Text: "the server is a replica now"}
	case was.RunID == s.RunID:
	case s.Port == was.Port && s.Uptime < passed+rounding:
		f.news = &Notice{Kind: ServerRestarted, Text: "it was started again"}
	default:
		f.news = &Notice{Kind: ServerFailover, Text: fmt.Sprintf("another server has taken its place, which is up for %s", humanize.Duration(s.Uptime))}
	}
}

// failed books a look that failed.
func (f *Follower) failed(err error) {
	f.pass, f.complete, f.blind, f.restsTo = nil, false, true, time.Time{}
	f.attendance.came = nil // it may be another server by now
	if f.failures == 0 {
		f.notice(ServerLost, err.Error())
	}
	pause := min(retryFirst<<min(f.failures, 10), retryLast)
	f.failures++
	f.retryAt = time.Now().Add(pause)
}

// succeeded books a look that went well.
func (f *Follower) succeeded() {
	switch {
	case f.failures > 0 && f.news != nil:
		f.notice(ServerBack, f.news.Text)
	case f.failures > 0:
		f.notice(ServerBack, "")
	case f.news != nil:
		f.notice(f.news.Kind, f.news.Text)
	}
	f.failures, f.blind, f.news = 0, false, nil
	f.modes()
	was := f.hidden
	f.hidden = len(f.denied)
	switch {
	case was == 0 && f.hidden > 0:
		f.notice(RightsChanged, "known locks may not be read any more; they are shown as they were")
	case was > 0 && f.hidden == 0:
		f.notice(RightsChanged, "all known locks may be read again")
	}
}

// modes tells when changes are learnt of in another way than before, and that
// lasts.
func (f *Follower) modes() {
	now, mode := time.Now(), f.track.mode()
	switch {
	case mode == f.mode:
		f.modeAt = now
	case f.mode == "" || now.Sub(f.modeAt) > modeLasts:
		if f.mode == Push || f.fell {
			f.notice(FollowChanged, "changes are learnt of by "+string(mode)+" now")
			f.fell = mode != Push
		}
		f.mode, f.modeAt = mode, now
	}
}

// notice books something that happened to the server, or to our view of it.
func (f *Follower) notice(kind NoticeKind, text string) {
	n := Notice{At: time.Now(), Kind: kind, Node: f.scanner.node, Text: text}
	if last := len(f.notices) - 1; last >= 0 && f.notices[last].Kind == kind && f.notices[last].Text == text {
		return
	}
	f.notices = append(f.notices, n)
}

// clock compares the server's clock with ours. A reading is old by the time it
// comes: the one that puts the server ahead most is the best.
func (f *Follower) clock(began time.Time) {
	offset := time.Until(f.reader.now)
	if offset < f.offset && f.offset-offset < time.Since(began)+time.Second && f.offset != 0 {
		return
	}
	f.offset = offset
}

// serverNow is what the server's clock says, as far as we know.
func (f *Follower) serverNow() time.Time { return time.Now().Add(f.offset) }

// following says how the locks are followed.
func (f *Follower) following() Follow {
	follow := Follow{Mode: f.track.mode(), Lag: f.lag.of(), Blind: f.track.blind(f.reader.formats)}
	if follow.Mode == Polling {
		follow.Lag = pollEvery
	}
	follow.Blind = append(follow.Blind, f.attendance.blind(f.reader.refused.has(rolling))...)
	if follow.Mode == Push && f.complete {
		late := (walkEvery + f.passed).Round(100 * time.Millisecond)
		follow.Blind = append(follow.Blind, fmt.Sprintf("holds shorter than %s may not be seen under a name that begins like no lock of before: only a pass over all keys finds it", humanize.Duration(late)))
	}
	if n := len(f.denied); n > 0 {
		follow.Blind = append(follow.Blind, fmt.Sprintf("%d known locks may not be read by this user any more", n))
	}
	return follow
}
