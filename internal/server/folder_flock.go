//go:build unix && !solaris && !aix

package server

import (
	"fmt"
	"os"
	"syscall"
)

// lockFolder opens a directory of this user and locks it. The lock ends when the last
// process that has the file closes it. The error says that another process has the lock.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
		err = fmt.Errorf("%s is of another user", path)
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
