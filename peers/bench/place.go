package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"locktop/peers/contest"
)

// place describes the machine and the programs of a measurement.
type place struct {
	machine string
	redis   string
	modules []string // name and version
}

func survey(ctx context.Context, a *contest.Arena) (place, error) {
	version, err := a.Version(ctx)
	return place{
		machine: fmt.Sprintf("%s, %d logical CPUs, %s/%s, %s", cpu(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
		redis:   version,
		modules: modules(),
	}, err
}

// cpu returns the name of the processor, if the system reports it.
func cpu() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "a processor of unknown name"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "a processor of unknown name"
}

// modules returns the compared libraries with the versions in this binary.
func modules() []string {
	measured := []string{
		"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4",
		"github.com/bsm/redislock", "github.com/redis/rueidis",
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found []string
	for _, m := range info.Deps {
		if slices.Contains(measured, m.Path) {
			found = append(found, m.Path+" "+m.Version)
		}
	}
	return found
}
