package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// debugHook writes a line for each connection and each request of a client.
type debugHook struct {
	log    *slog.Logger
	server string
}

func (h debugHook) line(what string, began time.Time, err error, more ...any) {
	more = append(more, "server", h.server, "ms", float64(time.Since(began).Microseconds())/1000)
	if err != nil && !errors.Is(err, redis.Nil) {
		more = append(more, "error", err.Error())
	}
	h.log.Info(what, more...)
}

// DialHook implements [redis.Hook].
func (h debugHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		began := time.Now()
		conn, err := next(ctx, network, addr)
		h.line("dial", began, err)
		return conn, err
	}
}

// ProcessHook implements [redis.Hook].
func (h debugHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.line("request", began, err, "commands", cmd.Name())
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h debugHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		began, count, refused := time.Now(), map[string]int{}, 0
		err := next(ctx, all)
		for _, cmd := range all {
			count[cmd.Name()]++
			if failed := cmd.Err(); failed != nil && !errors.Is(failed, redis.Nil) {
				refused++
				err = cmp.Or(err, failed)
			}
		}
		var names []string
		for _, name := range slices.Sorted(maps.Keys(count)) {
			names = append(names, fmt.Sprintf("%s×%d", name, count[name]))
		}
		h.line("request", began, err, "commands", strings.Join(names, " "), "failed", refused)
		return err
	}
}
