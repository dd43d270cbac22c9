package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// This file checks a load independently. It uses only the events of the load generator: it reads
// the commands of the servers with MONITOR and derives the holds from them.

// grant is a hold as a server saw it.
type grant struct {
	token      string
	from, to   time.Time
	lasting    bool
	overlapped bool
	expires    time.Time // zero means never
	alone      bool      // expires by itself, not with its key
	unsure     bool      // another one may have got the key
}

// monitored derives the holds of the locks on one server from the output of MONITOR.
type monitored struct {
	conn  net.Conn
	ended chan struct{}

	mu     sync.Mutex
	grants map[string][]*grant // by key, in order
}

// lockKey matches the key of a lock, but not its companion keys.
var lockKey = regexp.MustCompile(`^load:\{[0-9a-f]+\}:[0-9]+$`)

// monitor starts MONITOR on a server.
func monitor(t *testing.T, addr string) *monitored {
	t.Helper()
	conn := check.Must(net.Dial("tcp", addr))(t)
	m := &monitored{conn: conn, ended: make(chan struct{}), grants: map[string][]*grant{}}
	check.Must(io.WriteString(conn, "MONITOR\r\n"))(t)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	check.Require(t, lines.Scan() && lines.Text() == "+OK", "MONITOR: %s", lines.Text())
	go func() {
		defer close(m.ended)
		for lines.Scan() {
			m.hear(lines.Text())
		}
	}()
	return m
}

// stop reads all output of the server and closes the connection.
func (m *monitored) stop(t *testing.T, addr string) {
	t.Helper()
	check.NoError(t, servertest.ClientForTest(t, addr, nil).Echo(t.Context(), "the end").Err())
	_ = m.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	<-m.ended
	_ = m.conn.Close()
}

// hear reads a line: +1700000000.123456 [0 lua] "SET" "key" "value".
func (m *monitored) hear(line string) {
	at, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " [")
	_, rest, _ = strings.Cut(rest, "] ")
	var words []string
	for rest != "" {
		word, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return
		}
		rest = strings.TrimPrefix(rest[len(word):], " ")
		word, _ = strconv.Unquote(word)
		words = append(words, word)
	}
	if len(words) < 2 || !lockKey.MatchString(words[1]) {
		return
	}
	seconds, micros, _ := strings.Cut(at, ".")
	s, _ := strconv.ParseInt(seconds, 10, 64)
	us, _ := strconv.ParseInt(micros, 10, 64)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.do(time.Unix(s, us*1000), strings.ToUpper(words[0]), words[1], words[2:])
}

// do applies a command to the holds of a lock.
func (m *monitored) do(at time.Time, command, key string, args []string) {
	m.lapse(key, at)
	switch command {
	case "PEXPIRE":
		m.lives(key, args[0], at)
	case "SET":
		px := slices.IndexFunc(args, func(a string) bool { return strings.EqualFold(a, "PX") })
		switch nx := slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "NX") }); {
		case nx && px > 0 && m.unclear(key, at):
			ms, _ := strconv.Atoi(args[px+1])
			m.grants[key] = append(m.grants[key], &grant{
				token: args[0], from: at, lasting: true, overlapped: true, unsure: true, alone: true, expires: at.Add(time.Duration(ms) * time.Millisecond),
			})
		case !nx || m.free(key):
			m.begin(key, args[0], at)
			if px > 0 {
				m.lives(key, args[px+1], at)
			}
		}
	case "SETNX":
		if m.free(key) {
			m.begin(key, "", at)
		}
	case "DEL":
		m.end(key, "", at)
	case "HSET":
		for i := 0; i+1 < len(args); i += 2 {
			field, value := args[i], args[i+1]
			reader, reads := strings.CutPrefix(field, "r:")
			switch {
			case field == "w":
				m.begin(key, value[strings.LastIndex(value, ":")+1:], at)
			case reads:
				m.join(key, reader, at)
			case strings.HasPrefix(field, "client-"):
				m.begin(key, field, at)
			}
		}
	case "ZADD": // a permit of a semaphore, with its deadline or the time of its acquire
		score, token := args[0], args[1]
		m.join(key, token, at)
		if ms, err := strconv.ParseInt(score, 10, 64); err == nil && time.UnixMilli(ms).After(at.Add(slack)) {
			m.livesAlone(key, token, time.UnixMilli(ms))
		}
	case "ZREM":
		for _, token := range args {
			m.end(key, token, at)
		}
	case "HDEL":
		for _, field := range args {
			if reader, reads := strings.CutPrefix(field, "r:"); reads {
				m.end(key, reader, at)
			}
			if field == "w" {
				for _, g := range m.grants[key] {
					if g.lasting && !g.overlapped {
						g.to, g.lasting = at, false
					}
				}
			}
		}
	}
}

