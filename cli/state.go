package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"locktop/tui"
)

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

// stateFile keeps the settings of the screen in the user's state directory.
type stateFile struct {
	warning func(format string, args ...any)
}

func (stateFile) path() (string, error) {
	folder, err := stateFolder()
	return filepath.Join(folder, "screen.json"), err
}

// Recall implements [tui.Memory].
func (f stateFile) Recall() (r tui.Remembered, err error) {
	path, err := f.path()
	if err != nil {
		return r, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil && json.Unmarshal(text, &r) != nil {
		return tui.Remembered{}, fmt.Errorf("%s is damaged", path)
	}
	return r, err
}

// Remember implements [tui.Memory]. The file is complete or not there.
func (f stateFile) Remember(r tui.Remembered) {
	if err := f.write(r); err != nil {
		f.warning("remember the settings of the screen: %v", err)
	}
}

func (f stateFile) write(r tui.Remembered) error {
	path, err := f.path()
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "screen-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(append(text, '\n'))
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
