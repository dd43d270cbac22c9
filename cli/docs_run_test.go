//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

// docPlace is a place of the docs, and what this test puts there.
type docPlace struct {
	written string
	here    func(*docSite) string
}

// docPlaces is all that the test changes in a command. The first entry that fits counts.
var docPlaces = []docPlace{
	// the source
	{"go run . ", text("locktop ")},

	// servers
	{"redis://127.0.0.1:6379", func(s *docSite) string { return "redis://" + s.server("own") }},
	{"redis://locktop@127.0.0.1:6379", func(s *docSite) string { return "redis://locktop@" + s.server("own") }},
	{"redis://locktop@redis:6379", func(s *docSite) string { return "redis://locktop@" + s.server("own") }},
	{"redis://db.internal:6379", func(s *docSite) string { return "redis://" + s.server("own") }},
	{"redis://10.0.0.5:6379", func(s *docSite) string { return "redis://" + s.server("own") }},
	{"rediss://locktop@redis.internal", func(s *docSite) string { return "rediss://locktop@" + s.secured() }},
	{"rediss://redis.internal", func(s *docSite) string { return "rediss://" + s.secured() }},
	{"-H redis.internal", func(s *docSite) string { return "-H " + strings.Replace(s.server("own"), ":", " -p ", 1) }},
	{"redis://redis-1:6379", func(s *docSite) string { return "redis://" + s.server("node 1") }},
	{"redis://redis-2:6379", func(s *docSite) string { return "redis://" + s.server("node 2") }},
	{"--redlock redis-1", func(s *docSite) string { return "--redlock " + s.server("node 1") }},
	{"--redlock redis-2", func(s *docSite) string { return "--redlock " + s.server("node 2") }},
	{"--redlock redis-3", func(s *docSite) string { return "--redlock " + s.server("node 3") }},
	{"--redlock 127.0.0.1:6379", func(s *docSite) string { return "--redlock " + s.server("node 1") }},
	{"--redlock 127.0.0.1:6380", func(s *docSite) string { return "--redlock " + s.server("node 2") }},
	{"--redlock 127.0.0.1:6381", func(s *docSite) string { return "--redlock " + s.server("node 3") }},
	{"--sentinel 10.0.0.1", func(s *docSite) string { return "--sentinel " + s.sentinel() }},
	{"--master orders", text("--master " + servertest.SentinelMaster)},
	{"redis://HOST:6379", func(s *docSite) string { return "redis://" + s.server("control") }},
	{"redis://ctl:6379", func(s *docSite) string { return "redis://" + s.server("control") }},
	{"redis://target:6379", func(s *docSite) string { return "redis://" + s.server("own") }},

	// hosts
	{"--ssh ann@bastion", (*docSite).ssh},
	{"--ssh bastion", (*docSite).ssh},
	{"ssh $host ", text("")}, // four hosts that are this one

	// ports of this machine, which may be in use
	{" --web.listen-address :15625", text("")},
	{" --web.listen-address=:15625", text("")},
	{"locktop export", text("locktop export --web.listen-address 127.0.0.1:0")},
	{"http://127.0.0.1:15625", func(s *docSite) string { return s.exporter }},

	// folders
	{"/usr/local/bin/", func(s *docSite) string { return s.dir + "/bin/" }},
	{"/etc/", func(s *docSite) string { return s.dir + "/etc/" }},
	{"/run/secrets/", func(s *docSite) string { return s.dir + "/secrets/" }},
	{"/var/lib/locktop", func(s *docSite) string { return s.dir + "/state" }},

	// names in capitals, and programs of the reader
	{" KEY", text(" lock:orders:4711")},
	{"replay DIRECTORY", func(s *docSite) string { return "replay " + s.dir + "/state/recording" }},
	{"--exec CLIENT", text("--exec ./my-client")},
	{"'python3 client.py'", text("./my-client")},
}

func text(s string) func(*docSite) string { return func(*docSite) string { return s } }

