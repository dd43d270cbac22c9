//go:build !unix || solaris || aix

package server

import "os"

// lockFolder returns no file: these systems have no locks on directories. So the directories of
// a killed process stay.
func lockFolder(string) (*os.File, error) { return nil, nil }
