package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"locktop/keyspace"
)

// auditLog writes down what is done to the locks of others: a JSON object a
// line, on disk before anything is done. It may be used from several goroutines.
type auditLog struct {
	mu   sync.Mutex
	file *os.File
}

// auditLine is one line of it. Keys and errors are escaped by JSON; tokens are
// digests.
type auditLine struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	User    string    `json:"user,omitempty"`
	Server  string    `json:"server"`
	Act     string    `json:"act"`
	Outcome string    `json:"outcome"`
	Key     string    `json:"key"`
	DB      int       `json:"db"`
	Format  string    `json:"format"`
	Holders []string  `json:"holders,omitempty"`
	TTLms   int64     `json:"ttl_ms,omitempty"`
	Nodes   int       `json:"nodes,omitempty"`
	Now     string    `json:"now,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// openAudit opens the log where the user's state is kept, readable by nobody
// else.
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
	f, err := os.OpenFile(filepath.Join(folder, "audit.jsonl"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return &auditLog{file: f}, nil
}

// Write implements keyspace.Journal.
func (l *auditLog) Write(a keyspace.Audit) error {
	line, err := json.Marshal(auditLine{
		ID: a.ID, At: a.At, User: os.Getenv("USER"), Server: a.Lock.Node, Act: string(a.Act), Outcome: string(a.Outcome),
		Key: a.Lock.Key, DB: a.Lock.DB, Format: a.Format, Holders: a.Holders, TTLms: a.TTL.Milliseconds(),
		Nodes: a.Nodes, Now: a.Now, Error: a.Err,
	})
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

func (l *auditLog) close() error { return errors.Join(l.file.Sync(), l.file.Close()) }