// docPassword is that of the users ann and locktop, as pass, vault and aws print it.
const docPassword = "c4nary"

// docSite is a folder with all that the commands of one block need, and their servers.
type docSite struct {
	t        *testing.T
	dir      string
	env      []string
	exporter string            // the URL of the newest exporter, without a path
	servers  map[string]string // the addresses by name; also of what is no server for locks: "sentinel", "ssh", "TLS", "control"
	serving  []*docRun
}

func newDocSite(t *testing.T) *docSite {
	t.Helper()
	dir := socketDir(t)
	s := &docSite{t: t, dir: dir, servers: map[string]string{}}
	hash := check.Must(bcrypt.GenerateFromPassword([]byte(docPassword), bcrypt.MinCost))(t)
	s.script("my-client", `exec locktop load --as-client mutex`)
	s.script("bin/pass", `[ "$*" = "show redis/prod" ] && echo `+docPassword)
	s.script("bin/vault", `[ "$1 $2" = "kv get" ] && echo `+docPassword)
	s.script("bin/aws", `[ "$1" = secretsmanager ] && echo '{"username": "ann", "password": "`+docPassword+`"}'`)
	s.file("secrets/redis", docPassword)
	s.file("secrets/redis-password", docPassword)
	s.file("secrets/locktop/redis-password", docPassword)
	s.file("web.yml", "basic_auth_users:\n  prometheus: "+string(hash)+"\n")
	s.file("locktop.rules.yml", readText(t, rulesFile))
	s.file("contrib/systemd/locktop-export.service", readText(t, unitFile))
	s.file("etc/systemd/system/any.service", "")
	s.file("state/any", "")
	config := "contexts:\n"
	for _, name := range []string{"prod", "orders", "billing"} {
		config += fmt.Sprintf("  %s: {url: 'redis://ann@%s', password_command: pass show redis/prod}\n", name, s.server("own"))
	}
	s.file(".config/locktop/config.yaml", config)
	program := check.Must(exec.LookPath("locktop"))(t)
	for _, name := range []string{"locktop", "bin/locktop"} {
		check.NoError(t, os.Symlink(program, filepath.Join(dir, name)))
	}
	s.env = append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir+"/.config", "XDG_STATE_HOME="+dir+"/.state", "TMPDIR="+dir,
		"LOCKTOP_URL=redis://"+s.server("own"), "LOCKTOP_SENTINEL_PASS="+docPassword, "CREDENTIALS_DIRECTORY="+dir+"/secrets", "STATE_DIRECTORY="+dir+"/state")
	return s
}

func (s *docSite) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	check.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	write(s.t, path, text)
	return path
}

func (s *docSite) script(name, line string) {
	s.t.Helper()
	check.NoError(s.t, os.Chmod(s.file(name, "#!/bin/sh\n"+line+"\n"), 0o700))
}

// server returns the address of a server by its name.
func (s *docSite) server(name string) string {
	s.t.Helper()
	if s.servers[name] == "" {
		s.servers[name] = servertest.RedisForTest(s.t).Addr()
		s.users(s.servers[name])
	}
	return s.servers[name]
}

func (s *docSite) users(addr string) {
	s.t.Helper()
	for _, user := range []string{"ann", "locktop"} {
		aUser(s.t, addr, user, "reset", "on", ">"+docPassword, "~*", "&*", "+@all")
	}
}

// secured returns the address of a server with TLS, and the flags to trust it.
func (s *docSite) secured() string {
	s.t.Helper()
	if s.servers["secured"] == "" {
		ca := check.NewAuthority(s.t)
		cert, key := ca.Issue(s.t, "server", leaf())
		plain, port := secured(s.t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File, "--tls-auth-clients", "no")
		s.servers["secured"] = plain.Addr()
		s.users(plain.Addr())
		s.servers["TLS"] = "127.0.0.1:" + port + " --cacert " + ca.File + " --sni redis.test"
	}
	return s.servers["TLS"]
}

