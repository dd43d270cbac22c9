package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// folderName begins the names of the servers' directories in the temporary folder, and
// unclaimedName those of directories that are not locked yet.
const (
	folderName    = "locktop-redis-"
	unclaimedName = "locktop-start-"
)

// folder is the directory of a server or of a test. Its lock lasts until remove is called or, after a crash,
// until both this process and the server have ended.
type folder struct {
	path string
	lock *os.File // nil if the system has no locks on directories
}

// removeOnce removes what killed processes have left, before the first folder of this process.
var removeOnce sync.Once

// tempDir is the temporary folder of the system. A later change of TMPDIR does not change it.
var tempDir = os.TempDir()

// newFolder makes the directory of a server in the temporary folder. Only when it is locked, it
// gets a name that removeLeftovers looks for.
func newFolder() (*folder, error) {
	removeOnce.Do(func() { removeLeftovers(tempDir) })
	unclaimed, err := os.MkdirTemp(tempDir, unclaimedName)
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(unclaimed)
	f := &folder{lock: lock, path: filepath.Join(filepath.Dir(unclaimed), folderName+strings.TrimPrefix(filepath.Base(unclaimed), unclaimedName))}
	if err == nil {
		err = os.Rename(unclaimed, f.path)
	}
	if err != nil {
		_ = f.remove()
		_ = os.RemoveAll(unclaimed)
		return nil, err
	}
	return f, nil
}

// TempDir makes a directory for tests in the temporary folder. If this process is killed before it
// calls remove, the next start of a server or of TempDir removes the directory.
func TempDir() (path string, remove func() error, err error) {
	f, err := newFolder()
	if err != nil {
		return "", nil, err
	}
	return f.path, f.remove, nil
}

// empty removes what is in the directory.
func (f *folder) empty() error {
	entries, err := os.ReadDir(f.path)
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(f.path, e.Name())); err != nil {
			return err
		}
	}
	return err
}

// remove removes the directory and unlocks it.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		_ = f.lock.Close()
	}
	return err
}

// removeLeftovers removes the directories of servers in dir that no process has locked. It
// ignores what it cannot remove.
func removeLeftovers(dir string) {
	names, err := filepath.Glob(filepath.Join(dir, folderName+"*"))
	if err != nil {
		panic(fmt.Sprintf("the pattern %q: %v", folderName, err))
	}
	for _, name := range names {
		if lock, err := lockFolder(name); err == nil && lock != nil {
			_ = os.RemoveAll(name)
			_ = lock.Close()
		}
	}
}
