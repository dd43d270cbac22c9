package keyspace

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Attempt is the shape of the command with which a client of a library tries to acquire a
// lock. The indexes count the arguments behind the command; those of a script count ARGV.
type Attempt struct {
	Command string // in lower case; [AnyScript] is any command that runs a script
	Option  string // an argument that the command must have, in lower case; "" = none
	Token   int    // index of the token
	Numbers []int  // indexes of positive numbers, such as a TTL: they tell it from a release
}

// AnyScript is the Command of a shape that EVAL, EVALSHA or FCALL runs. The server gets only a
// digest of most scripts, so the shape is that of the arguments. The lock is one of KEYS.
const AnyScript = "script"

// ScriptCommands lists the commands that run a script.
func ScriptCommands() []string { return []string{"eval", "evalsha", "fcall"} }

// Attempt reports whether a client tries to acquire the lock under a key with a command of this
// library, and the token that the lock has if it succeeds. args is the command with its
// arguments. A renewal may look like an attempt: the token is that of the holder then.
func (f *Format) Attempt(args []string, key string) (token string, ok bool) {
	if len(args) < 2 {
		return "", false
	}
	command, args := strings.ToLower(args[0]), args[1:]
	if slices.Contains(ScriptCommands(), command) {
		keys, argv := scriptArguments(args)
		if !slices.Contains(keys, key) {
			return "", false
		}
		command, args = AnyScript, argv
	} else if args[0] != key {
		return "", false
	}
	if token, ok := f.tokenIn(command, args, key); ok {
		return token, true
	}
	if command == AnyScript && f.Type == "string" && len(args) > 2 && isNumber(args[0]) { // as that of the database
		return f.tokenIn(command, args[1:], key)
	}
	return "", false
}

// setsIfNone are the commands that acquire a lock that is one string, whatever its token.
var setsIfNone = []Attempt{{Command: "set", Token: 1, Option: "nx"}, {Command: "setnx", Token: 1}}

// tokenIn returns the token in the arguments of a command that has one of the shapes. A script must
// have a token that the format may have.
func (f *Format) tokenIn(command string, args []string, key string) (string, bool) {
	shapes := f.Attempts
	if f.Type == "string" && shapes != nil {
		shapes = slices.Concat(shapes, setsIfNone)
	}
	for _, shape := range shapes {
		token, ok := shape.tokenIn(command, args)
		if ok && (command != AnyScript || f.Type != "string" || f.Probe == nil || f.Probe(key, token) != No) {
			return token, true
		}
	}
	return "", false
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// scriptArguments returns KEYS and ARGV of a script, without the command; nil if there are
// fewer than the command says.
func scriptArguments(args []string) (keys, argv []string) {
	if len(args) < 2 {
		return nil, nil
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 0 || n > len(args)-2 {
		return nil, nil
	}
	return args[2 : 2+n], args[2+n:]
}

// tokenIn returns the token in the arguments of a command that has the shape.
func (a Attempt) tokenIn(command string, args []string) (string, bool) {
	if command != a.Command || a.Token >= len(args) {
		return "", false
	}
	for _, i := range a.Numbers {
		if i >= len(args) {
			return "", false
		}
		if n, err := strconv.ParseFloat(args[i], 64); err != nil || n <= 0 {
			return "", false
		}
	}
	is := func(arg string) bool { return strings.EqualFold(arg, a.Option) }
	return args[a.Token], a.Option == "" || slices.ContainsFunc(args[a.Token+1:], is)
}

// Label returns the readable part of a token of a lock that is one string; "" if there is none, or
// if the format has another type.
func (f *Format) Label(key, token string, at time.Time) string {
	if f.Type != "string" || f.Decode == nil {
		return ""
	}
	e := Entry{Key: key, Type: f.Type, Now: at, Expires: at.Add(time.Minute), Value: token, Len: int64(len(token))}
	if l, sure := f.Decode(e); sure != No && len(l.Holders) == 1 {
		return l.Holders[0].Label
	}
	return ""
}