// sentinel returns the address of a Sentinel of the own server, with a user of its own.
func (s *docSite) sentinel() string {
	s.t.Helper()
	if s.servers["sentinel"] == "" {
		_, port, _ := strings.Cut(s.server("own"), ":")
		c := sentinelOf(s.t, port, "user ann on >"+docPassword+" +@all")
		awaitSentinel(s.t, c.Addr())
		s.servers["sentinel"] = c.Addr()
	}
	return s.servers["sentinel"]
}

// ssh starts sshd and makes the program ssh reach it.
func (s *docSite) ssh() string {
	s.t.Helper()
	if s.servers["ssh"] == "" {
		s.servers["ssh"] = sshHosts(s.t)
		s.env = append(s.env, "PATH="+s.servers["ssh"]+"/bin:"+s.dir+"/bin:"+os.Getenv("PATH"))
	}
	return "--ssh outer"
}

// recorded makes recordings of half an hour with the latest 03:12, when a lock is deleted by hand.
func (s *docSite) recorded() {
	s.t.Helper()
	for _, name := range []string{"state/recording", "state/recording/orders"} {
		dir := filepath.Join(s.dir, name)
		check.NoError(s.t, os.RemoveAll(dir))
		check.NoError(s.t, os.MkdirAll(dir, 0o700))
		now := time.Now()
		begin := time.Date(now.Year(), now.Month(), now.Day()-1, 3, 0, 0, 0, time.Local)
		events := deletedByHand(docLock, begin.Add(12*time.Minute))
		for at := range 900 { // a job of 1 s every 2 s, for a load that is fitted to the recording
			events = append(events, oneHold("job:nightly", begin.Add(time.Duration(2*at+1)*time.Second), time.Second, keyspace.Released)...)
		}
		slices.SortStableFunc(events, func(a, b keyspace.Event) int { return a.At.Compare(b.At) })
		recordSpan(s.t, dir, begin, 10*time.Second, 30*time.Minute, events...)
	}
	segments, err := filepath.Glob(filepath.Join(s.dir, "state/recording/*.lockrec"))
	check.Require(s.t, err == nil && len(segments) != 0, "%v %v", segments, err)
	s.file("20261122T030000.000Z.lockrec", readText(s.t, segments[0]))
}

// here returns a command with the places of this machine. It fails the test if the command would contact another host.
func (s *docSite) here(command string) string {
	s.t.Helper()
	var pairs []string
	for _, p := range docPlaces {
		if strings.Contains(command, p.written) {
			pairs = append(pairs, p.written, p.here(s))
		}
	}
	command = strings.NewReplacer(pairs...).Replace(command)
	for _, at := range regexp.MustCompile(`(?:(?:rediss?|http)://(?:[^@/ ]*@)?|-H |--sentinel |--redlock |--ssh )([^:/, ]*)`).FindAllStringSubmatch(command, -1) {
		check.Require(s.t, at[1] == "127.0.0.1" || at[1] == "outer",
			"%s\nThe host %s is not in docPlaces.", command, at[1]) // the host of sshHosts
	}
	return command
}

