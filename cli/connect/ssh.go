package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"locktop/tui/widget"
)

// sshPersist is how long the master connection of ssh lives without a connection through
// it, also after locktop was killed.
const sshPersist = 5 * time.Second

// tunnel reaches servers through a host, with the ssh of the system: one master connection,
// and one process for each connection through it. It uses the configuration, the agent,
// the known hosts and the jump hosts of the user, and opens no local port. It is safe for
// concurrent use.
type tunnel struct {
	host string
	dir  string // private; has the socket of the master connection
	uses atomic.Int64
}

// checkSSHHost returns an error for a host that ssh, or a command in its configuration,
// could take for something else.
func checkSSHHost(origin, host string) error {
	bad := func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("-_.@:[]+", r))
	}
	if host == "" || strings.HasPrefix(host, "-") || strings.ContainsFunc(host, bad) {
		return usagef("like ann@bastion, or a Host of ~/.ssh/config", "%s is not a host for ssh", origin)
	}
	return nil
}

// openTunnel opens the master connection. ssh may ask on the terminal for a password, a
// touch or the trust in a host key.
func openTunnel(ctx context.Context, host string) (*tunnel, error) {
	dir, err := os.MkdirTemp("", "locktop-ssh-")
	if err != nil {
		return nil, err
	}
	t := &tunnel{host: host, dir: dir}
	said, err := os.Create(filepath.Join(dir, "stderr")) // a pipe would stay open in the background
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer said.Close()
	cmd := t.command(ctx, "-M", "-N", "-f", "-o", fmt.Sprintf("ControlPersist=%d", int(sshPersist.Seconds())))
	cmd.Stderr = said
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(said.Name())
		_ = os.RemoveAll(dir)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &Error{Err: fmt.Errorf("connect through ssh to %s: %w", host, sshError(err, string(text))), Hint: "what does `ssh " + host + "` say?"}
	}
	return t, nil
}

// command returns a command that uses the master connection.
func (t *tunnel) command(ctx context.Context, args ...string) *exec.Cmd {
	all := []string{"-S", filepath.Join(t.dir, "master"), "-T", "-x", "-o", "ClearAllForwardings=yes"}
	all = append(append(all, args...), "--", t.host)
	return exec.CommandContext(ctx, "ssh", all...)
}

// sshError returns the line of ssh's stderr that has the reason, or else err. It is the last
// one, but ssh also reports that a jump host or the server has closed the connection.
func sshError(err error, text string) error {
	reason := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		closed := strings.HasPrefix(line, "Connection closed by ") || strings.HasPrefix(line, "kex_exchange_identification:")
		if line != "" && (!closed || reason == "") {
			reason = line
		}
	}
	if reason == "" {
		return err
	}
	return errors.New(widget.Plain(reason))
}

// leave ends the master connection when its last user leaves.
func (t *tunnel) leave() {
	if t.uses.Add(-1) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = t.command(ctx, "-O", "exit").Run() // otherwise it ends after sshPersist
	_ = os.RemoveAll(t.dir)
}

// dial connects to an address as the host reaches it. It returns immediately; the first read
// returns the error of an address that cannot be reached.
func (t *tunnel) dial(_ context.Context, network, addr string) (net.Conn, error) {
	if network != "tcp" {
		return nil, errors.New("ssh reaches no unix socket")
	}
	near, far := net.Pipe()
	c := &sshConn{Conn: near, tunnel: t, addr: addr, ended: make(chan struct{})}
	c.cmd = t.command(context.Background(), "-o", "ControlMaster=no", "-o", "BatchMode=yes", "-W", addr)
	c.cmd.Stdout, c.cmd.Stderr = far, &c.said
	c.cmd.WaitDelay = time.Second
	in, err := c.cmd.StdinPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, near.Close())
	}
	go func() {
		_, _ = io.Copy(in, far) // the end of the process is the report
		_ = in.Close()
	}()
	go func() {
		defer close(c.ended)
		c.err = c.cmd.Wait()
		_ = far.Close()
	}()
	return c, nil
}

// sshConn is a connection through a process of ssh.
type sshConn struct {
	net.Conn // a pipe to and from the process
	tunnel   *tunnel
	addr     string
	cmd      *exec.Cmd
	said     limited       // stderr; complete at the end of the pipe
	err      error         // of the process; set at the end of the pipe
	ended    chan struct{} // closed when the process has ended
	got      atomic.Bool
}

// Read implements [net.Conn].
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.got.Store(true)
	}
	if err != io.EOF || c.got.Load() || c.err == nil {
		return n, err
	}
	reason := sshError(c.err, c.said.String())
	return 0, fmt.Errorf("ssh %s does not reach %s: %v", c.tunnel.host, c.addr, reason) // go-redis would unwrap it
}

// Close implements [net.Conn]. It ends the process.
func (c *sshConn) Close() error {
	err := c.Conn.Close()
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
	return err
}
