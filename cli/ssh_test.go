package cli

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// hops makes the ssh of this test that of sshHosts.
func hops(t *testing.T) (folder string) {
	t.Helper()
	folder = sshHosts(t)
	t.Setenv("PATH", filepath.Join(folder, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", folder)
	return folder
}

// sshHosts starts two sshd on loopback. The program bin/ssh in the folder reaches the host
// "inner" through the host "outer". Both have host keys that ssh knows.
func sshHosts(t *testing.T) (folder string) {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	ssh, sshErr := exec.LookPath("ssh")
	_, err = os.Stat(sshd)
	me, userErr := user.Current()
	if err != nil || sshErr != nil || userErr != nil {
		skipSSH(t, "there is no sshd or no ssh: apt-get install openssh-server openssh-client")
	}
	if me.Uid == "0" {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // for the privilege separation of sshd
			skipSSH(t, err.Error())
		}
	}
	folder = socketDir(t)
	file := func(name string) string { return filepath.Join(folder, name) }
	for _, key := range []string{"outer", "inner", "own"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", file(key)).CombinedOutput()
		check.Require(t, err == nil, "ssh-keygen: %v: %s", err, out)
	}
	var config, known strings.Builder
	for _, host := range []string{"outer", "inner"} {
		port := freePort(t)
		write(t, file(host+".conf"), fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\n"+
			"PidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n", port, file(host), file("own.pub")))
		spawnCommand(t, exec.Command(sshd, "-D", "-e", "-f", file(host+".conf"))).errs.sees(t, "Server listening on")
		fmt.Fprintf(&config, "Host %s\n  HostName 127.0.0.1\n  Port %s\n  HostKeyAlias %s\n", host, port, host)
		key := readText(t, file(host+".pub"))
		fmt.Fprintf(&known, "%s %s", host, key)
	}
	fmt.Fprintf(&config, "  ProxyJump outer\nHost *\n  User %s\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n  GlobalKnownHostsFile /dev/null\n",
		me.Username, file("own"), file("known"))
	write(t, file("config"), config.String())
	write(t, file("known"), known.String())
	check.NoError(t, os.Mkdir(file("bin"), 0o700))
	write(t, file("bin/ssh"), "#!/bin/sh\nexec "+ssh+" -F "+file("config")+" \"$@\"\n")
	check.NoError(t, os.Chmod(file("bin/ssh"), 0o700))
	return folder
}

