package inspect

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
)

// MonitorQuery is what [Monitor] looks for: a command that has a key and a token as arguments of
// their own, and that only the holder sends.
type MonitorQuery struct {
	Key    string
	Token  string
	DB     int
	Window time.Duration // how long MONITOR runs at most
}

// Sighting is a command that a server has run.
type Sighting struct {
	Addr    string    `json:"addr"`            // of the client
	Command string    `json:"command"`         // in lower case, without arguments
	At      time.Time `json:"at"`              // on the server's clock
	Doubt   string    `json:"doubt,omitempty"` // why another client may send it, too; empty = it is a proof
}

// ErrNotSighted means that the server ran no command that [Monitor] looks for.
var ErrNotSighted = errors.New("the server ran no command that only the holder sends")

// ErrMayNotMonitor means that this user may not run MONITOR.
var ErrMayNotMonitor = errors.New("this user may not run MONITOR")

// Bounds of MONITOR.
const (
	maxMonitorBytes = 64 << 20
	maxMonitorLine  = 1 << 20 // longer lines are ignored
)

// MonitorCost is what one command costs a server while one client runs MONITOR.
const MonitorCost = 13 * time.Microsecond

// CommandsPerSecond returns how many commands the server runs per second, by INFO.
func (s *Scanner) CommandsPerSecond(ctx context.Context) (int64, error) {
	conn := s.newConn()
	var info *redis.StringCmd
	err := conn.pipelined(ctx, "ask for the commands per second", func(p redis.Pipeliner) { info = p.Info(ctx, "stats") })
	if err != nil {
		return 0, err
	}
	rate, known := InfoValue(info.Val(), "instantaneous_ops_per_sec")
	if !known {
		return 0, errors.New("this user may not run INFO, so the cost of MONITOR is not known")
	}
	return number(rate), nil
}

// Monitor runs MONITOR on a connection of its own to the server of a client, and returns
// the first command that q asks for. It returns an [ErrNotSighted] after the window, with the
// last command that had the key and the token but is no proof, if there was one; and
// another error if the server refuses, or sends more than 64 MiB. The connection is closed
// when Monitor returns, also after ctx has ended. It authenticates with the user and the password of
// the client's options. A script
// counts if it is seen to change the lock.
func Monitor(ctx context.Context, rdb Client, q MonitorQuery) (s Sighting, err error) {
	err = monitor(ctx, rdb, q.Window, func(lines *bufio.Reader) error {
		s, err = q.read(lines)
		return err
	})
	return s, err
}

// monitor runs MONITOR for a window on a connection of its own, while read reads its lines.
func monitor(ctx context.Context, rdb Client, window time.Duration, read func(lines *bufio.Reader) error) error {
	o, err := optionsOf(rdb)
	if err != nil {
		return err
	}
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err = readMonitor(conn, o, window, read)
	if err != nil && ctx.Err() != nil { // it has closed the connection
		return ctx.Err()
	}
	return err
}

// readMonitor runs MONITOR on a connection.
func readMonitor(conn net.Conn, o *redis.Options, window time.Duration, read func(lines *bufio.Reader) error) error {
	if err := conn.SetDeadline(time.Now().Add(o.DialTimeout)); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(conn, maxMonitorLine)
	if err := beginMonitor(conn, lines, o); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(window)); err != nil {
		return err
	}
	return read(lines)
}

// beginMonitor authenticates and starts MONITOR.
func beginMonitor(conn net.Conn, lines *bufio.Reader, o *redis.Options) error {
	user, pass := o.Username, o.Password
	var commands [][]string
	switch {
	case user != "":
		commands = append(commands, []string{"AUTH", user, pass})
	case pass != "":
		commands = append(commands, []string{"AUTH", pass})
	}
	commands = append(commands, []string{"CLIENT", "SETNAME", "locktop"}, []string{"MONITOR"})
	var out bytes.Buffer
	for _, argv := range commands {
		fmt.Fprintf(&out, "*%d\r\n", len(argv))
		for _, arg := range argv {
			fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(arg), arg)
		}
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		return err
	}
	for _, argv := range commands {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		text, refused := strings.CutPrefix(line, "-")
		switch {
		case !refused || argv[0] == "CLIENT":
		case argv[0] == "MONITOR" && strings.HasPrefix(text, "NOPERM"):
			return ErrMayNotMonitor
		default:
			return fmt.Errorf("%s: %s", argv[0], strings.TrimSpace(text))
		}
	}
	return nil
}

// read reads the lines of MONITOR up to the first that is a proof.
func (q MonitorQuery) read(lines *bufio.Reader) (found Sighting, err error) {
	key := []byte(`"` + monitorText(q.Key) + `"`)
	var script Sighting // the last command, whose own commands follow if it runs a script
	ended, err := eachMonitorLine(lines, func(line []byte) (more bool, err error) {
		if client, _, _ := bytes.Cut(line, []byte(`] "`)); bytes.HasSuffix(client, []byte(" lua")) {
			if script.Doubt == changesNone && bytes.Contains(line, key) && q.changes(string(line)) {
				found, found.Doubt = script, ofHolder
			}
			return found.Addr == "" || found.Doubt != ofHolder, nil
		}
		if script = (Sighting{}); !bytes.Contains(line, key) {
			return true, nil
		}
		s, ok := q.judge(string(line))
		if ok {
			script, found = s, s
		}
		return !ok || s.Doubt != "", nil
	})
	switch {
	case ended:
		return found, ErrNotSighted
	case err != nil:
		return Sighting{}, err
	}
	return found, nil
}

// eachMonitorLine calls f for each line of MONITOR until f returns false or an error. It skips
// lines that are too long. ended says that the window has ended. It returns an error if the
// server closes the connection or sends too much.
func eachMonitorLine(lines *bufio.Reader, f func(line []byte) (more bool, err error)) (ended bool, err error) {
	for received := 0; received < maxMonitorBytes; {
		line, err := lines.ReadSlice('\n')
		received += len(line)
		for errors.Is(err, bufio.ErrBufferFull) && received < maxMonitorBytes { // drop it
			line, err = lines.ReadSlice('\n')
			received += len(line)
			line = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return true, nil
		}
		if err == io.EOF {
			return false, errors.New("the server has closed the connection that ran MONITOR")
		}
		if err != nil {
			return false, err
		}
		if more, err := f(line); !more || err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("MONITOR sent more than %s MiB", humanize.Count(maxMonitorBytes>>20))
}
