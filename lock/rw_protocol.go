package lock

import (
	"context"
	_ "embed"
	"time"
)

var (
	//go:embed rw_common.lua
	rwCommonSource string
	//go:embed rw_read.lua
	rwReadSource string
	//go:embed rw_write.lua
	rwWriteSource string
	//go:embed rw_extend.lua
	rwExtendSource string
	//go:embed rw_release.lua
	rwReleaseSource string
	//go:embed rw_withdraw.lua
	rwWithdrawSource string
	//go:embed rw_peek.lua
	rwPeekSource string

	rwRead     = newScript(rwCommonSource + rwReadSource)
	rwWrite    = newScript(rwCommonSource + rwWriteSource)
	rwExtend   = newScript(rwCommonSource + rwExtendSource)
	rwRelease  = newScript(rwCommonSource + rwReleaseSource)
	rwWithdraw = newScript(rwCommonSource + rwWithdrawSource)
	rwPeek     = newScript(rwCommonSource + rwPeekSource)
)

// rwMode is a side of the lock, as the scripts call it.
type rwMode string

const (
	readMode  rwMode = "r"
	writeMode rwMode = "w"
)

// rwProtocol is one side of the hash.
type rwProtocol struct {
	transport     transport
	keys          []string // the lock; its fence, if it has one
	mode          rwMode
	acquireScript *script
	writerChannel string // tells writers that somebody has left
	readerChannel string // tells readers that a writer has left, or waits no longer
}

func newRWProtocol(w transport, key string, mode rwMode, fence bool) *rwProtocol {
	f := &rwProtocol{transport: w, keys: keysOf(key, fence), mode: mode, acquireScript: rwRead, writerChannel: companionKey(key, "free"), readerChannel: companionKey(key, "open")}
	if mode == writeMode {
		f.acquireScript = rwWrite
	}
	return f
}

// ask sends what the scripts that take a side have in common: who is an own
// token or id, and d a time, that mean something else for each.
func (f *rwProtocol) ask(ctx context.Context, token string, ttl time.Duration, entries int, who string, d time.Duration) future {
	return f.acquireScript.send(ctx, f.transport, f.keys, string(f.mode), token, ttl.Milliseconds(), entries, who, d.Milliseconds())
}

func (f *rwProtocol) acquire(ctx context.Context, token string, ttl time.Duration, entries int) future {
	return f.ask(ctx, token, ttl, entries, "", -time.Millisecond)
}

func (f *rwProtocol) extend(ctx context.Context, token string, ttl time.Duration) future {
	return rwExtend.send(ctx, f.transport, f.keys[:1], string(f.mode), token, ttl.Milliseconds())
}

func (f *rwProtocol) release(ctx context.Context, token string, left int) future {
	return rwRelease.send(ctx, f.transport, f.keys[:1], string(f.mode), token, left, f.writerChannel, f.readerChannel)
}

func (f *rwProtocol) withdraw(ctx context.Context, id string) future {
	return rwWithdraw.send(ctx, f.transport, f.keys[:1], "q", id, f.writerChannel, f.readerChannel)
}

func (f *rwProtocol) lockKey() string { return f.keys[0] }

func (f *rwProtocol) peek(ctx context.Context) future {
	return rwPeek.send(ctx, f.transport, f.keys[:1], string(f.mode), "")
}

func (f *rwProtocol) channel() string {
	if f.mode == writeMode {
		return f.writerChannel
	}
	return f.readerChannel
}
