package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

func TestOnlyTheOwnerCanReadTheAuditLog(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for range 2 { // the second run appends
		l, err := openAudit("")
		check.NoError(t, err)
		if err := l.Write(keyspace.AuditRecord{ID: "1", Action: keyspace.ForceRelease, Lock: keyspace.ID{Key: "a\x1b[2J\n"}, Outcome: keyspace.Intended}); err != nil {
			t.Fatal(err)
		}
		check.NoError(t, l.close())
		check.True(t, l.Write(keyspace.AuditRecord{}) != nil, "a log that is closed takes another line")
	}
	path := filepath.Join(os.Getenv("XDG_STATE_HOME"), "locktop", "audit.jsonl")
	info := check.Must(os.Stat(path))(t)
	check.True(t, info.Mode().Perm() == 0o600, "its mode is %v", info.Mode())
	lines := audited(t)
	if len(lines) != 2 || lines[0].Key != "a\x1b[2J\n" || lines[0].Act != keyspace.ForceRelease || lines[0].Outcome != keyspace.Intended || strings.Contains(readText(t, path), "\x1b") {
		t.Errorf("written is %+v", lines)
	}
}

// The audit log names the user of the system, and not what the environment says.
func TestTheAuditNamesThePersonAndTheServers(t *testing.T) {
	t.Parallel()
	srv := server.ForTest(t, "--rename-command", "FLUSHALL", "")
	aUser(t, srv.Addr(), "ann", "on", ">pw", "~*", "&*", "+@all")
	uid := strconv.Itoa(os.Getuid())
	for _, tt := range []struct {
		env []string
		url string
		who actor
	}{
		{[]string{"USER=somebody-else", "LOGNAME=somebody-else", "SUDO_USER=bob"}, "redis://ann:pw@" + srv.Addr(), actor{SudoUser: "bob", RedisUser: "ann"}},
		{nil, "redis://" + srv.Addr(), actor{RedisUser: "default"}},
	} {
		state := t.TempDir()
		send(t, srv.Addr(), "SET", "lock:a", token, "PX", "60000")
		s := spawnIn(t, append([]string{"PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + state}, tt.env...), "release", "lock:a", "--write", "--yes", "-u", tt.url)
		s.exits(exitFine)
		check.True(t, s.out.String() == "lock:a is released\n" && value(t, srv.Addr(), "lock:a") == "", "it says %s", s.out)
		tt.who.UID = uid
		tt.who.Host, _ = os.Hostname()
		name, err := exec.Command("id", "-un").Output()
		if err == nil {
			tt.who.User = strings.TrimSpace(string(name))
		}
		lines := auditedIn(t, filepath.Join(state, "locktop", "audit.jsonl"))
		check.Require(t, len(lines) == 2, "%d lines", len(lines))
		for i, line := range lines {
			check.True(t, line.actor == tt.who && line.Act == "release" && slices.Equal(line.Servers, []string{srv.Addr()}) && line.Key == "lock:a" &&
				line.Outcome == []keyspace.Outcome{keyspace.Intended, keyspace.Done}[i] && line.ID == lines[0].ID,
				"written is %+v, want %+v at %s", line, tt.who, srv.Addr())
		}
		check.False(t, strings.Contains(lines[0].Holders[0], token), "the token was written down")
	}
}

func TestTheAuditNamesTheNodeOfACluster(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	rig := server.ClusterForTest(t, server.ClusterOptions{})
	rdb := clusterClient(t, rig)
	for i := range rig.Addrs() {
		for n := 0; ; n++ { // a key of this node
			key := fmt.Sprintf("lock:%d:%d", i, n)
			node := check.Must(rdb.MasterForKey(t.Context(), key))(t)
			if node.Options().Addr != rig.Addrs()[i] {
				continue
			}
			check.NoError(t, rdb.Set(t.Context(), key, token, time.Hour).Err())
			ran(t, "release", key, "--write", "--yes", "--cluster", "-u", "redis://"+rig.Addrs()[0]).says(t, exitFine)
			lines := audited(t)
			check.True(t, len(lines) == 2 && slices.Equal(lines[1].Servers, []string{rig.Addrs()[i]}), "%s of %s: %+v", key, rig.Addrs()[i], lines)
			break
		}
	}
}

// The outcome names the servers of a Redlock on which the lock was released, the intent
// those on which it was seen.
func TestTheAuditNamesTheServersOfARedlock(t *testing.T) {
	rig := server.IndependentForTest(t, 3)
	all, release := nodesOf(rig), append([]string{"release", "lock:a", "--write", "--yes"}, redlockFlags(rig)...)
	for _, addr := range all {
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
	}
	send(t, all[2], "ACL", "SETUSER", "default", "-eval") // it refuses the release
	ran(t, release...).says(t, exitFine)
	lines := audited(t)
	check.True(t, len(lines) == 2 && slices.Equal(lines[0].Servers, all) && slices.Equal(lines[1].Servers, all[:2]), "%+v", lines)
	for _, addr := range all[:2] {
		send(t, addr, "ACL", "SETUSER", "default", "-eval")
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
	}
	ran(t, release...).says(t, exitFailure, `release "lock:a" at `+all[0])
	lines = audited(t)
	check.True(t, len(lines[1].Servers) == 0 && lines[1].Outcome == keyspace.Failed, "%+v", lines)
}

// The log is where --audit-log or the context says: in a file, or at a syslog daemon.
func TestTheAuditLogIsWhereTheUserSays(t *testing.T) {
	addr := server.ForTest(t).Addr()
	home := t.TempDir()
	socket := filepath.Join(home, "log")
	daemon := check.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(t)
	defer daemon.Close()
	file := filepath.Join(home, "central.jsonl")
	configure(t, 0o600, "contexts:", "  prod:", "    url: redis://"+addr, "    audit_log: "+file)
	release := func(args ...string) outcome {
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
		got := ran(t, append([]string{"release", "lock:a", "--write", "--yes"}, args...)...)
		own := audited(t)
		check.True(t, own == nil, "%q writes to the log of the user, too: %+v", args, own)
		return got
	}
	for _, args := range [][]string{{"--context", "prod"}, {"--context", "prod", "--audit-log", "syslog:" + socket}} {
		release(args...).says(t, exitFine)
		check.True(t, len(auditedIn(t, file)) == 2, "%q: %+v", args, auditedIn(t, file))
	}
	for _, want := range []keyspace.Outcome{keyspace.Intended, keyspace.Done} {
		packet := make([]byte, 64<<10)
		check.NoError(t, daemon.SetReadDeadline(time.Now().Add(longestWait)))
		n := check.Must(daemon.Read(packet))(t)
		head, text, _ := strings.Cut(string(packet[:n]), "]: ")
		const priority = "<85>" // authpriv.notice
		if decoded[auditLine](t, text).Outcome != want || !strings.HasPrefix(head, priority) || !strings.Contains(head, "locktop[") {
			t.Errorf("got %q, want %s", packet[:n], want)
		}
	}
	check.NoError(t, errors.Join(daemon.Close(), os.RemoveAll(socket)))
	release("--audit-log", "syslog:"+socket, "-u", "redis://"+addr).fails(t, exitFailure, "nothing was changed")
	check.True(t, value(t, addr, "lock:a") == token, "it was released without a daemon")
}
