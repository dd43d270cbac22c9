package metrics

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of times in /proc: Linux has the same one on all its platforms.
const ticksPerSecond = 100

// WriteProcess writes the metrics of this process, with the names that all exporters use. A system
// without /proc has only those of Go.
func WriteProcess(to io.Writer) error {
	p := &page{out: bufio.NewWriter(to)}
	one := func(name, kind, help string, n float64) {
		p.begin(name, kind, help)
		p.number(n)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	one("go_goroutines", gauge, "Goroutines of the process.", float64(runtime.NumGoroutine()))
	one("go_memstats_alloc_bytes", gauge, "Memory of Go that is in use.", float64(memory.Alloc))
	stat, _ := os.ReadFile("/proc/self/stat") // nothing where there is no /proc
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 22 {
		return p.out.Flush()
	}
	field := func(i int) float64 { // as proc(5) counts, from the state of the process, which is 3
		n, _ := strconv.ParseFloat(fields[i-3], 64)
		return n
	}
	one("process_cpu_seconds_total", counter, "CPU time of the process.", (field(14)+field(15))/ticksPerSecond)
	one("process_virtual_memory_bytes", gauge, "Virtual memory of the process.", field(23))
	one("process_resident_memory_bytes", gauge, "Memory of the process.", field(24)*float64(os.Getpagesize()))
	if system, err := os.ReadFile("/proc/stat"); err == nil {
		_, after, _ := strings.Cut(string(system), "\nbtime ")
		booted, _, _ := strings.Cut(after, "\n")
		if at, err := strconv.ParseFloat(booted, 64); err == nil {
			one("process_start_time_seconds", gauge, "When the process began.", at+field(22)/ticksPerSecond)
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		one("process_open_fds", gauge, "Open files of the process.", float64(len(open)))
	}
	return p.out.Flush()
}