// seed makes the locks that a rule asks for, on all servers. It returns a function that ends their holders.
func (s *docSite) seed(how docSeed) (end func()) {
	s.t.Helper()
	if how == whatever {
		return func() {}
	}
	ctx := s.t.Context()
	var ends []func()
	for name, addr := range s.servers {
		if slices.Contains([]string{"sentinel", "ssh", "TLS", "control"}, name) || how == onNodes && name != "node 1" {
			continue
		}
		rdb := clientWith(s.t, addr, server.ClientOptions{Name: "orders-worker", PoolSize: 1})
		rdb.FlushAll(ctx)
		ttl, value := time.Minute, token
		switch how {
		case byName:
			value = "orders-worker"
		case noTTL:
			ttl = 0
		}
		rdb.HSet(ctx, "orders:4712", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", 1)
		check.NoError(s.t, rdb.Set(ctx, docLock, value, ttl).Err())
		i := 0
		stop := repeat(s.t, 200*time.Millisecond, func(ctx context.Context) {
			switch i++; {
			case how == renewed:
				rdb.Eval(ctx, "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end", []string{docLock}, token, 60000)
			case how == restless && i%2 == 0:
				rdb.SetNX(ctx, fmt.Sprint("lock:short:", i), token, 100*time.Millisecond)
				rdb.SetNX(ctx, "lock:stolen", token, time.Minute)
				rdb.SetArgs(ctx, "lock:stolen", []any{token, otherToken}[i/2%2], redis.SetArgs{KeepTTL: true})
			}
		})
		ends = append(ends, func() { stop(); _ = rdb.Close() })
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// docRun is a command that runs.
type docRun struct {
	t      *testing.T
	text   string
	cmd    *exec.Cmd
	out    *lines
	silent chan struct{} // closed when the last process of the command has ended
}

// start runs a command in a shell and in a process group of its own.
func (s *docSite) start(text string) *docRun {
	s.t.Helper()
	r := &docRun{t: s.t, text: text, cmd: exec.Command("sh", "-c", text), out: newLines(), silent: make(chan struct{})}
	inGroupOfItsOwn(r.cmd)
	r.cmd.Dir, r.cmd.Env = s.dir, s.env
	read, write, err := os.Pipe()
	check.NoError(s.t, err)
	r.cmd.Stdout, r.cmd.Stderr = write, write
	check.NoError(s.t, r.cmd.Start())
	_ = write.Close()
	go func() {
		defer close(r.silent)
		_, _ = io.Copy(r.out, read)
		_ = read.Close()
	}()
	s.t.Cleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // if the test has failed
		<-r.silent
	})
	return r
}

// exits waits for the end of the command with an exit code.
func (r *docRun) exits(want int) {
	r.t.Helper()
	err := r.cmd.Wait()
	state := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	code := state.ExitStatus()
	if state.Signaled() {
		code = 128 + int(state.Signal())
	}
	check.Require(r.t, code == want, "%s\nexits with %d, want %d: %v\n%s", r.text, code, want, err, r.out)
}

// awaitExporter waits until the exporter that a command has started has read each target.
func (s *docSite) awaitExporter(r *docRun) {
	s.t.Helper()
	address := regexp.MustCompile(`serving (http://\S+)/metrics`).FindStringSubmatch(r.out.String())
	if address == nil {
		return // it is another command
	}
	s.exporter = address[1]
	req := check.Must(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.exporter+"/metrics", nil))(s.t)
	req.SetBasicAuth("prometheus", docPassword)
	eventually(s.t, func() bool {
		resp := check.Must(http.DefaultClient.Do(req))(s.t)
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			s.t.Fatalf("%s\n/metrics: %s, %v", r.text, resp.Status, err)
		}
		all := regexp.MustCompile(`(?m)^locktop_(?:up|pass_complete)\{.* ([01])$`).FindAllStringSubmatch(string(page), -1)
		return len(all) > 1 && !slices.ContainsFunc(all, func(one []string) bool { return one[1] == "0" })
	})
}

// interrupt sends SIGINT to all processes of the command.
func (r *docRun) interrupt() {
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
}

