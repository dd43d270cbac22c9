package transport

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// rotation is a provider whose credentials the test changes.
type rotation struct {
	mu        sync.Mutex
	user      string
	next      int
	listeners map[int]auth.CredentialsListener // by number of the subscription
}

func (r *rotation) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	number := r.next
	r.listeners[number] = l
	return auth.NewBasicCredentials(r.user, "pw"), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, number)
		return nil
	}, nil
}

func (r *rotation) change(user string) {
	r.mu.Lock()
	r.user = user
	var all []auth.CredentialsListener
	for _, l := range r.listeners {
		all = append(all, l)
	}
	r.mu.Unlock()
	for _, l := range all {
		l.OnNext(auth.NewBasicCredentials(user, "pw"))
	}
}

// The server ends the connections of a user that it deletes. A stream whose user changes
// before stays, with all its commands in flight, and a new stream logs in as the new user.
func TestAStreamAuthenticatesAgainInOrder(t *testing.T) {
	admin := redis.NewClient(&redis.Options{Addr: servertest.RedisForTest(t).Addr(), DisableIdentity: true})
	defer admin.Close()
	for _, user := range []string{"first", "second"} {
		check.NoError(t, servertest.SetUser(t.Context(), admin, user, "on", ">pw", "~*", "&*", "+@all"))
	}
	r := &rotation{user: "first", listeners: make(map[int]auth.CredentialsListener)}
	rig := newRig(t, admin.Options().Addr, redis.NewDialer(&redis.Options{}), func(o *redis.Options) { o.StreamingCredentialsProvider = r })
	rig.mustEcho()

	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if reply, err := rig.echo(t.Context(), "x"); reply != "x" || err != nil {
					t.Errorf("a command got %v, %v", reply, err)
					return
				}
			}
		})
	}
	r.change("second")
	deadline := time.Now().Add(20 * time.Second)
	for strings.Contains(admin.ClientList(t.Context()).Val(), "user=first") {
		check.Require(t, !time.Now().After(deadline), "the stream is still that of the first user")
		time.Sleep(time.Millisecond)
	}
	check.NoError(t, admin.Do(t.Context(), "acl", "deluser", "first").Err())
	for range 100 {
		rig.mustEcho()
	}
	stop()
	callers.Wait()

	rig.proxy.Cut()
	var err error
	for range 1000 {
		if _, err = rig.echo(t.Context(), "y"); err == nil {
			break
		}
	}
	check.ErrorIs(t, err, nil, "a new stream does not log in as the second user")
	rig.pipe.Close()
	check.Equal(t, len(r.listeners), 0, "a closed transport has listeners")
}
