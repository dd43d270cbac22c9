package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// frameSaver saves frames and scenarios in a folder; "" is the current folder.
type frameSaver struct{ folder string }

// Save writes a new file named after the time. Only its owner can read the file,
// because a frame may show secrets.
func (a frameSaver) Save(name string, data []byte) (string, error) {
	stamp := time.Now().Format("20060102-150405")
	for n := range 100 {
		mark := ""
		if n > 0 {
			mark = fmt.Sprintf("-%d", n)
		}
		path := filepath.Join(a.folder, "locktop-"+stamp+mark+filepath.Ext(name))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("save: %w", err)
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("save: %w", err)
		}
		return path, nil
	}
	return "", fmt.Errorf("save: there are a hundred of this second already")
}
