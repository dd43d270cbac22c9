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
	writerChannel string // tells writers that somebody has left
	readerChannel string // tells readers that a writer has left, or waits no longer
}

func newRWProtocol(t transport, key string, mode rwMode, fence bool) *rwProtocol {
	return &rwProtocol{transport: t, keys: keysOf(key, fence), mode: mode, writerChannel: companionKey(key, "free"), readerChannel: companionKey(key, "open")}
}

// read asks for the read side. ownWriteToken is the token of the owner's own write lock,
// within which the owner may read; empty = none. waited is how long the owner has been
// waiting; negative = the owner does not wait.
func (p *rwProtocol) read(ctx context.Context, token string, ttl time.Duration, entries int, ownWriteToken string, waited time.Duration) future {
	return rwRead.send(ctx, p.transport, p.keys, string(readMode), token, ttl.Milliseconds(), entries, ownWriteToken, waited.Milliseconds())
}

// write asks for the write side. If the server refuses, it keeps others out for claimTTL in the
// name of claimID; empty = no claim.
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
