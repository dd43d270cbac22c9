//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/clienttest"
)

// asProgram is the environment variable that makes this test binary the program.
const asProgram = "LOCKTOP_TEST_CERTIFY"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == "--as-client" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(servertest.Tests{M: m, Parallel: 8}.Run())
}

// A card has the outcomes and the evidence, and the exit code is that of the worst.
func TestACardAndItsExitCode(t *testing.T) {
	servertest.RedisForTest(t) // skips without redis-server
	testtier.Long(t, "it runs clients for seconds")
	page := filepath.Join(t.TempDir(), "card.html")
	self := check.Must(os.Executable())(t)
	for _, c := range []struct {
		args string
		code int
		out  []string // expressions that stdout, or stderr, has
		errs []string
	}{
		{"mutex classic/blind-delete --tests late-unlock,nodes-2-down --html " + page, exitFailed, []string{
			`^(redis|valkey)`, `(?m)^TEST +locktop mutex +locktop classic/blind-delete$`, `(?m)^late-unlock +pass +FAIL$`, `(?m)^nodes-2-down +- +-$`,
			`FAIL late-unlock: client-1 was frozen for `, `not supported: nodes-2-down \(hello`,
		}, []string{`(?m)^certify: locktop mutex: 0 of 4 tests, about `, `(?m)^certify: 1 failure: locktop classic/blind-delete late-unlock$`}},
		{"--exec '" + self + " --as-client fair' --tests script-flush --json", 0, []string{`"name":"locktop fair"`, `"test":"script-flush","outcome":"pass"`}, nil},
		{"--exec 'echo hello' --tests crash", exitFailure, []string{`(?m)^crash +unclear$`}, []string{`echo hello: .*it wrote a line that is not a JSON object`}},
	} {
		out, errs := prints(t, c.code, c.args)
		matches(t, out, c.out)
		matches(t, errs, c.errs)
	}
	matches(t, string(check.Must(os.ReadFile(page))(t)), []string{`<h1>locktop: certification of a lock client</h1>`, `locktop classic/blind-delete`, `<rect class="violation"`, `▲ client-2 and client-3 inside`})
}

func TestWrongArgumentsHaveOneLineThatSaysWhatIsRight(t *testing.T) {
	for args, want := range map[string]string{
		"":                            `there is no client to test; name one like --exec`,
		"latch":                       `there is no kind of lock "latch"; .*the kinds are mutex, `,
		"mutex --tests crash,bang":    `--tests: there is no test "bang"; there are hot-key, crash`,
		"mutex --waiters 1":           `--waiters must be 2 to 1,000, not 1`,
		"mutex --exhaustive --html x": `--html goes with the tests, not with --exhaustive`,
		"mutex --bang":                `unknown flag: --bang`,
		"mutex --exhaustive --order release/bang": `bang`,
	} {
		_, errs := prints(t, exitUsage, args)
		matches(t, errs, []string{`\Acertify: .*` + want + `.*\n\z`})
	}
	_, errs := prints(t, exitFailure, "mutex --tests crash --html "+filepath.Join(t.TempDir(), "missing", "card.html"))
	matches(t, errs, []string{`\Acertify: write the card: open .*\n\z`})
}

func TestHelpListsAndTheProtocolArePrinted(t *testing.T) {
	for args, want := range map[string]string{
		"--help":              `go run ./certify \[KIND…\]`,
		"--list":              `(?m)^late-unlock +the late release of a frozen holder$`,
		"--list --exhaustive": `(?m)^PLAY +WHAT`,
		"--protocol":          `(?s)"op":"hello".*set_nx`,
	} {
		out, _ := prints(t, 0, args)
		matches(t, out, []string{want})
	}
}

// prints runs the program with the words of a line, where quotes hold words together.
func prints(t *testing.T, code int, line string) (out, errs string) {
	t.Helper()
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	var stdout, stderr bytes.Buffer
	got := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	check.Require(t, got == code, "certify %s: exit code %d, want %d: %s", line, got, code, &stderr)
	return stdout.String(), stderr.String()
}

func matches(t *testing.T, text string, all []string) {
	t.Helper()
	for _, want := range all {
		check.True(t, regexp.MustCompile(want).MatchString(text), "no %s in:\n%s", want, text)
	}
}

