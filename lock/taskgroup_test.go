package lock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// A task may begin just before the group is closed. The goroutine that waits for the
// end of all tasks must not continue before that task has ended, and must not wait
// forever for a task that was refused.
func TestAClosedTaskGroupIsIdleOnceNoTaskRuns(t *testing.T) {
	for range testtier.Size(40, 200, 200) {
		var group taskGroup
		var running, begun atomic.Int64
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for group.begin() {
					running.Add(1)
					begun.Add(1)
					group.idle()
					running.Add(-1)
					group.done()
				}
			})
		}
		for begun.Load() < 20 {
			runtime.Gosched()
		}
		group.close()
		<-group.idle()
		n := running.Load()
		check.Require(t, n == 0, "%d tasks run in a group that is closed and idle", n)
		callers.Wait()
		<-group.idle()
		check.Require(t, !group.begin(), "a task began in a closed group")
	}
}