func write(t *testing.T, path, text string) {
	t.Helper()
	check.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// sshProcesses returns the processes of ssh that use a folder.
func sshProcesses(t *testing.T, folder string) []string {
	var all []string
	for _, p := range processes(t) {
		own := strings.HasPrefix(p.args, "ssh") && strings.Contains(p.args, folder+"/locktop-ssh-")
		if own || strings.HasPrefix(p.args, "/usr/bin/ssh ") && strings.Contains(p.args, folder) {
			all = append(all, p.args)
		}
	}
	return all
}

// process is a process of this machine, as far as this user may see it.
type process struct{ args, env, cwd string }

// processes returns all processes, where there is /proc.
func processes(t *testing.T) (all []process) {
	t.Helper()
	folders := check.Must(filepath.Glob("/proc/[0-9]*"))(t)
	for _, folder := range folders {
		args, _ := os.ReadFile(folder + "/cmdline") // it may have ended, or belong to another user
		env, _ := os.ReadFile(folder + "/environ")
		cwd, _ := os.Readlink(folder + "/cwd")
		all = append(all, process{strings.ReplaceAll(string(args), "\x00", " "), string(env), cwd})
	}
	return all
}

// Through two hops, locktop reaches one server, the master that Sentinels name, and all
// nodes of a cluster, for reading and for a load, and leaves no process.
func TestServersAreReachedThroughSSH(t *testing.T) {
	testtier.Long(t, "it starts sshd for each way to connect")
	folder := hops(t)
	single := servertest.RedisForTest(t)
	send(t, single.Addr(), "SET", "lock:a", token, "PX", "600000")
	group := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
	send(t, group.Master().Addr(), "SET", "lock:a", token, "PX", "600000")
	cluster := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	rdb := clusterClient(t, cluster)
	check.NoError(t, rdb.Set(t.Context(), "lock:a", token, 0).Err())
	t.Run("all", func(t *testing.T) { // ends when each of them has ended
		for name, flags := range map[string][]string{
			"single":   {"-u", "redis://" + single.Addr()},
			"sentinel": {"--sentinel", group.Sentinels()[0], "--master", servertest.SentinelMaster},
			"cluster":  {"--cluster", "-u", "redis://" + cluster.Addrs()[0]},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				flags = append(flags, "--ssh", "inner")
				doc, said := listedOn(t, flags...)
				lockNamed(t, doc, "lock:a")
				check.True(t, said == "", "it says %q", said)
				load := append([]string{"load", "--json", "--clients", "2", "--hold", "10ms", "--think", "10ms", "--duration", "4s",
					"--timeout", "10s", "--threshold", "outage.longest < 1m"}, flags...)
				locktop(t, load...).fails(t, exitUsage, "behind inner is on another machine")
				locktop(t, append(load, "--yes-load-this-server")...).says(t, exitFine)
			})
		}
	})
	configure(t, 0o600, "contexts:", "  far: {url: 'redis://"+single.Addr()+"', ssh: inner}", "  bad: {ssh: -oNo}")
	for _, flags := range [][]string{{"--context", "far"}, {"-u", "redis://" + single.Addr(), "--ssh", "inner"}} {
		got := locktop(t, append([]string{"inspect", "lock:a"}, flags...)...)
		check.True(t, got.code == exitFine && strings.Contains(got.out, flags[len(flags)-2]+" "+flags[len(flags)-1]), "%v: %+v", flags, got)
	}
	locktop(t, "list", "--context", "bad").fails(t, exitUsage, "ssh of context bad is not a host for ssh")
	eventually(t, func() bool { return len(sshProcesses(t, folder)) == 0 })
	left, _ := filepath.Glob(folder + "/locktop-ssh-*")
	check.True(t, len(left) == 0, "left: %v", left)

	killed := spawn(t, "watch", "-u", "redis://"+single.Addr(), "--ssh", "inner")
	killed.out.sees(t, "appeared lock:a")
	check.AtLeast(t, len(sshProcesses(t, folder)), 2, "processes")
	killed.kill() // not even the processes of ssh outlive it
	eventually(t, func() bool { return len(sshProcesses(t, folder)) == 0 })
}

func TestWhatSSHRefusesIsOneLine(t *testing.T) {
	testtier.Long(t, "it starts sshd")
	folder := hops(t)
	addr := servertest.RedisForTest(t).Addr()
	for name, c := range map[string]struct {
		host, addr string
		code       int
		said       string
	}{
		"no such server": {"inner", "127.0.0.1:1", exitNoConnect, "ssh inner does not reach 127.0.0.1:1: "},
		"no such host":   {"nobody.invalid", addr, exitNoConnect, "connect through ssh to nobody.invalid: ssh: Could not resolve hostname"},
		"an option":      {"-oProxyCommand=touch$IFS" + folder + "/hacked", addr, exitUsage, "--ssh is not a host for ssh"},
		"a command":      {"a;touch", addr, exitUsage, "--ssh is not a host for ssh"},
		"nothing":        {"", addr, exitUsage, "--ssh is not a host for ssh"},
	} {
		t.Run(name, func(t *testing.T) {
			locktop(t, "list", "-u", "redis://"+c.addr, "--ssh="+c.host).fails(t, c.code, c.said)
		})
	}
	write(t, filepath.Join(folder, "known"), "")
	for _, host := range []string{"outer", "inner"} {
		got := locktop(t, "list", "-u", "redis://"+addr, "--ssh", host)
		got.fails(t, exitNoConnect)
		check.True(t, host != "outer" || strings.Contains(got.errors, "connect through ssh to outer: Host key verification failed. ("),
			"it says %q", got.errors)
	}
	_, err := os.Stat(folder + "/hacked")
	check.True(t, err != nil, "ssh ran a command of --ssh")
}

// skipSSH skips a test that needs ssh; where nothing real may be skipped, it fails.
func skipSSH(t *testing.T, why string) {
	t.Helper()
	check.Require(t, os.Getenv("LOCKTOP_REQUIRE_REDIS") == "", "%v", why)
	t.Skip(why)
}