// lives records the TTL of a key, in milliseconds.
func (m *monitored) lives(key, ms string, at time.Time) {
	n, _ := strconv.Atoi(ms)
	for _, g := range m.grants[key] {
		if g.lasting && !g.alone {
			g.expires = at.Add(time.Duration(n) * time.Millisecond)
		}
	}
}

// livesAlone records the deadline of one hold.
func (m *monitored) livesAlone(key, token string, deadline time.Time) {
	for _, g := range m.grants[key] {
		if g.lasting && g.token == token {
			g.expires, g.alone = deadline, true
		}
	}
}

// lapse ends the holds that expired before a time. No command reports these.
func (m *monitored) lapse(key string, at time.Time) {
	for _, g := range m.grants[key] {
		if g.lasting && !g.expires.IsZero() && g.expires.Before(at) {
			g.to, g.lasting = g.expires, false
		}
	}
}

func (m *monitored) free(key string) bool {
	return !slices.ContainsFunc(m.grants[key], func(g *grant) bool { return g.lasting })
}

// unclear reports whether a lock is about at the end of a TTL, which the server may count from some
// ms earlier or later. Then it is not known which attempt gets it, until it is removed.
func (m *monitored) unclear(key string, at time.Time) (some bool) {
	for _, g := range m.grants[key] {
		ends := !g.expires.IsZero() && g.expires.Sub(at).Abs() <= slack
		switch {
		case g.lasting && !g.unsure && !ends:
			return false
		case g.lasting, ends && g.to.Equal(g.expires):
			some = true
		}
	}
	return some
}

// begin records that a token holds a lock alone. A hand-over takes it from another token.
func (m *monitored) begin(key, token string, at time.Time) {
	if i := slices.IndexFunc(m.grants[key], func(g *grant) bool { return g.lasting && g.token == token && token != "" }); i >= 0 {
		return // reentered, or renewed
	}
	m.end(key, "", at)
	m.grants[key] = append(m.grants[key], &grant{token: token, from: at, lasting: true})
}

// join records that a token holds a lock together with others.
func (m *monitored) join(key, token string, at time.Time) {
	for _, g := range m.grants[key] {
		if g.lasting && g.token == token {
			return
		}
	}
	m.grants[key] = append(m.grants[key], &grant{token: token, from: at, lasting: true, overlapped: true})
}

// end records that a token no longer holds a lock, or that no token does.
func (m *monitored) end(key, token string, at time.Time) {
	for _, g := range m.grants[key] {
		if g.lasting && (token == "" || g.token == token) {
			g.to, g.lasting = at, false
		}
	}
}

// slack is the maximum delay of the clock that a server caches.
const slack = 5 * time.Millisecond

// holds returns the grant of a token that covers a time.
func (m *monitored) holds(key, token string, from, to time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.grants[key], func(g *grant) bool {
		return (token == "" || g.token == token) && !g.from.After(from.Add(slack)) && (g.lasting || !g.to.Before(to.Add(-slack)))
	})
}

// granted lists the grants of a token.
func (m *monitored) granted(key, token string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, g := range m.grants[key] {
		if g.token == token {
			all = append(all, fmt.Sprintf("from %s to %s, lasting: %v", g.from.Format("05.000000"), g.to.Format("05.000000"), g.lasting))
		}
	}
	return strings.Join(all, "; ")
}

// count returns the number of grants, without and with those that are not sure.
func (m *monitored) count() (sure, all int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, grants := range m.grants {
		for _, g := range grants {
			if all++; !g.unsure {
				sure++
			}
		}
	}
	return sure, all
}

// stay is a hold as its client saw it.
type stay struct {
	key, token   string
	shared       bool
	from, to     time.Time
	deadline     time.Time // of the lease
	notified, at time.Time // when the holder learned that the lease has ended; when the hold was finished
}

// leased returns the end of the lease, or of the time inside if that is earlier.
func (s stay) leased() time.Time {
	if s.deadline.Before(s.to) {
		return s.deadline
	}
	return s.to
}

