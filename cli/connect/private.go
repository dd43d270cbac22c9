package connect

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"locktop/internal/shell"
	"locktop/tui/widget"
)

// othersCanChange reports whether a regular file can be changed by users other than its
// owner.
func othersCanChange(info os.FileInfo) bool { return permits(info, 0o022) }

// allCanRead reports whether a regular file can be read by every user of this machine. A
// file for a group is not one: Kubernetes and ssl-cert of Debian have keys for a group.
func allCanRead(info os.FileInfo) bool { return permits(info, 0o004) }

// permits reports whether the mode of a regular file has any of the bits. Windows has none.
func permits(info os.FileInfo, bits fs.FileMode) bool {
	return os.PathSeparator == '/' && info.Mode().IsRegular() && info.Mode().Perm()&bits != 0
}

// readPrivate reads the begin of a file with a password or a key, at most one byte more
// than maxSecret. It refuses a file that others can change.
func readPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && othersCanChange(info) {
		return nil, errors.New(withChmod("others may change "+path, path))
	}
	return io.ReadAll(io.LimitReader(file, maxSecret+1))
}

// withChmod appends the hint of chmodHint to a text about a file.
func withChmod(text, path string) string {
	if hint := chmodHint(path); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// chmodHint returns a hint with the command that hides a file from other users. It
// returns "" if the name has characters that a line for people cannot show.
func chmodHint(path string) string {
	line, _ := shell.Line("chmod", "600", path)
	if widget.Plain(line) != line {
		return ""
	}
	return line
}