// inside returns the processes whose environment has the name of a directory, or which run
// in it, as the servers, which overwrite their environment.
func inside(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, folder := range check.Must(filepath.Glob("/proc/[0-9]*"))(t) {
		env, _ := os.ReadFile(folder + "/environ") // it may have ended, or belong to another user
		cwd, _ := os.Readlink(folder + "/cwd")
		if strings.Contains(string(env), dir) || strings.HasPrefix(cwd, dir) {
			args, _ := os.ReadFile(folder + "/cmdline")
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// certifying starts the program in a process of its own. It returns when servers and clients
// run: redis-server or valkey-server.
func certifying(t *testing.T) (cmd *exec.Cmd, out *bytes.Buffer, dir string) {
	t.Helper()
	servertest.RedisForTest(t) // skips without redis-server
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc: run it on Linux, as CI does")
	}
	dir, out = t.TempDir(), new(bytes.Buffer)
	cmd = exec.Command(check.Must(os.Executable())(t), "mutex", "--tests", "renewal,freeze,nodes-2-down,failover")
	cmd.Env, cmd.Stdout = append(os.Environ(), "TMPDIR="+dir, asProgram+"=1"), out
	check.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, func() bool {
		running := inside(t, dir)
		return len(running) > 5 && strings.Contains(strings.Join(running, " "), "-server")
	})
	return cmd, out, dir
}

// eventually waits until a condition holds, at most for a minute.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		check.Require(t, time.Since(began) < time.Minute, "it does not come about within a minute")
	}
}

func TestAnInterruptedCardIsPrintedAndLeavesNoProcess(t *testing.T) {
	testtier.Long(t, "it starts client processes")
	cmd, out, dir := certifying(t)
	check.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // its state has the exit code
	check.Equal(t, cmd.ProcessState.ExitCode(), exitInterrupted)
	matches(t, out.String(), []string{"TEST ", "renewal       unclear", "it was interrupted", "nodes-2-down  -"})
	left := inside(t, dir)
	check.True(t, len(left) == 0, "left behind: %q", left)
}

func TestAKilledRunLeavesNoProcess(t *testing.T) {
	cmd, _, dir := certifying(t)
	check.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, func() bool { return len(inside(t, dir)) == 0 })
}

// The shortest counterexample is a table of commands with their replies, and what was left out is counted.
func TestTheOrdersAreATable(t *testing.T) {
	found := func(order string, faults int) *clienttest.Counterexample {
		return &clienttest.Counterexample{Order: order, Faults: faults, Seen: 2, Runs: 3, Finding: order + " is broken.", Steps: []clienttest.Step{
			{Client: "client-1", Command: "GET k\x1b", Reply: "v", Result: "lock: ok"}, {Client: "client-2", Fault: "killed"},
		}}
	}
	s := clienttest.Search{Server: "redis 7.0.15", Faults: 2, Clients: []clienttest.SearchResult{
		{Client: clienttest.Client{Name: "my lock", Command: "./my-client"}, Plays: []clienttest.Played{
			{Play: "release", Orders: []int{3, 20}, Found: found("release/a.ak.b", 1)},
			{Play: "readers", Orders: []int{3}, Found: found("readers/a.b.a.b", 0), Left: 7, Own: 5},
			{Play: "again", Unsupported: "no"},
		}},
		{Client: clienttest.Client{Name: "sound", Command: "./sound"}, Plays: []clienttest.Played{{Play: "release", Orders: []int{3, 20, 100}, Slow: 1}}},
	}}
	text := searchText(s, 80)
	for _, want := range []string{
		"3+20 ", "FOUND release/a.ak.b (2 of 3 runs)", "readers/a.b.a.b is broken.", "7 left out; 5 commands of its own", "client-2  [killed]",
		"To repeat it: go run ./certify --exec ./my-client --order readers/a.b.a.b", "3+20+100", "none found; 1 too slow",
	} {
		check.True(t, strings.Contains(text, want), "no %q in:\n%s", want, text)
	}
	check.True(t, !strings.Contains(text, "\x1b") && !strings.Contains(text, "again") && !strings.Contains(text, "release/a.ak.b is broken"),
		"too much in:\n%s", text)
	for clients, code := range map[int]int{0: exitFailed, 1: 0} {
		err := searchError(clienttest.Search{Clients: s.Clients[clients : clients+1]})
		exit, is := errors.AsType[exitError](err)
		check.True(t, is == (code != 0) && exit.code == code, "client %d: %v", clients+1, err)
	}
}
