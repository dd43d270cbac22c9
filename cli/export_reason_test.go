package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace/inspect"
	"locktop/keyspace/metrics"
)

func TestTheReasonsWhyATargetIsDown(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for want, errs := range map[metrics.DownReason][]error{
		metrics.Resolution:     {dial(&net.DNSError{Name: "x", IsNotFound: true}), dial(&net.DNSError{Name: "x", IsTimeout: true})},
		metrics.Unreachable:    {dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), dial(syscall.ENETUNREACH)},
		metrics.ConnectTimeout: {dial(os.ErrDeadlineExceeded), dial(os.NewSyscallError("connect", syscall.ETIMEDOUT))},
		metrics.Refused:        {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), dial(syscall.ENOENT)},
		metrics.ReplyTimeout:   {read(os.ErrDeadlineExceeded), context.DeadlineExceeded},
		metrics.Closed:         {io.EOF, read(syscall.ECONNRESET), net.ErrClosed},
		metrics.TLS:            {tls.RecordHeaderError{Msg: "x"}, &tls.CertificateVerificationError{Err: errors.New("x")}, &net.OpError{Op: "remote error", Err: tls.AlertError(42)}},
		metrics.OtherReason:    {errors.New("x")},
	} {
		for _, err := range errs {
			err = fmt.Errorf("read: %w", err)
			for _, err := range []error{err, inspect.NoAnswerError{err, errors.New("another")}} {
				got := downReason(err)
				check.True(t, got == want, "%v: %s, want %s", err, got, want)
			}
		}
	}
}

// reasonIs waits until the target is down for a reason, and only for that one.
func (e *exported) reasonIs(why metrics.DownReason) {
	e.t.Helper()
	e.sees(`locktop_down_reason\{target=".*",reason="` + string(why) + `"\} 1`)
	n := len(regexp.MustCompile(`(?m)^locktop_down_reason\{.*\} 1$`).FindAllString(e.page(), -1))
	check.True(e.t, n == 1, "%d reasons", n)
}

// An export tells a server that hangs from one that has ended, and says how old its metrics
// are. It reads the locks soon after the server answers again: before, it paused for 20
// times the stall.
func TestAnExportTellsWhyATargetIsDownAndReturnsAfterAStall(t *testing.T) {
	testtier.Long(t, "a target stands still for seconds")
	t.Parallel()
	child := server.ForTest(t)
	send(t, child.Addr(), "SET", "lock:a", token, "PX", "600000")
	e := startReadyExport(t, "-u", "redis://"+child.Addr(), "--every", "100ms", "--timeout", "1s")
	e.sees(`locktop_locks\{.*,state="held"\} 1`)
	if strings.Contains(e.page(), `"} 1`+"\n# HELP locktop_last_answer") || !strings.Contains(e.page(), `reason="refused"} 0`) {
		t.Errorf("a target that is up has a reason:\n%s", e.page())
	}
	frozen := time.Now()
	check.NoError(t, child.Freeze())
	e.sees(`locktop_up\{.*\} 0`)
	e.reasonIs(metrics.ReplyTimeout)
	if age := time.Since(e.time("locktop_last_answer_timestamp_seconds")); age < time.Since(frozen)-time.Second || age > time.Since(frozen)+10*time.Second {
		t.Errorf("%v after the begin of the stall, the last answer is %v old", time.Since(frozen), age)
	}
	check.NoError(t, child.Continue())
	back := time.Now()
	send(t, child.Addr(), "SET", "lock:b", token, "PX", "600000")
	e.sees(`locktop_locks\{.*,state="held"\} 2`)
	took := time.Since(back)
	check.True(t, !testtier.Proving() || took <= 15*time.Second, "the export read the locks %v after the end of the stall", took)
	e.says("answers after")
	check.NoError(t, child.Kill())
	e.reasonIs(metrics.Refused)
}

// time returns the value of a metric as a time.
func (e *exported) time(metric string) time.Time {
	e.t.Helper()
	value := regexp.MustCompile(`(?m)^` + metric + `\{.*\} (\S+)$`).FindStringSubmatch(e.page())
	check.Require(e.t, value != nil, "no %s", metric)
	seconds := check.Must(strconv.ParseFloat(value[1], 64))(e.t)
	return time.UnixMilli(int64(seconds * 1000))
}

func TestAnExportTellsAServerThatRefusesItsUser(t *testing.T) {
	t.Parallel()
	child := server.ForTest(t, "--requirepass", "secret")
	startExport(t, "-u", "redis://"+child.Addr(), "--every", "100ms").reasonIs(metrics.Rejected)
}
