package proofs

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/humanize"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace/incident"
	"locktop/lab/internal/labtest"
)

// kind is one kind of incident: how clients and people make it, and what a story of it may say.
type kind struct {
	name   string
	stage  func(s *scene)
	causes []incident.Cause // one of them is told; none: there is no incident; "": there may be none
	says   []string         // in the text; "a|b": one of the two
	never  []string         // not in it
}

// fact is what really happened to a lock.
type fact struct {
	at    time.Time
	what  deed
	who   string // the name of the client
	token string
	ttl   time.Duration
}

// deed is a kind of fact.
type deed string

const (
	acquired   deed = "acquired"
	renewed    deed = "renewed"
	released   deed = "released" // by its client
	removed    deed = "removed"  // by another one: DEL, RENAME, MOVE
	brought    deed = "brought"  // the key came by RENAME, RESTORE or COPY
	moved      deed = "moved"    // its deadline, by another client
	taken      deed = "taken"    // overwritten
	evicted    deed = "evicted"
	flushed    deed = "flushed"
	lost       deed = "lost" // by the server
	passed     deed = "passed"
	ended      deed = "ended"      // the connection of the client
	returned   deed = "returned"   // another connection of the client
	failed     deed = "failed"     // the server
	unobserved deed = "unobserved" // the recorder could not read until the fact
)

// scene is the stage of one kind: a lock on a server that is recorded.
type scene struct {
	*testing.T
	key   string
	own   string // is added to the names of its clients
	addr  string
	admin server.Client // a person
	mu    sync.Mutex
	facts []fact
}

func (s *scene) note(f fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.at = cmp.Or(f.at, time.Now())
	s.facts = append(s.facts, f)
}

// happened notes a deed of a person or of the server.
func (s *scene) happened(what deed) { s.note(fact{what: what}) }

// person runs a command, as in redis-cli.
func (s *scene) person(what deed, args ...any) any {
	s.Helper()
	reply, err := s.admin.Do(s.ctx(), args...).Result()
	check.True(s, err == nil || err == redis.Nil, "%v: %v", args, err)
	s.happened(what)
	return reply
}

func (s *scene) ctx() context.Context { return context.WithoutCancel(s.Context()) }

// actor is a client that holds locks.
type actor struct {
	*scene
	name  string
	token string
	rdb   server.Client
}

// client connects a client that has its own name.
func (s *scene) client(name string) *actor { return s.clientAs(name, name, s.addr) }

// clientAs connects a client whose connection has another name, at another address.
func (s *scene) clientAs(name, connection, addr string) *actor {
	if connection != "" {
		connection += s.own
	}
	rdb := server.NewClient(addr, server.ClientOptions{Name: connection, PoolSize: 1, NoRetry: true, Timeout: time.Minute})
	s.Cleanup(func() { _ = rdb.Close() })
	c := &actor{s, name, s.tokenOf(name), rdb}
	_ = rdb.Ping(s.ctx())
	return c
}

// tokenOf returns a new token of a client of package lock.
func (s *scene) tokenOf(client string) string {
	return client + s.own + "~" + uuid.Must(uuid.NewV7()).String()
}

// acquire acquires the lock, with a new token.
func (c *actor) acquire(ttl time.Duration) {
	c.token = c.tokenOf(c.name)
	c.again(ttl)
}

// again acquires the lock with the token that the client has.
func (c *actor) again(ttl time.Duration) {
	c.Helper()
	ok, err := c.rdb.SetNX(c.ctx(), c.key, c.token, ttl).Result()
	check.True(c, ok && err == nil, "%s acquires %s: %v, %v", c.name, c.key, ok, err)
	c.did(acquired, ttl)
}

func (c *actor) did(what deed, ttl time.Duration) {
	c.note(fact{what: what, who: c.name, token: c.token, ttl: ttl})
}