// run runs a command as its rule says.
func (s *docSite) run(command string) {
	s.t.Helper()
	rule := docRuleFor(command)
	if rule == nil {
		return // TestEveryCommandOfTheDocsIsKnown judges it
	}
	if regexp.MustCompile(`replay|explain|zcat|--from`).MatchString(command) {
		s.recorded()
	}
	if !hasProgram(s.t, rule.needs) || rule.knows != "" && !knows(s.t, s.server("own"), rule.knows) {
		return
	}
	here := s.here(command)
	end := s.seed(rule.seed)
	defer end()
	if rule.way == onScreen || rule.way == asked {
		s.inTerminal(here, rule)
		return
	}
	for range max(rule.copies, 1) {
		r := s.start(here)
		switch rule.way {
		case ends:
			r.exits(rule.code)
			if rule.makes != "" {
				if made := readText(s.t, filepath.Join(s.dir, rule.makes)); !regexp.MustCompile("(?m)" + rule.prints).MatchString(made) {
					s.t.Errorf("%s\nmakes\n%s\nwant a line like %s", here, made, rule.prints)
				}
			} else {
				r.out.sees(s.t, rule.prints)
			}
			// What it leaves behind: a shell makes a process behind & ignore SIGINT.
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM)
			<-r.silent
		case stopped:
			r.out.sees(s.t, rule.prints)
			s.awaitExporter(r)
			r.interrupt()
			r.exits(rule.code)
		case serves:
			r.out.sees(s.t, rule.prints)
			s.awaitExporter(r)
			s.serving = append(s.serving, r)
		}
	}
}

// hasProgram reports whether a program that a rule needs is there. If nothing may be skipped, it fails the test.
func hasProgram(t *testing.T, name string) bool {
	t.Helper()
	if name == "" || name == runtime.GOOS {
		return true
	}
	_, err := exec.LookPath(name)
	check.Require(t, err == nil || name == "linux" || os.Getenv(servertest.RequireRedis) == "", "%v", err)
	return err == nil
}

// inTerminal runs a command in a terminal.
func (s *docSite) inTerminal(command string, rule *docRule) {
	s.t.Helper()
	code := filepath.Join(s.dir, "code")
	_ = os.Remove(code)
	script := s.file("screen", "cd "+s.dir+"\n( "+command+"\n)\necho $? > "+code+".new\nmv "+code+".new "+code+"\n"+"sleep 60\n")
	args := []string{"env"}
	for _, name := range s.env {
		if key, _, _ := strings.Cut(name, "="); strings.HasPrefix(key, "XDG") || strings.HasPrefix(key, "LOCKTOP") || key == "HOME" || key == "PATH" || key == "TMPDIR" {
			args = append(args, name)
		}
	}
	term := openTerminalFor(s.t, 160, 50, append(args, "sh", script)...)
	sees := func(pattern string) {
		s.t.Helper()
		line := regexp.MustCompile("(?m)" + pattern)
		term.wait(pattern, func(screen string) bool { return line.MatchString(screen) })
	}
	sees(rule.asks)
	for _, key := range rule.answer {
		term.press(key)
	}
	sees(rule.prints)
	if rule.way == onScreen {
		term.press("C-c")
	}
	eventually(s.t, func() bool { _, err := os.Stat(code); return err == nil })
	if got := strings.TrimSpace(readText(s.t, code)); got != fmt.Sprint(rule.code) {
		s.t.Errorf("%s\nexits with %s, want %d\n%s", command, got, rule.code, term.screen())
	}
}

// Each command of the pages and of contrib does what it should, as it is written there but
// for the places of docPlaces. Commands of one block run one after another.
func TestTheCommandsOfTheDocsRun(t *testing.T) {
	long(t, "it runs all commands of the docs")
	blocks := docBlocks(t)
	for _, p := range docPlaces {
		there := func(b docBlock) bool {
			return slices.ContainsFunc(b.commands, func(c string) bool { return strings.Contains(c, p.written) })
		}
		check.True(t, slices.ContainsFunc(blocks, there), "the place %s is in no command any more", p.written)
	}
	for _, block := range blocks {
		var commands []string
		for _, c := range block.commands {
			if docRuleFor(c) != nil && !regexp.MustCompile(docProject).MatchString(bare(c)) {
				commands = append(commands, c)
			}
		}
		if len(commands) == 0 {
			continue
		}
		t.Run(block.String(), func(t *testing.T) {
			t.Parallel()
			s := newDocSite(t)
			for _, command := range commands {
				began := time.Now()
				s.run(command)
				t.Logf("%.1f s: %s", time.Since(began).Seconds(), command)
			}
			for _, r := range s.serving {
				r.interrupt()
				r.exits(exitInterrupted)
			}
		})
	}
}
