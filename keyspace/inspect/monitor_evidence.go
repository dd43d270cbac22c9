package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	s, args, ok := parseMonitorLine(line, q.DB)
	if !ok {
		return Sighting{}, false
	}
	key := slices.Index(args, q.Key)
	if key < 0 {
		return Sighting{}, false
	}
	others := slices.Delete(args, key, key+1)
	s.Doubt = doubt(s.Command, others)
	return s, slices.Contains(others, q.Token)
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

// parseMonitorLine parses a line such as
//
//	+1700000000.123456 [0 127.0.0.1:52312] "EVALSHA" "…" "1" "lock:a" "…"
//
// args are the arguments behind the command. ok is false for a command of a script, or of
// another database, and if the line is not whole.
func parseMonitorLine(line string, db int) (s Sighting, args []string, ok bool) {
	c, ok := parseMonitorCommand(line)
	if !ok || c.DB != db || c.Addr == "" {
		return Sighting{}, nil, false
	}
	return Sighting{Addr: c.Addr, Command: strings.ToLower(c.Args[0]), At: c.At}, c.Args[1:], true
}

// parseMonitorCommand parses a line of MONITOR. ok is false if it is not whole.
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

// monitorArg parses one quoted argument at the beginning of a text. Valkey 8.1 does not escape a quotation mark
// within: one that nothing or another argument follows is the end.
func monitorArg(text string) (arg, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && (i+1 == len(text) || strings.HasPrefix(text[i+1:], ` "`)):
			return b.String(), text[i+1:], true
		case c != '\\':
			b.WriteByte(c)
		case i+3 < len(text) && text[i+1] == 'x':
			n, err := strconv.ParseUint(text[i+2:i+4], 16, 8)
			if err != nil {
				return "", "", false
			}
			b.WriteByte(byte(n))
			i += 3
		case i+1 < len(text):
			i++
			escaped, special := monitorEscapes[text[i]]
			if !special {
				escaped = text[i]
			}
			b.WriteByte(escaped)
		}
	}
	return "", "", false
}

// monitorEscapes are the letters behind a backslash.
var monitorEscapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'b': '\b'}

// monitorText returns a text as MONITOR prints it within quotation marks.
func monitorText(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\\', c == '"':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\a':
			b.WriteString(`\a`)
		case c == '\b':
			b.WriteString(`\b`)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
