package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"locktop/cli/render"
	"locktop/keyspace"
)

// auditLog writes one JSON object per line for each action on another client's lock. The
// intent is durable, or the syslog daemon has it, before the action. It is safe for
// concurrent use.
type auditLog struct {
	mu  *sync.Mutex // for to, which the logs of several users share
	to  io.WriteCloser
	who actor
}

// actor says in the audit log who acts.
type actor struct {
	User      string `json:"user,omitempty"` // name of the UID, from the user database of the system
	UID       string `json:"uid,omitempty"`
	SudoUser  string `json:"sudo_user,omitempty"` // who called sudo, as sudo says
	Host      string `json:"host,omitempty"`
	RedisUser string `json:"redis_user,omitempty"`
}

// auditLine is one line of an auditLog. Its holders are digests, because a token
// permits its reader to release the lock.
type auditLine struct {
	ID string `json:"id"` // the same for all lines of an action
	At string `json:"at"`
	actor
	Action  keyspace.Action  `json:"action"`
	Outcome keyspace.Outcome `json:"outcome"`
	render.LockID
	Format        string   `json:"format"`
	HolderDigests []string `json:"holder_digests"`
	TTLMS         int64    `json:"ttl_ms,omitzero"`       // that the action gives
	Servers       []string `json:"servers"`               // intended: where it is tried; held: where the hold is; otherwise where it was done
	Unanswered    []string `json:"unanswered,omitzero"`   // nil: nothing was sent yet
	ServerCount   int      `json:"server_count,omitzero"` // of a Redlock
	Now           string   `json:"now,omitzero"`          // the current holders, if the lock has changed or was read again
	Error         string   `json:"error,omitzero"`
}

// auditUsage is the help of --audit-log.
const auditUsage = "`file` for the lines about each action, or syslog: for the local syslog daemon or journald"

// openAudit opens the log: a file that only the user can read, or syslog. An empty name is
// the file in the user's state directory.
func openAudit(name string) (*auditLog, error) {
	l := &auditLog{mu: new(sync.Mutex), who: currentActor()}
	var err error
	if socket, found := strings.CutPrefix(name, "syslog:"); found {
		l.to, err = openSyslog(socket)
	} else {
		l.to, err = openAuditFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return l, nil
}

// currentActor returns the user of this process, and the host.
func currentActor() actor {
	who := actor{SudoUser: os.Getenv("SUDO_USER")}
	who.Host, _ = os.Hostname()
	// Package os/user falls back to $USER for a user that it does not find.
	if name, set := os.LookupEnv("USER"); set {
		defer os.Setenv("USER", name)
		os.Unsetenv("USER")
	}
	if u, err := user.Current(); err == nil {
		who.User, who.UID = u.Username, u.Uid
	} else if uid := os.Getuid(); uid >= 0 {
		who.UID = strconv.Itoa(uid)
	}
	return who
}

// syncedFile is a file whose writes are durable.
type syncedFile struct{ *os.File }

// Write implements [io.Writer]. It returns when the bytes are durable.
func (f syncedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, errors.Join(err, f.Sync())
}

// openAuditFile opens a file for the audit log; an empty path is the one in the user's state
// directory.
func openAuditFile(path string) (io.WriteCloser, error) {
	if path == "" {
		folder, err := stateFolder()
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		path = filepath.Join(folder, "audit.jsonl")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := ownersOnly(f, path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return syncedFile{f}, nil
}

// stateFolder returns locktop's folder in the user's state directory, which may not exist.
func stateFolder() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "locktop"), nil
}

// ownersOnly returns an error unless f is a regular file that only its owner can
// read.
func ownersOnly(f *os.File, path string) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may read %s: its mode must be 600", path)
	}
	return nil
}

// Write implements release.AuditLog.
func (l *auditLog) Write(a keyspace.AuditRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := auditLine{
		ID: a.ID, At: render.Timestamp(a.At), actor: l.who, Action: a.Action, Outcome: a.Outcome, LockID: render.LockIDOf(a.Lock), Format: a.Format,
		HolderDigests: render.Each(a.Holders, render.Text), TTLMS: a.TTL.Milliseconds(), Servers: render.Each(a.Nodes, render.Text),
		ServerCount: a.Of, Now: render.Text(a.Now), Error: render.Text(a.Err),
	}
	if a.Outcome != keyspace.Intended {
		line.Unanswered = render.Each(a.Unanswered, render.Text)
	}
	if err := render.JSON(l.to, line); err != nil { // with one Write
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// as returns the log for the actions of a Redis user.
func (l *auditLog) as(redisUser string) *auditLog {
	other := *l
	other.who.RedisUser = redisUser
	return &other
}

func (l *auditLog) close() error { return l.to.Close() }