func TestMonitorAgreesWithTheReportOfEveryKind(t *testing.T) {
	testtier.Long(t, "it runs a load of every kind beside MONITOR")
	for _, kind := range loadgen.Kinds() {
		if kind == loadgen.Nested { // it deadlocks
			continue
		}
		t.Run(strings.ReplaceAll(string(kind), "/", "-"), func(t *testing.T) {
			n := 1
			if kind.Quorum() { // not beside others: a client takes a node that does not answer within 10 ms for one that is down
				n = 5
			} else {
				t.Parallel()
			}
			set := servertest.IndependentForTest(t, n)
			on := loadgen.Servers{Power: set}
			var monitors []*monitored
			for _, child := range set.Nodes() {
				on.Nodes = append(on.Nodes, servertest.ClientForTest(t, child.Addr(), nil))
				monitors = append(monitors, monitor(t, child.Addr()))
			}
			on.Redis = on.Nodes[0]
			s := loadgen.Scenario{
				Lock: loadgen.Lock{Kind: kind, TTL: 2 * time.Second}, Keys: loadgen.Keys{N: 2}, Clients: 12,
				Hold: loadgen.Exp(3 * time.Millisecond), Think: loadgen.Exp(3 * time.Millisecond), Duration: 2 * time.Second,
			}
			if kind.Sound() { // one holder outlives its lease
				s.Lock.TTL, s.Lock.Renew.Off = 500*time.Millisecond, true
				s.Faults = []loadgen.Fault{{At: 300 * time.Millisecond, Kind: loadgen.Freeze, For: 900 * time.Millisecond}}
			}
			switch kind {
			case loadgen.RW, "classic/two-key-rw", "classic/stamp-rw":
				s.Reads = 0.6
			case loadgen.Reentrant:
				s.Depth = 2
			case loadgen.Redlock: // an attempt takes longer; the frozen client should be a holder
				s.Hold = loadgen.Exp(10 * time.Millisecond)
			}
			run := check.Must(loadgen.New(on, s))(t)
			var mu sync.Mutex
			began := map[string]loadgen.Event{} // by key and client
			var stays []stay
			count := 0
			run.Listen(func(e loadgen.Event) {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range loadgen.EachKey([]loadgen.Event{e}) {
					switch e.Kind {
					case loadgen.Acquired:
						began[e.Key+e.Owner()] = e
					case loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Failed:
						a, holds := began[e.Key+e.Owner()]
						if !holds {
							continue // a failed attempt
						}
						delete(began, e.Key+e.Owner())
						stays = append(stays, stay{a.Key, a.Token, a.Shared, a.At, a.At.Add(e.Took), e.Deadline, e.Told, e.At})
					case loadgen.EventKind(oracle.Overlap):
						count++
					}
				}
			})
			check.NoError(t, run.Start())
			<-run.Done()
			check.NoError(t, run.Close())
			for i, w := range monitors {
				w.stop(t, set.Nodes()[i].Addr())
			}
			m := run.Metrics()
			perHold := int64(max(1, run.Scenario().Lock.KeysPerHold)) // keys
			held := m.Acquired * perHold
			check.True(t, int64(len(stays)) == held && m.Acquired >= 50, "the report has holds of %d keys, the events %d", held, len(stays))
			limit := s.Lock.Limit()
			work := overlapping(stays, limit, func(s stay) time.Time { return s.to })
			leases := overlapping(stays, limit, stay.leased)
			// When a client leaves a lock that does not exclude it, another one may read the clock
			// before and enter after it: this counts for each key of the two.
			differ := func(a, b int64) int64 { return max(a, b) - min(a, b) }
			boundary := perHold
			if kind.Sound() {
				boundary = 0 // a lease ends before the next one begins
			}
			if differ(work, m.Violations.WorkOverlap.Count) > perHold || differ(leases, m.Violations.Overlap.Count) > boundary ||
				int64(count) != m.Violations.Overlap.Count {
				t.Errorf("the report has %d overlaps of work and %d of leases, the events show %d and %d, and tell of %d",
					m.Violations.WorkOverlap.Count, m.Violations.Overlap.Count, work, leases, count)
			}
			outlived := 0
			for _, h := range stays {
				if h.deadline.Before(h.to) {
					outlived++
				}
				check.Equal(t, h.clocks(kind.Sound()), "", "%s had %s from %s", h.token, h.key, h.from.Format("05.000000"))
			}
			check.True(t, !kind.Sound() || outlived != 0, "no holder outlived its lease")
			if kind == "classic/two-key-rw" || kind == "classic/stamp-rw" || kind == "classic/getset" || kind == "classic/counted" || kind == "classic/exists-set" {
				return // their state is not one key with one holder
			}
			for _, h := range stays {
				votes := 0
				for _, w := range monitors {
					if w.holds(h.key, h.token, h.from, h.leased()) {
						votes++
					}
				}
				if votes <= n/2 {
					t.Errorf("%s had %s from %s to %s: %d of %d servers say so", h.token, h.key, h.from.Format("05.000000"), h.to.Format("05.000000"), votes, n)
					for i, w := range monitors {
						t.Logf("server %d granted it %s", i+1, w.granted(h.key, h.token))
					}
				}
			}
			// Some locks are granted to clients that are cancelled at the end.
			if sure, all := monitors[0].count(); n == 1 && (all < held || sure > held+int64(s.Clients)*held/m.Acquired) {
				t.Errorf("the report has holds of %d keys, the server granted %d, or up to %d", held, sure, all)
			}
		})
	}
}

