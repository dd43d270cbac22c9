package cli

import (
	"encoding/json"
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

	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

func TestOnlyTheOwnerCanReadTheAuditLog(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for range 2 { // the second run appends
		l, err := openAudit("")
		must(t, err)
		if err := l.Write(keyspace.AuditRecord{ID: "1", Action: keyspace.ForceRelease, Lock: keyspace.ID{Key: "a\x1b[2J\n"}, Outcome: keyspace.Intended}); err != nil {
			t.Fatal(err)
		}
		must(t, l.close())
		if l.Write(keyspace.AuditRecord{}) == nil {
			t.Error("a log that is closed takes another line")
		}
	}
	path := filepath.Join(os.Getenv("XDG_STATE_HOME"), "locktop", "audit.jsonl")
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v", info.Mode())
	}
	text := readText(t, path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), text)
	}
	got := decoded[auditLine](t, lines[0])
	if got.Key != "a\x1b[2J\n" || got.Act != keyspace.ForceRelease || got.Outcome != keyspace.Intended || strings.Contains(string(text), "\x1b") {
		t.Errorf("written is %q", lines[0])
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
		tt.who.UID = uid
		tt.who.Host, _ = os.Hostname()
		name, err := exec.Command("id", "-un").Output()
		if err == nil {
			tt.who.User = strings.TrimSpace(string(name))
		}
		lines := auditedIn(t, filepath.Join(state, "locktop", "audit.jsonl"))
		if len(lines) != 2 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			if line.actor != tt.who || line.Act != "release" || !slices.Equal(line.Servers, []string{srv.Addr()}) {
				t.Errorf("written is %+v, want %+v at %s", line, tt.who, srv.Addr())
			}
		}
	}
}

// In a cluster the audit log has the node with the lock.
func TestTheAuditNamesTheNodeOfACluster(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	rig := server.ClusterForTest(t, server.ClusterOptions{})
	rdb := clusterClient(t, rig)
	for i := range rig.Addrs() {
		for n := 0; ; n++ { // a key of this node
			key := fmt.Sprintf("lock:%d:%d", i, n)
			node, err := rdb.MasterForKey(t.Context(), key)
			must(t, err)
			if node.Options().Addr != rig.Addrs()[i] {
				continue
			}
			must(t, rdb.Set(t.Context(), key, token, time.Hour).Err())
			_, said, code := ran(t, "release", key, "--write", "--yes", "--cluster", "-u", "redis://"+rig.Addrs()[0])
			lines := audited(t)
			if code != exitFine || len(lines) != 2 || !slices.Equal(lines[1].Servers, []string{rig.Addrs()[i]}) {
				t.Errorf("%s of %s: code %d, %s%+v", key, rig.Addrs()[i], code, said, lines)
			}
			break
		}
	}
}

// The outcome names the servers of a Redlock on which the lock was released, the intent
// those on which it was seen.
func TestTheAuditNamesTheServersOfARedlock(t *testing.T) {
	rig := server.IndependentForTest(t, 3)
	var all []string
	for _, node := range rig.Nodes() {
		send(t, node.Addr(), "SET", "lock:a", token, "PX", "60000")
		all = append(all, node.Addr())
	}
	deaf := rig.Nodes()[2].Addr()
	send(t, deaf, "ACL", "SETUSER", "default", "-eval")
	_, said, code := ran(t, "release", "lock:a", "--write", "--yes", "--redlock", strings.Join(all, ","))
	lines := audited(t)
	if code != exitFine || len(lines) != 2 || !slices.Equal(lines[0].Servers, all) || !slices.Equal(lines[1].Servers, all[:2]) {
		t.Errorf("code %d: %s%+v", code, said, lines)
	}
	for _, node := range rig.Nodes()[:2] {
		send(t, node.Addr(), "ACL", "SETUSER", "default", "-eval")
		send(t, node.Addr(), "SET", "lock:a", token, "PX", "60000")
	}
	_, said, code = ran(t, "release", "lock:a", "--write", "--yes", "--redlock", strings.Join(all, ","))
	lines = audited(t)
	if code != exitFailure || !strings.Contains(said, `release "lock:a" at `+all[0]) || len(lines[1].Servers) != 0 || lines[1].Outcome != keyspace.Failed {
		t.Errorf("code %d: %s%+v", code, said, lines)
	}
}

// The log is where --audit-log or the context says: in a file, or at a syslog daemon.
func TestTheAuditLogIsWhereTheUserSays(t *testing.T) {
	addr := server.ForTest(t).Addr()
	home := t.TempDir()
	socket := filepath.Join(home, "log")
	daemon, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer daemon.Close()
	file := filepath.Join(home, "central.jsonl")
	t.Setenv("XDG_CONFIG_HOME", home)
	must(t, os.Mkdir(filepath.Join(home, "locktop"), 0o700))
	write(t, filepath.Join(home, "locktop", "config.yaml"), "contexts:\n  prod:\n    url: redis://"+addr+"\n    audit_log: "+file+"\n")
	release := func(args ...string) (said string, code int) {
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
		_, said, code = ran(t, append([]string{"release", "lock:a", "--write", "--yes"}, args...)...)
		if own := audited(t); own != nil {
			t.Errorf("%q writes to the log of the user, too: %+v", args, own)
		}
		return said, code
	}
	if said, code := release("--context", "prod"); code != exitFine || len(auditedIn(t, file)) != 2 {
		t.Errorf("code %d: %s", code, said)
	}
	if said, code := release("--context", "prod", "--audit-log", "syslog:"+socket); code != exitFine || len(auditedIn(t, file)) != 2 {
		t.Errorf("code %d: %s", code, said)
	}
	for _, want := range []keyspace.Outcome{keyspace.Intended, keyspace.Done} {
		packet := make([]byte, 64<<10)
		must(t, daemon.SetReadDeadline(time.Now().Add(longestWait)))
		n, err := daemon.Read(packet)
		must(t, err)
		head, text, _ := strings.Cut(string(packet[:n]), "]: ")
		var line auditLine
		const priority = "<85>" // authpriv.notice
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Outcome != want || !strings.HasPrefix(head, priority) || !strings.Contains(head, "locktop[") {
			t.Errorf("%v: got %q, want %s", err, packet[:n], want)
		}
	}
	must(t, errors.Join(daemon.Close(), os.RemoveAll(socket)))
	if said, code := release("--audit-log", "syslog:"+socket, "-u", "redis://"+addr); code != exitFailure || !strings.Contains(said, "nothing was changed") || value(t, addr, "lock:a") != token {
		t.Errorf("without a daemon: code %d: %s", code, said)
	}
}
