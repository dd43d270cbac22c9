package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"locktop/loadgen"
	"locktop/server"
)

// stage is the world of the demo: an embedded server, the cast that keeps its
// locks moving, and a load.
type stage struct {
	target
	load *loadgen.Run
}

// openStage starts everything. What it started must be closed.
func openStage(ctx context.Context, clients int) (*stage, error) {
	e, err := server.StartEmbedded()
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(&redis.Options{
		Addr:                  e.Addr(),
		Dialer:                e.Dial,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
	st := &stage{target: target{rdb: rdb, title: "demo on redis://" + e.Addr()}}
	st.close = func() {
		_ = rdb.Close()
		e.Close()
	}
	if err := st.start(ctx, clients); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// start puts cast and clients to work, and has close end them first.
func (st *stage) start(ctx context.Context, clients int) error {
	c, err := newCast(ctx, st.rdb)
	if err != nil {
		return fmt.Errorf("set the scene: %w", err)
	}
	st.load, err = loadgen.New(loadgen.Servers{Redis: st.rdb}, demoLoad(clients))
	if err != nil {
		return err
	}
	if err := st.load.Start(); err != nil {
		return err
	}
	playing, leave := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.play(playing)
	}()
	closeServer := st.close
	st.close = func() {
		leave()
		<-done
		// What it could not release goes with the server.
		_ = st.load.Close()
		closeServer()
	}
	return nil
}

// demoLoad holds long enough for people to see who holds and who waits.
func demoLoad(clients int) loadgen.Scenario {
	return loadgen.Scenario{
		Name: "demo",
		Caption: "Clients fight over three locks, and keep their leases alive while they work. " +
			"Add some with + and watch the waiting grow.",
		Clients: clients,
		Lock:    loadgen.Lock{TTL: 3 * time.Second},
		Hold:    loadgen.Exp(300 * time.Millisecond),
		Think:   loadgen.Exp(500 * time.Millisecond),
	}
}
