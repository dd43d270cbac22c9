package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
)

// Error is an error with a hint for the user, which may be empty.
type Error struct {
	Err   error
	Hint  string
	Usage bool // the flags, the environment or the configuration are wrong; otherwise no server can be used
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// usagef returns the Error for wrong flags, environment or configuration.
func usagef(hint, format string, args ...any) *Error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint, Usage: true}
}

// noConnection returns the Error for a server that cannot be used, with a hint if err
// permits one. It quotes the system or the server, without the text
// that libraries add.
func noConnection(e endpoint, err error, timeout time.Duration) *Error {
	if ours, ok := errors.AsType[*Error](err); ok {
		return ours // without the text that go-redis adds to an error of the password command
	}
	said, fromServer := errors.AsType[redis.Error](err)
	late, network := errors.AsType[net.Error](err)
	if asked, ok := errors.AsType[*sentinelError](err); ok {
		return &Error{Err: asked, Hint: hintForSentinel(asked.err)}
	}
	if strings.HasPrefix(err.Error(), "redis: can't parse") {
		return &Error{Err: fmt.Errorf("connect %s: the server does not speak the protocol of Redis", e), Hint: "is that the right port?"}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Err: err}
	case fromServer:
		err = said
	case network && late.Timeout():
		err = &noAnswerError{within: timeout, err: err}
	}
	return &Error{Err: fmt.Errorf("connect %s: %w", e, err), Hint: hintFor(e, err)}
}

// noAnswerError is the error of a server that does not answer in time.
type noAnswerError struct {
	within time.Duration
	err    error // of the network
}

func (e *noAnswerError) Error() string { return "no answer within " + humanize.Setting(e.within) }

func (e *noAnswerError) Unwrap() error { return e.err }

func hintFor(e endpoint, err error) string {
	switch {
	case isRejected(err):
		return "the user or the password is wrong, or the ACL forbids it: see --user, --askpass and REDISCLI_AUTH"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "is the server running there? `locktop demo` needs none"
	case isCertificate(err):
		return "--cacert names the authority to trust, --sni the name on the certificate"
	case e.tls && strings.HasPrefix(err.Error(), "no answer within"):
		return "does the server speak TLS there? try it without --tls, or with redis://"
	case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !e.tls:
		return "does the server expect TLS? try --tls or rediss://"
	default:
		return ""
	}
}

func hintForSentinel(err error) string {
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case strings.Contains(err.Error(), "unknown command"):
		return "that is no Sentinel; the port of a Sentinel is 26379, if nobody has chosen another"
	case isRejected(err):
		return "see --sentinel-user and --sentinel-pass; --user and --pass are for the servers"
	case isCertificate(err):
		return "--cacert names the authority to trust, --sni the name on the certificate"
	case noTLS:
		return "does the Sentinel speak TLS? try --sentinel-tls=false"
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return "does the Sentinel expect TLS? try --sentinel-tls"
	default:
		return ""
	}
}

// isRejected reports whether the server answers but rejects the user.
func isRejected(err error) bool {
	return redis.IsAuthError(err) || redis.IsPermissionError(err)
}
