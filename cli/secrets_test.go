package cli

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// canary is a password that must not appear anywhere. It has a character that URLs write in two ways.
const (
	canary       = "c4nary-f00d!cafe"
	canaryInURLs = "c4nary-f00d%21cafe"
)

// leaked returns the names of the texts that contain the password.
func leaked(texts map[string]string) []string {
	var places []string
	for place, text := range texts {
		if strings.Contains(text, "c4nary-f00d") {
			places = append(places, place)
		}
	}
	return places
}

// Every command runs with a password in every place where one can be given, on a server that accepts it, on one that
// does not, and without a server. No output and no file contains the password, and only the owner can read the files.
func TestAPasswordIsNeverSeenAgain(t *testing.T) {
	long(t, "it searches every output and process for a password")
	addr := servertest.RedisForTest(t).Addr()
	aLockOfEachType(t, addr)
	aUser(t, addr, "ann", "on", ">"+canary, "~*", "&*", "+@all")
	stranger := servertest.RedisForTest(t).Addr() // has no user ann
	home := t.TempDir()
	program := check.Must(exec.LookPath("locktop"))(t)

	credentials := filepath.Join(t.TempDir(), "credentials")
	write(t, credentials, `{"username":"ann","password":"`+canary+`","expires_at":"2999-01-31T12:00:00Z"}`)
	// The command notes the arguments of locktop, which checkWritten reads.
	command := "sh -c 'umask 077; " + `tr "\0" " " </proc/$PPID/cmdline >>` + home + "/arguments.txt; cat " + credentials + "'"

	n := 0
	for where, good := range map[string]bool{addr: true, stranger: false, "127.0.0.1:1": false, "no such host:99999x": false} {
		url := "redis://ann:" + canaryInURLs + "@" + where
		configureIn(t, filepath.Join(home, "config"), 0o600, "contexts:", "  c: {url: "+`"`+url+`"`+", locks: ['some:*']}",
			"  command: {url: \"redis://"+where+"\", password_command: \"cat "+credentials+"\"}",
			"  file: {url: \"redis://"+where+"\", password_file: "+credentials+"}")
		ways := []struct {
			name, in string
			args     []string
			env      []string
		}{
			{"--url", "", []string{"-u", url}, nil},
			{"--pass", "", []string{"-u", "redis://" + where, "--user", "ann", "-a", canary}, nil},
			{"REDISCLI_AUTH", "", []string{"-u", "redis://" + where, "--user", "ann"}, []string{"REDISCLI_AUTH=" + canary}},
			{"LOCKTOP_URL", "", nil, []string{"LOCKTOP_URL=" + url}},
			{"--askpass", canary + "\n", []string{"-u", "redis://" + where, "--user", "ann", "--askpass"}, nil},
			{"--context", "", []string{"--context", "c"}, nil},
			{"--password-command", "", []string{"-u", "redis://" + where, "--password-command", command}, nil},
			{"--password-file", "", []string{"-u", "redis://" + where, "--password-file", credentials}, nil},
			{"--context command", "", []string{"--context", "command"}, nil},
			{"--context file", "", []string{"--context", "file"}, nil},
			{"--redlock", "", []string{"--redlock", url}, nil},
		}
		for i, way := range ways {
			for j, command := range every(home, n) {
				if !good && (i+j)%4 != 0 { // what fails to connect fails in the same way: each way has a part of the commands
					continue
				}
				if command[0] == "load" && strings.HasPrefix(way.name, "--context") || command[0] == "load" && way.name == "--redlock" && !good {
					continue
				}
				n++
				cmd := exec.Command(program, append(append(command, "--debug", home+"/debug.jsonl"), way.args...)...)
				cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + home + "/state", "XDG_CONFIG_HOME=" + home + "/config"}, way.env...)
				cmd.Stdin = strings.NewReader(way.in)
				var out, errs strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &errs
				err := cmd.Run()
				places := leaked(map[string]string{"stdout": out.String(), "stderr": errs.String()})
				check.True(t, len(places) == 0, "%s with %s on %s: on %v: %s%s", command, way.name, where, places, &out, &errs)
				if exit := cmd.ProcessState.ExitCode(); !good && (err == nil || exit != exitNoConnect && exit != exitUsage) {
					t.Errorf("%s with %s on %s ends with %d: %s", command, way.name, where, exit, &errs)
				}
			}
		}
	}
	check.NoError(t, os.RemoveAll(filepath.Join(home, "config")))
	checkWritten(t, home)
}

// every returns every command that connects, with all files that it can write,
// in a directory. n distinguishes the file names.
func every(home string, n int) [][]string {
	file := func(name string) string { return filepath.Join(home, name) }
	fresh := file("r" + string(rune('a'+n%26)) + strings.Repeat("x", n/26) + ".lockrec")
	return [][]string{
		{"list"}, {"list", "--json"}, {"inspect", "lock:a", "--json"}, {"watch", "--for", "20ms"}, {"doctor", "--for", "20ms"},
		{"record", fresh, "--for", "60ms"}, {"release", "orders", "--write", "--yes"},
		{"load", "--duration", "60ms", "--events", file("events.jsonl"), "--html", file("report.html"), "--csv", file("seconds.csv"), "--json"},
	}
}

// checkWritten checks all files that were written.
func checkWritten(t *testing.T, home string) {
	t.Helper()
	kinds := map[string]bool{}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == home {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		check.True(t, info.Mode().Perm()&0o077 == 0 || runtime.GOOS == "windows", "others may read %s: its mode is %v", path, info.Mode().Perm())
		if d.IsDir() {
			return nil
		}
		kinds[filepath.Ext(path)] = true
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		check.True(t, len(leaked(map[string]string{path: string(data)})) == 0, "the password is in %s", path)
		return nil
	})
	check.ErrorIs(t, err, nil)
	want := []string{".jsonl", ".lockrec", ".html", ".csv"}
	if runtime.GOOS == "linux" { // others have no /proc
		want = append(want, ".txt")
	}
	for _, kind := range want {
		check.True(t, kinds[kind], "no file %s was written: the test proves little", kind)
	}
}

func TestAPasswordFileWorksOnEveryTopology(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	write(t, file, canary+"\n")
	onEachTopology(t, func(t *testing.T, s topology) {
		for _, addr := range s.servers {
			aUser(t, addr, "ann", "on", ">"+canary, "~*", "&*", "+@all")
		}
		flags := append(s.flags, "--user", "ann", "--password-file", file)
		_, said := listedOn(t, flags...)
		check.True(t, said == "", "list says %q", said)
		load := append([]string{"--clients", "4", "--hold", "10ms", "--think", "10ms", "--duration", "1s"}, flags...)
		if s.redlock() {
			load = append(load, "--kind", "redlock")
		}
		got, report := reportOf(t, load...)
		for range 10 { // on a busy machine, the servers hardly answer for a second
			if report.Figures["acquired.count"] > 0 {
				break
			}
			got, report = reportOf(t, load...)
		}
		check.True(t, report.Figures["acquired.count"] > 0, "%v: %s", report.Figures, got.errors)
		other := filepath.Join(t.TempDir(), "other")
		write(t, other, "wrong\n")
		got = locktop(t, append(append([]string{"list"}, flags[:len(flags)-1]...), other)...)
		got.says(t, exitNoConnect, "WRONGPASS")
		check.False(t, strings.Contains(got.errors, "streaming"), "with another password: %+v", got)
	})
}