var extendIfMine = redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`)

// renew renews the lock n times, each time after a pause.
func (c *actor) renew(n int, every, ttl time.Duration) {
	c.Helper()
	for range n {
		time.Sleep(every)
		if had, err := extendIfMine.Run(c.ctx(), c.rdb, []string{c.key}, c.token, ttl.Milliseconds()).Int(); had == 1 && err == nil {
			c.did(renewed, ttl)
		}
	}
}

// release releases the lock, if the client has it.
func (c *actor) release() {
	c.Helper()
	if had, err := labtest.FreeIfMine.Run(c.ctx(), c.rdb, []string{c.key}, c.token).Bool(); had && err == nil {
		c.did(released, 0)
	}
}

// ends closes the connection.
func (c *actor) ends() {
	_ = c.rdb.Close()
	c.did(ended, 0)
}

// expires waits until the deadline of the lock has passed.
func (c *actor) expires() {
	left := c.admin.PTTL(c.ctx(), c.key).Val()
	at := time.Now().Add(left)
	time.Sleep(left + 100*time.Millisecond)
	c.note(fact{at: at, what: passed, who: c.name, token: c.token})
}

// usual lets clients hold the lock n times, for a quarter of a second.
func (s *scene) usual() {
	c := s.client("usual-1")
	for range 9 { // a recorder may miss the first ones
		c.acquire(20 * time.Second)
		time.Sleep(250 * time.Millisecond)
		c.release()
		time.Sleep(150 * time.Millisecond)
	}
}

// process is a client in a process of its own.
type process struct {
	*actor
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// process starts a client that can be killed and frozen.
func (s *scene) process(name string) *process {
	host, port, _ := strings.Cut(s.addr, ":")
	cmd := exec.Command("redis-cli", "-h", host, "-p", port)
	p := &process{actor: &actor{scene: s, name: name, token: s.tokenOf(name)}, cmd: cmd}
	p.in = check.Must(cmd.StdinPipe())(s)
	p.out = bufio.NewReader(check.Must(cmd.StdoutPipe())(s))
	check.NoError(s, cmd.Start())
	s.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p.do("CLIENT SETNAME " + name + s.own)
	return p
}

func (p *process) do(command string) string {
	_, _ = fmt.Fprintln(p.in, command)
	reply, _ := p.out.ReadString('\n')
	return strings.TrimSpace(reply)
}

func (p *process) acquire(ttl time.Duration) {
	p.Helper()
	check.Equal(p, p.do(fmt.Sprintf("SET %s %s NX PX %d", p.key, p.token, ttl.Milliseconds())), "OK", "acquires %s", p.key)
	p.did(acquired, ttl)
}

func (p *process) renew(n int, every, ttl time.Duration) {
	for range n {
		time.Sleep(every)
		if p.do(fmt.Sprintf("PEXPIRE %s %d", p.key, ttl.Milliseconds())) == "1" {
			p.did(renewed, ttl)
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.did(ended, 0)
}

func (p *process) freeze() { check.NoError(p, p.cmd.Process.Signal(syscall.SIGSTOP)) }

// recorder is a locktop record of servers.
type recorder struct {
	*labtest.Program
	file string
}

// record begins to record servers.
func record(t *testing.T, flags ...string) *recorder {
	file := filepath.Join(cmp.Or(os.Getenv("LOCKTOP_PROOF_DIR"), t.TempDir()), path.Base(t.Name())+".lockrec")
	r := &recorder{labtest.Start(t, append([]string{"record", file}, flags...)...), file}
	labtest.Within(t, labtest.LongestWait, func() bool { info, err := os.Stat(file); return err == nil && info.Size() > 0 })
	time.Sleep(2 * time.Second) // it has scanned
	return r
}

// stop ends the recording.
func (r *recorder) stop() {
	time.Sleep(1500 * time.Millisecond) // the last frame
	r.Signal(os.Interrupt)
	r.Exits(exitInterrupted)
}

// tolerance is how far a story may be from the truth: frames are a second apart.
const tolerance = 1500 * time.Millisecond

// explain explains the lock of a scene, and judges each sentence by what happened.
func (s *scene) explain(t *testing.T, file string, k kind) (told int) {
	t.Helper()
	text := strings.ReplaceAll(labtest.Locktop(t, "explain", s.key, file).Out, s.own, "")
	d := labtest.Decoded[render.StoryDocument](t, strings.ReplaceAll(labtest.Printed(t, "explain", s.key, file, "--json"), s.own, ""))
	if os.Getenv("LOCKTOP_PROOF_STORIES") != "" || testing.Verbose() {
		t.Logf("%s", text)
	}
	var wrong []string
	accuse := func(form string, args ...any) { wrong = append(wrong, fmt.Sprintf(form, args...)) }
	for _, story := range d.Stories {
		if !slices.Contains(k.causes, story.Cause) {
			accuse("the cause is %s", story.Cause)
		}
		for _, sentence := range append([]string{story.Headline, story.Remedy}, story.Limitations...) {
			if why := s.judgeText(sentence, story); why != "" {
				accuse("%s: %s", sentence, why)
			}
		}
		for _, l := range story.Lines {
			at := check.Must(time.Parse(time.RFC3339Nano, l.At))(t)
			if why := s.judgeLine(l.Text, at); why != "" {
				accuse("%s %s: %s", at.Local().Format(time.TimeOnly), l.Text, why)
			}
		}
		told += 2 + len(story.Limitations) + len(story.Lines)
	}
	if len(k.causes) > 0 && len(d.Stories) == 0 && !slices.Contains(k.causes, "") {
		accuse("there is no story")
	}
	for _, want := range k.says {
		if !slices.ContainsFunc(strings.Split(want, "|"), func(one string) bool { return strings.Contains(text, one) }) {
			accuse("it does not say %q", want)
		}
	}
	for _, never := range append(k.never, " froze", "nobody worked", "was released by") {
		if strings.Contains(text, never) {
			accuse("it says %q", never)
		}
	}
	if len(wrong) > 0 {
		var truth strings.Builder
		for _, f := range s.facts {
			fmt.Fprintf(&truth, "  %s %s %s %v\n", f.at.Format("15:04:05.000"), f.what, f.who, f.ttl)
		}
		t.Errorf("%s\n%s\nthe truth is\n%s", strings.Join(wrong, "\n"), text, truth.String())
	}
	return told
}

// find returns the fact of some kinds that is nearest to a time, by a client or by anybody.
func (s *scene) find(at time.Time, who string, kinds ...deed) (nearest *fact) {
	for i := range s.facts {
		f := &s.facts[i]
		distance := f.at.Sub(at).Abs()
		if (who == "" || f.who == "" || cut(f.who) == who) && slices.Contains(kinds, f.what) && distance <= tolerance && (nearest == nil || distance < nearest.at.Sub(at).Abs()) {
			nearest = f
		}
	}
	return nearest
}

// cut returns a name as a story shortens it.
func cut(name string) string {
	if len(name) > 40 {
		return name[:16] + "…"
	}
	return name
}

var (
	acquiredLine = regexp.MustCompile(`^(\S+) (acquired it|has it again, with the value of the last hold|wrote a new value into it|has it, with the value and the deadline of \S+|holds it, and acquired it earlier)( again)?(, at [\d:]+ at the latest)?(?:: (TTL [^,(]+|no TTL|both|[^,(]*))?`)
	renewedTimes = regexp.MustCompile(`renewed (once|(\d+) times)`)
	releasedBy   = regexp.MustCompile(`^(\S+) released it`)
	hadEnded     = regexp.MustCompile(`The connection of (\S+), which held \S+, had ended by ([\d:]+)`)
	notRenewed   = regexp.MustCompile(`^(\S+), which held \S+, did not renew it after ([\d:]+)`)
	expiries     = regexp.MustCompile(`(\d+) holds? (?:of \S+ )?ended by expiry`)
	movedFrom    = regexp.MustCompile(`its deadline(?: was moved|, [\d:]+, was removed)`)
	headlines    = []struct {
		says  string
		kinds []deed
	}{
		{" was deleted ", []deed{removed}}, {"A client deleted ", []deed{removed}}, {" took ", []deed{taken}}, {"The server evicted ", []deed{evicted}},
		{"The database was emptied", []deed{flushed}}, {"A failover lost ", []deed{lost}}, {"A restart of the server lost ", []deed{lost}}, {"its lease expired at", []deed{passed}},
		{"until its lease ran out", []deed{passed}},
	}
	endings = []struct {
		begin string
		kinds []deed
	}{
		{"expired", []deed{passed}}, {"released or deleted", []deed{released, removed, moved}}, {"deleted without the message", []deed{removed}}, {"taken without a release", []deed{taken}},
		{"evicted", []deed{evicted}}, {"gone with its database", []deed{flushed}}, {"lost by the server", []deed{lost}}, {"another client has it", []deed{acquired, taken, brought}},
		{"handed over", []deed{released}},
	}
)

// judgeLine returns what is false in a line of a story; "" if nothing is.
func (s *scene) judgeLine(text string, at time.Time) string {
	if m := acquiredLine.FindStringSubmatch(text); m != nil {
		return s.judgeBegin(text, at, m)
	}
	if m := releasedBy.FindStringSubmatch(text); m != nil {
		if f := s.find(at, m[1], released); f == nil || f.who == "" {
			return "it did not release it"
		}
		return ""
	}
	for _, e := range endings {
		if strings.HasPrefix(text, e.begin) && s.find(at, "", e.kinds...) == nil {
			return fmt.Sprintf("it was not %v at that time", e.kinds)
		}
	}
	switch {
	case strings.Contains(text, "had ended") && s.last(ended, at) == nil:
		return "no connection of a holder had ended"
	case movedFrom.MatchString(text) && s.find(at, "", moved, renewed) == nil:
		return "nobody moved the deadline"
	case strings.HasPrefix(text, "still held") && s.last(acquired, at) == nil && s.last(brought, at) == nil:
		return "nobody held it"
	}
	return ""
}

// last returns the last fact of a kind until a time.
func (s *scene) last(what deed, at time.Time) (last *fact) {
	for i := range s.facts {
		if f := &s.facts[i]; f.what == what && !f.at.After(at.Add(tolerance)) {
			last = f
		}
	}
	return last
}

// judgeBegin judges how a hold began.
func (s *scene) judgeBegin(text string, at time.Time, m []string) string {
	who, how, latest, ttl := m[1], m[2], m[4], m[5]
	var begin *fact
	switch {
	case strings.HasPrefix(how, "acquired") && latest == "":
		if begin = s.find(at, who, acquired); begin == nil || begin.who == "" {
			return "it did not acquire it then"
		}
	case strings.HasPrefix(how, "has it"), strings.HasPrefix(how, "wrote"):
		begin = s.find(at, who, acquired, brought)
		if begin == nil {
			return "it has not got it then"
		}
	default:
		if begin = s.last(acquired, time.Now()); begin == nil {
			return "nobody acquired it"
		}
	}
	if ttl, ok := strings.CutPrefix(ttl, "TTL "); ok && humanize.Setting(begin.ttl) != strings.TrimSpace(ttl) {
		return fmt.Sprintf("its TTL was %v", begin.ttl)
	}
	if ttl == "no TTL" && begin.ttl != 0 {
		return fmt.Sprintf("its TTL was %v", begin.ttl)
	}
	renewals := 0
	for _, f := range s.facts {
		if (f.what == renewed || f.what == moved) && f.at.After(begin.at) && (f.who == "" || f.token == begin.token) {
			renewals++
		}
	}
	said := 0
	if r := renewedTimes.FindStringSubmatch(text); r != nil {
		said = 1
		if r[2] != "" {
			said, _ = strconv.Atoi(r[2])
		}
	}
	if said > renewals || said == 0 && renewals > 0 && strings.Contains(text, "never renewed") && s.find(begin.at, "", moved) == nil && s.renewals(begin) > 0 {
		return fmt.Sprintf("it was renewed %d times", renewals)
	}
	return ""
}

// renewals returns how often the client of a hold renewed it.
func (s *scene) renewals(begin *fact) (n int) {
	for _, f := range s.facts {
		if f.what == renewed && f.token == begin.token && f.at.After(begin.at) {
			n++
		}
	}
	return n
}

// judgeText returns what is false in a sentence about a whole story.
func (s *scene) judgeText(text string, story render.Story) string {
	until := check.Must(time.Parse(time.RFC3339Nano, story.Until))(s)
	for _, h := range headlines {
		if strings.Contains(text, h.says) && text == story.Headline && s.find(until, "", h.kinds...) == nil {
			return fmt.Sprintf("it was not %v then", h.kinds)
		}
	}
	if m := hadEnded.FindStringSubmatch(text); m != nil {
		f := s.last(ended, until)
		if f == nil || cut(f.who) != m[1] || f.at.Format(time.TimeOnly) > m[2] {
			return "its connection had not ended then"
		}
	}
	if m := notRenewed.FindStringSubmatch(text); m != nil {
		for _, f := range s.facts {
			if f.what == renewed && cut(f.who) == m[1] && f.at.Add(-time.Second).Format(time.TimeOnly) > m[2] && f.at.Before(until) {
				return "it renewed it later"
			}
		}
	}
	if m := expiries.FindStringSubmatch(text); m != nil {
		n, of := 0, 0
		for _, f := range s.facts {
			if f.what == passed {
				n++
			}
		}
		if of, _ = strconv.Atoi(m[1]); of > n {
			return fmt.Sprintf("only %d expired", n)
		}
	}
	if strings.Contains(text, "cannot be read") && !slices.ContainsFunc(s.facts, func(f fact) bool { return f.what == failed }) {
		return "the server did not fail"
	}
	return ""
}

// Twenty-five kinds of incidents and more on real servers: no sentence of their stories is false, the cause is
// named where it can be proven, and where it cannot, the story says what can. LOCKTOP_PROOF_STORIES=1 prints them.
func TestStoriesAreTrue(t *testing.T) {
	testtier.Proof(t, "it stages incidents for a minute")
	var all sync.WaitGroup
	kinds, sentences := 0, 0
	for _, g := range stages() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			addr, flags := g.start(t)
			r := record(t, flags...)
			if len(g.kinds) > 1 { // the first hold under a name that begins in a new way is found by a scan
				rdb := labtest.Client(t, addr, server.ClientOptions{})
				check.NoError(t, rdb.Set(t.Context(), "job:first", (&scene{}).tokenOf("first"), 2*time.Second).Err())
				time.Sleep(2500 * time.Millisecond)
			}
			scenes := make([]*scene, len(g.kinds))
			var playing sync.WaitGroup
			for i, k := range g.kinds {
				s := &scene{T: t, key: "job:" + strings.ReplaceAll(k.name, " ", "-"), own: fmt.Sprintf("-in-%02d", i), addr: addr}
				s.admin = labtest.Client(t, addr, server.ClientOptions{})
				scenes[i] = s
				playing.Go(func() { k.stage(s) })
			}
			playing.Wait()
			r.stop()
			for i, k := range g.kinds {
				t.Run(k.name, func(t *testing.T) { sentences += scenes[i].explain(t, r.file, k) })
				kinds++
			}
		})
	}
	all.Wait()
	t.Cleanup(func() { t.Logf("%d kinds of incidents, %d sentences", kinds, sentences) })
}
