package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace/inspect"
	"locktop/keyspace/metrics"
)

// downReason classifies why a target does not answer. Of several servers, the first one
// that was asked counts.
func downReason(err error) metrics.DownReason {
	if all, ok := errors.AsType[inspect.NoAnswerError](err); ok && len(all) > 0 {
		err = all[0]
	}
	_, said := errors.AsType[redis.Error](err)
	_, name := errors.AsType[*net.DNSError](err)
	network, _ := errors.AsType[net.Error](err)
	timeout := network != nil && network.Timeout()
	switch {
	case said && (redis.IsAuthError(err) || redis.IsPermissionError(err)):
		return metrics.Rejected
	case said:
		return metrics.ErrorReply
	case name:
		return metrics.Resolution
	case isTLS(err):
		return metrics.TLS
	case timeout && isDial(err):
		return metrics.ConnectTimeout
	case timeout, errors.Is(err, context.DeadlineExceeded):
		return metrics.ReplyTimeout
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return metrics.Refused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return metrics.Closed
	case isDial(err):
		return metrics.Unreachable
	default:
		return metrics.OtherReason
	}
}

// isDial reports whether there was no connection.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// isTLS reports whether the two sides did not agree on TLS.
func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return certificate || authority || record || alert
}
