package servertest

import (
	"context"
	"strings"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"locktop/internal/server"
)

// KnowIfEqual makes an embedded server execute SET key new IFEQ old PX ms, in this order of
// the arguments, like Redis 8.4 and Valkey 8.1.
func KnowIfEqual(e *server.Embedded) {
	conn, err := e.Dial(context.Background(), "", "") // the first connection makes the server that has the hook
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	serving := e.Redis.Server()
	serving.SetPreHook(func(c *miniserver.Peer, command string, args ...string) bool {
		if command != "SET" || len(args) != 6 || !strings.EqualFold(args[2], "ifeq") {
			return false
		}
		const script = "return redis.call('GET', KEYS[1]) == ARGV[2] and redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])"
		serving.Dispatch(c, []string{"EVAL", script, "1", args[0], args[1], args[3], args[5]})
		return true
	})
}
