package inspect

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
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
	lines := bufio.NewReaderSize(conn, maxMonitorLine)
	if err = beginMonitor(conn, lines, o); err == nil {
		err = conn.SetDeadline(time.Now().Add(window))
	}
	if err == nil {
		err = read(lines)
	}
	if err != nil && ctx.Err() != nil { // it has closed the connection
		return ctx.Err()
	}
	return err
}

// beginMonitor authenticates and starts MONITOR.
func beginMonitor(conn net.Conn, lines *bufio.Reader, o *redis.Options) error {
	if err := conn.SetDeadline(time.Now().Add(o.DialTimeout)); err != nil {
		return err
	}
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

// What a command with the key and the token of a lock says about its client.
const (
	ofHolder    = ""
	mayHaveFail = "a command that sets the value only if there is none may have failed"
	onlyReads   = "the command only reads"
	changesNone = "its script was not seen to change the lock"
	notKnown    = "locktop does not know what the command does with the token"
)

// commandEvidence is what a command with the key and the token proves: it changes the lock of this
// token, unless it only reads, or has failed. What a script does, the commands show that it runs.
var commandEvidence = map[string]string{
	"eval": changesNone, "evalsha": changesNone, "fcall": changesNone,
	"set": ofHolder, "setex": ofHolder, "psetex": ofHolder, "delex": ofHolder,
	"hset": ofHolder, "hmset": ofHolder, "hincrby": ofHolder, "hdel": ofHolder, "hpexpire": ofHolder, "hexpire": ofHolder,
	"zadd": ofHolder, "zrem": ofHolder, "sadd": ofHolder, "srem": ofHolder, "rpush": ofHolder, "lpush": ofHolder, "lrem": ofHolder,
	"setnx": mayHaveFail, "hsetnx": mayHaveFail, "msetnx": mayHaveFail, "getset": mayHaveFail,
	"eval_ro": onlyReads, "evalsha_ro": onlyReads, "fcall_ro": onlyReads, "hget": onlyReads, "hexists": onlyReads, "hmget": onlyReads,
	"hstrlen": onlyReads, "zscore": onlyReads, "zmscore": onlyReads, "zrank": onlyReads, "zrevrank": onlyReads, "sismember": onlyReads,
	"smismember": onlyReads, "lpos": onlyReads, "mget": onlyReads, "exists": onlyReads,
}

// judge parses a line of MONITOR. ok is false if it does not have the key and the token, each as
// an argument of its own.
func (q MonitorQuery) judge(line string) (s Sighting, ok bool) {
	c, whole := parseMonitorCommand(line)
	if !whole || c.DB != q.DB || c.Addr == "" { // a script has no address
		return Sighting{}, false
	}
	args := c.Args[1:]
	key := slices.Index(args, q.Key)
	if key < 0 {
		return Sighting{}, false
	}
	others, command := slices.Delete(args, key, key+1), strings.ToLower(c.Args[0])
	return Sighting{Addr: c.Addr, Command: command, At: c.At, Doubt: doubt(command, others)}, slices.Contains(others, q.Token)
}

// doubt returns why a command with the token does not prove that its client is the holder.
func doubt(command string, args []string) string {
	why, known := commandEvidence[command]
	conditional := slices.ContainsFunc(args, func(arg string) bool { return strings.EqualFold(arg, "nx") })
	switch {
	case !known:
		return notKnown
	case why != "":
		return why
	case conditional && (command == "set" || command == "zadd"):
		return mayHaveFail
	}
	return ofHolder
}

// changes reports whether a line of MONITOR is a command of a script that changes the key, also if
// there is one.
func (q MonitorQuery) changes(line string) bool {
	c, ok := parseMonitorCommand(line)
	if !ok || c.Addr != "" || c.DB != q.DB || !slices.Contains(c.Args[1:], q.Key) {
		return false
	}
	name := strings.ToLower(c.Args[0])
	return slices.Contains(changing, name) || commandEvidence[name] == ofHolder && doubt(name, c.Args[1:]) == ofHolder
}

// changing are the commands of scripts that change a lock without its token.
var changing = []string{"del", "unlink", "expire", "pexpire", "expireat", "pexpireat", "getdel"}

// parseMonitorCommand parses a line such as
//
//	+1700000000.123456 [0 127.0.0.1:52312] "EVALSHA" "…" "1" "lock:a" "…"
//
// ok is false if it is not whole.
func parseMonitorCommand(line string) (c Command, ok bool) {
	stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " [")
	client, command, ok := strings.Cut(rest, `] "`)
	if !ok {
		return Command{}, false
	}
	number, addr, _ := strings.Cut(client, " ")
	db, dbErr := strconv.Atoi(number)
	words, whole := monitorArgs(`"` + strings.TrimRight(command, "\r\n"))
	at, err := strconv.ParseFloat(stamp, 64)
	if err != nil || dbErr != nil || !whole || len(words) == 0 {
		return Command{}, false
	}
	if addr == "lua" {
		addr = ""
	}
	return Command{At: time.UnixMicro(int64(at * 1e6)), Addr: addr, DB: db, Args: words}, true
}

// monitorArgs parses quoted arguments with a blank between them. whole is false if the text is
// something else.
func monitorArgs(text string) (args []string, whole bool) {
	for {
		arg, rest, ok := monitorArg(text)
		if !ok {
			return args, false
		}
		args = append(args, arg)
		if rest == "" {
			return args, true
		}
		if text, ok = strings.CutPrefix(rest, " "); !ok {
			return args, false
		}
	}
}

// monitorArg parses one quoted argument at the beginning of a text.
func monitorArg(text string) (arg, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	end := 1 + quoted([]byte(text[1:]))
	if end == 0 {
		return "", "", false
	}
	var b strings.Builder
	for within := text[1:end]; within != ""; {
		if within[0] != '\\' { // also a quotation mark: Valkey 8.1 does not escape it
			b.WriteByte(within[0])
			within = within[1:]
			continue
		}
		c, _, tail, err := strconv.UnquoteChar(within, '"')
		if err != nil {
			return "", "", false
		}
		b.WriteByte(byte(c))
		within = tail
	}
	return b.String(), text[end+1:], true
}

// monitorText returns a text as MONITOR prints it within quotation marks.
func monitorText(s string) string { return monitorEscapes.Replace(s) }

var monitorEscapes = func() *strings.Replacer {
	escapes := []string{"\n", `\n`, "\r", `\r`, "\t", `\t`, "\a", `\a`, "\b", `\b`, `\`, `\\`, `"`, `\"`}
	for c := range 256 { // of two with one character, the first counts
		if c < ' ' || c > '~' {
			escapes = append(escapes, string([]byte{byte(c)}), fmt.Sprintf(`\x%02x`, c))
		}
	}
	return strings.NewReplacer(escapes...)
}()