// clocks returns what is wrong with the times of a hold, or "".
func (s stay) clocks(tells bool) string {
	switch {
	case s.deadline.Before(s.from):
		return "its lease was over before it began"
	case s.notified.IsZero() && tells && s.deadline.Before(s.to):
		return "its lease was over, and its holder was not notified"
	case s.notified.IsZero():
	case s.notified.Before(s.deadline):
		return "its holder was notified that the lease was over before it was"
	case s.notified.After(s.at):
		return "its holder was notified after the end of the hold"
	}
	return ""
}

// overlapping counts the holds that began during as many other holds as the limit, which
// exclude them.
func overlapping(all []stay, limit int, end func(stay) time.Time) (n int64) {
	slices.SortFunc(all, func(a, b stay) int { return a.from.Compare(b.from) })
	for i, h := range all {
		inside := 0
		for _, before := range all[:i] {
			if before.key == h.key && end(before).After(h.from) && !(before.shared && h.shared) {
				inside++
			}
		}
		if inside >= limit {
			n++
		}
	}
	return n
}

func TestMonitorDetectsViolations(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond) }
	m := &monitored{grants: map[string][]*grant{}}
	for i, line := range []string{
		`"SET" "load:{00000000}:1" "a" "NX" "PX" "500"`, `"SET" "load:{00000000}:1" "b" "NX" "PX" "500"`,
		`"DEL" "load:{00000000}:1"`, `"SET" "load:{00000000}:1" "b" "NX" "PX" "500"`,
	} {
		m.hear(fmt.Sprintf(`+1.%06d [0 lua] %s`, 100_000*i, line))
	}
	for _, c := range []struct {
		token    string
		from, to int
		want     bool
	}{{"a", 10, 190, true}, {"a", 10, 250, false}, {"b", 150, 190, false}, {"b", 310, 900, true}} {
		check.Equal(t, m.holds("load:{00000000}:1", c.token, at(c.from), at(c.to)), c.want, "%s from %d to %d", c.token, c.from, c.to)
	}
	all := []stay{{key: "k", from: at(0), to: at(10), deadline: at(5)}, {key: "k", from: at(9), to: at(20), deadline: at(99)}, {key: "k", from: at(20), to: at(30)}}
	work, leases := overlapping(all, 1, func(s stay) time.Time { return s.to }), overlapping(all, 1, stay.leased)
	check.True(t, work == 1 && leases == 0, "%d overlaps of work, %d of leases", work, leases)
	for i, s := range []stay{
		{from: at(10), to: at(20), deadline: at(9)}, {from: at(10), to: at(20), deadline: at(15)},
		{from: at(10), to: at(20), deadline: at(15), notified: at(14)}, {from: at(10), to: at(20), deadline: at(15), notified: at(30), at: at(29)},
	} {
		check.True(t, s.clocks(true) != "", "nothing is wrong with hold %d", i)
	}
	for i, line := range []string{`"c" "NX" "PX" "500"`, `"d" "NX" "PX" "500"`, `"e" "NX" "PX" "500"`} { // the TTL of b ends at 800
		m.hear(fmt.Sprintf(`+1.%06d [0 lua] "SET" "load:{00000000}:1" %s`, 780_000+16_000*i, line))
	}
	for token, want := range map[string]bool{"c": false, "d": true, "e": true} { // which one is not known
		check.Equal(t, m.holds("load:{00000000}:1", token, at(820), at(900)), want, "%s after the TTL", token)
	}
	m.lapse("load:{00000000}:1", at(900))
	check.True(t, !m.holds("load:{00000000}:1", "b", at(310), at(850)) && m.holds("load:{00000000}:1", "b", at(310), at(790)),
		"what ran out is held still")
}
