package server

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

var errNotRunning = errors.New("it does not run")

// process is one run of a redis-server.
type process struct {
	cmd    *exec.Cmd
	output *outputTail
	done   chan struct{} // closed after Wait has returned
}

// spawn starts a redis-server. It is in a process group of its own, so that a Ctrl-C
// in the terminal of this process ends this process first. On Linux it dies with this process.
func spawn(path string, args []string, dir *folder) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), output: &outputTail{ready: make(chan struct{})}, done: make(chan struct{})}
	p.cmd.Dir = dir.path
	if dir.lock != nil {
		p.cmd.ExtraFiles = []*os.File{dir.lock} // it lasts as long as the server runs
	}
	p.cmd.Stdout = p.output
	p.cmd.Stderr = p.output
	p.cmd.WaitDelay = time.Second // a grandchild may keep the pipe open
	p.cmd.SysProcAttr = ownGroup()

	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the process and waits for its end. For Linux the parent of a process is
// the thread that forked it. That thread must live as long as the process, so run
// locks the goroutine to its thread.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // the output has the reason of the end
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once and returns when it has ended. It returns nil if the
// process had already ended.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// terminate asks the process to end, kills it after grace, and returns when it has
// ended.
func (p *process) terminate(grace time.Duration) error {
	if err := p.shutDown(); err != nil {
		return p.kill()
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		return p.kill()
	}
}

// tailSize is how many bytes of the end of a server's output outputTail keeps.
const tailSize = 4096

// outputTail receives the output of a redis-server. It detects that the server is
// ready, and keeps the end of the output for the error of a failed start.
type outputTail struct {
	ready chan struct{} // closed when the output says that the server is ready

	mu      sync.Mutex
	isReady bool // ready is closed
	tail    []byte
}

var (
	// readyLine is in the output of every redis-server since 2.0, and of Valkey, when
	// the sockets listen and the data is loaded. The case of the first letter differs.
	readyLine = []byte("eady to accept connections")
	// sentinelReadyLine is in the output of a Sentinel instead.
	sentinelReadyLine = []byte("Sentinel ID is ")
)

// Write implements io.Writer. It never fails.
func (o *outputTail) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if !o.isReady && (bytes.Contains(o.tail, readyLine) || bytes.Contains(o.tail, sentinelReadyLine)) {
		o.isReady = true
		close(o.ready)
	}
	if extra := len(o.tail) - tailSize; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
	return len(p), nil
}

// portTaken reports whether the server ended because its port is in use.
func (o *outputTail) portTaken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.tail, []byte("ddress already in use"))
}

// lastLine returns the last line of the output.
func (o *outputTail) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.tail))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
