package transport

import (
	"bytes"
	"errors"
	"strconv"
)

// Commands and replies in RESP2, the version of the protocol that every server
// supports.

// serverError is an error reply. It is a [redis.Error].
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (serverError) RedisError() {}

// errProtocol means that the server has sent something that is not RESP2.
var errProtocol = errors.New("unexpected reply from the server")

// Limits of replies. The replies to the commands of this package are far smaller.
const (
	maxLine     = 64 << 10 // bytes
	maxReply    = 4 << 20  // bytes, also of a string in a reply
	maxElements = 4 << 10  // of an array
	maxDepth    = 8        // of nested arrays
)

// appendCommand appends a command to b.
func appendCommand(b []byte, args []string) []byte {
	b = appendLength(b, '*', len(args))
	for _, arg := range args {
		b = appendLength(b, '$', len(arg))
		b = append(b, arg...)
		b = append(b, "\r\n"...)
	}
	return b
}

func appendLength(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

// parseReply returns the first reply in b and its size; size 0 means that it is not
// complete. A reply is a string, an int64, nil, a serverError, or a []any of these.
func parseReply(b []byte) (reply any, size int, err error) {
	reply, size, err = parseWithin(b, maxDepth)
	if err == nil && size == 0 && len(b) > maxReply {
		return nil, 0, errProtocol
	}
	return reply, size, err
}

// parseWithin is parseReply with a limit of nested arrays.
func parseWithin(b []byte, depth int) (reply any, size int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	if end < 0 && len(b) >= maxLine {
		return nil, 0, errProtocol
	}
	if end < 0 {
		return nil, 0, nil
	}
	if end < 2 {
		return nil, 0, errProtocol
	}
	kind, line, size := b[0], b[1:end-1], end+1
	switch kind {
	case '+':
		if string(line) == "OK" {
			return "OK", size, nil // spares an allocation
		}
		return string(line), size, nil
	case '-':
		return serverError(line), size, nil
	}
	n, err := strconv.ParseInt(string(line), 10, 64)
	switch {
	case err != nil:
		return nil, 0, errProtocol
	case kind == ':':
		return n, size, nil
	case kind != '$' && kind != '*':
		return nil, 0, errProtocol
	case n < 0:
		return nil, size, nil
	case n > maxReply || kind == '*' && (n > maxElements || depth == 0):
		return nil, 0, errProtocol
	case kind == '*':
		return parseArray(b, size, int(n), depth-1)
	case len(b) < size+int(n)+2:
		return nil, 0, nil
	}
	return string(b[size : size+int(n)]), size + int(n) + 2, nil
}

// parseArray returns the n replies that follow in b after size bytes.
func parseArray(b []byte, size, n, depth int) (reply any, _ int, err error) {
	var all []any
	for range n {
		one, more, err := parseWithin(b[size:], depth)
		if err != nil || more == 0 {
			return nil, 0, err
		}
		all, size = append(all, one), size+more
	}
	return all, size, nil
}
