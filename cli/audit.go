package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"locktop/cli/render"
	"locktop/keyspace"
)

// auditLog appends one JSON object per line for each action on another client's
// lock. The intent is on disk before the action. It is safe for concurrent use.
type auditLog struct {
	mu   sync.Mutex
	file *os.File
}

// auditLine is one line of an auditLog. Its holders are digests, because a token
// permits its reader to release the lock.
type auditLine struct {
	ID      string           `json:"id"` // the same for the intent and the outcome
	At      string           `json:"at"`
	User    string           `json:"user,omitempty"` // the user of this machine
	Server  string           `json:"server"`
	Act     keyspace.Action  `json:"act"`
	Outcome keyspace.Outcome `json:"outcome"`
	Key     string           `json:"key"`
	KeyB64  string           `json:"key_b64,omitempty"` // set if the key is not valid UTF-8
	DB      int              `json:"db"`
	Format  string           `json:"format"`
	Holders []string         `json:"holders,omitempty"`
	TTLms   int64            `json:"ttl_ms,omitempty"`
	Nodes   int              `json:"nodes,omitempty"` // number of servers with a change
	Now     string           `json:"now,omitempty"`   // the current holder, if the lock has changed
	Error   string           `json:"error,omitempty"`
}

// openAudit opens the log in the user's state directory. Only the user can read
// the file.
func openAudit() (*auditLog, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("find a place for the audit log: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	folder := filepath.Join(state, "locktop")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	path := filepath.Join(folder, "audit.jsonl")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if err := ownersOnly(f, path); err != nil {
		return nil, errors.Join(fmt.Errorf("open the audit log: %w", err), f.Close())
	}
	return &auditLog{file: f}, nil
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
	var line bytes.Buffer
	if err := render.JSON(&line, lineOf(a)); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.file.Write(line.Bytes())
	if err := errors.Join(err, l.file.Sync()); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

func lineOf(a keyspace.AuditRecord) auditLine {
	line := auditLine{
		ID: a.ID, At: render.Timestamp(a.At), User: os.Getenv("USER"), Server: render.Text(a.Lock.Node), Act: a.Action, Outcome: a.Outcome,
		Key: render.Text(a.Lock.Key), KeyB64: render.Base64(a.Lock.Key), DB: a.Lock.DB, Format: a.Format, TTLms: a.TTL.Milliseconds(),
		Nodes: a.Nodes, Now: render.Text(a.Now), Error: render.Text(a.Err),
	}
	for _, h := range a.Holders {
		line.Holders = append(line.Holders, render.Text(h))
	}
	return line
}

func (l *auditLog) close() error { return errors.Join(l.file.Sync(), l.file.Close()) }
