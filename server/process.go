package server

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"time"
)

var errNotRunning = errors.New("it does not run")

// process is one run of a redis-server.
type process struct {
	cmd    *exec.Cmd
	output *outputTail
	done   chan struct{} // closed when the process is gone and was waited for
}

// spawn starts a redis-server that dies with this process where the system
// knows how to arrange that.
func spawn(path string, args []string, dir string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), output: newOutputTail(), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout = p.output
	p.cmd.Stderr = p.output
	p.cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	dieWithParent(p.cmd)

	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the process and sits on it until its end. To Linux the parent is
// the thread that forked, not the program: that thread must live as long as the
// child does, so this goroutine keeps it for itself.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // how it ended stands in its output
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

// kill ends the process at once, and returns when it is gone. One that is gone
// already is no error.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// terminate asks the process to end, kills it after grace, and returns when it
// is gone.
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
