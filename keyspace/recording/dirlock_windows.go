package recording

import (
	"errors"
	"os"
	"syscall"
)

// errSharingViolation is the error of a file that another process has opened alone.
const errSharingViolation = syscall.Errno(32)

// lockFile opens a file that no other process can open. The lock ends when the file is
// closed or the process ends. The error is [ErrLocked] if another process has the lock.
func lockFile(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), name), nil
}
