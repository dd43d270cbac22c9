package lock

import (
	"context"
	_ "embed"
	"time"

	"locktop/lock/internal/transport"
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

// rwMode is a side of the lock, as the scripts name it.
type rwMode string

const (
	readMode  rwMode = "r"
	writeMode rwMode = "w"
)

// rwProtocol stores one side of the lock in a hash.
type rwProtocol struct {
	transport     transport.Transport
	keys          []string // the lock; its fence, if it has one
	mode          rwMode
	writerChannel string // tells writers that a holder has left
	readerChannel string // tells readers that a writer has left or has stopped waiting
}

func newRWProtocol(t transport.Transport, key string, mode rwMode, fence bool) *rwProtocol {
	return &rwProtocol{transport: t, keys: keysOf(key, fence), mode: mode, writerChannel: companionKey(key, "free"), readerChannel: companionKey(key, "open")}
}

// read asks for the read side. ownWriteToken is the token of the owner's own write
// lock, which does not keep the owner out; empty = none. waited is how long the owner
// has been waiting; negative = it does not wait.
func (p *rwProtocol) read(ctx context.Context, token string, ttl time.Duration, entries int, ownWriteToken string, waited time.Duration) future {
	return rwRead.send(ctx, p.transport, p.keys, string(readMode), token, ttl.Milliseconds(), entries, ownWriteToken, waited.Milliseconds())
}

// write asks for the write side. If it is refused and claimID is not empty, a claim
// keeps out new readers and other writers for claimTTL.
func (p *rwProtocol) write(ctx context.Context, token string, ttl time.Duration, entries int, claimID string, claimTTL time.Duration) future {
	return rwWrite.send(ctx, p.transport, p.keys, string(writeMode), token, ttl.Milliseconds(), entries, claimID, claimTTL.Milliseconds())
}

func (p *rwProtocol) acquire(ctx context.Context, token string, ttl time.Duration, entries int) future {
	if p.mode == writeMode {
		return p.write(ctx, token, ttl, entries, "", 0)
	}
	return p.read(ctx, token, ttl, entries, "", -time.Millisecond)
}

func (p *rwProtocol) extend(ctx context.Context, token string, ttl time.Duration) future {
	return rwExtend.send(ctx, p.transport, p.keys[:1], string(p.mode), token, ttl.Milliseconds())
}

func (p *rwProtocol) release(ctx context.Context, token string, left int) future {
	return rwRelease.send(ctx, p.transport, p.keys[:1], string(p.mode), token, left, p.writerChannel, p.readerChannel)
}

func (p *rwProtocol) withdraw(ctx context.Context, id string) future {
	return rwWithdraw.send(ctx, p.transport, p.keys[:1], "q", id, p.writerChannel, p.readerChannel)
}

func (p *rwProtocol) lockKey() string { return p.keys[0] }

func (p *rwProtocol) peek(ctx context.Context) future {
	return rwPeek.send(ctx, p.transport, p.keys[:1], string(p.mode), "")
}

func (p *rwProtocol) channel() string {
	if p.mode == writeMode {
		return p.writerChannel
	}
	return p.readerChannel
}
