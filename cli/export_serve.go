package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace/inspect"
	"locktop/keyspace/metrics"
	"locktop/keyspace/metrics/web"
)

// listen opens the addresses of the flags.
func (e *export) listen(ctx context.Context) (all []net.Listener, err error) {
	if !e.options.listens() {
		return nil, nil
	}
	for _, addr := range e.options.listen {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			for _, l := range all {
				_ = l.Close() // nothing was accepted
			}
			if _, wrong := errors.AsType[*net.AddrError](err); wrong {
				return nil, usageErrorf("as in --web.listen-address 127.0.0.1:15625", "--web.listen-address: %w", err)
			}
			return nil, fmt.Errorf("--web.listen-address: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

// run watches the targets and serves the metrics until ctx ends, which is the usual end of
// an export and no error, or until a listener fails.
func (e *export) run(ctx context.Context, server *web.Server, listeners []net.Listener) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for _, t := range e.targets {
		all.Go(func() { e.watch(running, t) })
	}
	if e.options.textfile != "" {
		all.Go(func() { e.writeTextfiles(running) })
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	all.Go(func() { e.reload(running, server, hangups) })
	for _, l := range listeners {
		all.Go(func() {
			if err := server.Serve(running, l, e.handler()); err != nil {
				stop(err)
			}
		})
		scheme := "http"
		if server.TLS() {
			scheme = "https"
		}
		e.notes.note("serving %s://%s/metrics", scheme, l.Addr())
	}
	all.Wait()
	if err := context.Cause(running); ctx.Err() == nil && err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// handler returns the pages.
func (e *export) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		var page bytes.Buffer // a slow reader must not hold up the next update
		_ = e.metrics.Write(&page)
		_ = metrics.WriteProcess(&page) // not for node_exporter, which has its own
		w.Header().Set("Content-Type", metrics.ContentType)
		w.Header().Set("Vary", "Accept-Encoding")
		if !acceptsGzip(r.Header) {
			_, _ = page.WriteTo(w)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		zipped := gzip.NewWriter(w)
		_, _ = page.WriteTo(zipped)
		_ = zipped.Close()
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !e.metrics.Ready() {
			http.Error(w, "the first scan has not ended", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>locktop export</title><h1>locktop export</h1><p><a href="/metrics">Metrics</a>, <a href="/healthz">health</a>, <a href="/readyz">readiness</a></p></html>`)
	})
	return mux
}

// acceptsGzip reports whether the header of a request permits gzip.
func acceptsGzip(h http.Header) bool {
	for one := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";")
		if name == "gzip" && strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || name == "gzip" && weight == "" {
			return true
		}
	}
	return false
}

// reload reads the web configuration again at each signal.
func (e *export) reload(ctx context.Context, server *web.Server, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			if err := server.Reload(); err != nil {
				e.notes.note("the old web configuration stays: %v", err)
			} else {
				e.notes.note("read the web configuration again")
			}
		}
	}
}

// textfileInterval is the time between two files for node_exporter, which reads them at
// each scrape.
const textfileInterval = 15 * time.Second

// writeTextfiles writes the metrics to the text file until ctx ends: as soon as they are
// ready, then at each interval.
func (e *export) writeTextfiles(ctx context.Context) {
	tick := time.NewTicker(e.options.every)
	defer tick.Stop()
	var last time.Time
	failing := false
	for {
		if time.Since(last) >= textfileInterval && e.metrics.Ready() {
			last = time.Now()
			err := e.writeTextfile()
			if err != nil && !failing {
				e.notes.note("%v; trying again every %s", err, humanize.Setting(textfileInterval))
			}
			failing = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// writeTextfile replaces the text file. A reader sees the old one or the new one.
func (e *export) writeTextfile() error {
	name := e.options.textfile
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("--textfile: %w", err)
	}
	err = errors.Join(e.metrics.Write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that counts is the first one
		return fmt.Errorf("--textfile: %w", err)
	}
	return nil
}

// downReason classifies why a target does not answer. Of several servers, the first one
// that was asked counts.
func downReason(err error) metrics.DownReason {
	if all, ok := errors.AsType[inspect.ServerErrors](err); ok && len(all) > 0 {
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
	case timeout && failedTo(err, "dial"):
		return metrics.ConnectTimeout
	case timeout, errors.Is(err, context.DeadlineExceeded):
		return metrics.ReplyTimeout
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return metrics.Refused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return metrics.Closed
	case failedTo(err, "dial"):
		return metrics.Unreachable
	default:
		return metrics.OtherReason
	}
}

// failedTo reports whether an error is of an operation of the network.
func failedTo(err error, operation string) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == operation
}

// isTLS reports whether the two sides did not agree on TLS.
func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || record || failedTo(err, "remote error") // of an alert, whose type is not exported
}
