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
	//go:embed rw_look.lua
	rwLookSource string

	rwRead     = newScript(rwCommonSource + rwReadSource)
	rwWrite    = newScript(rwCommonSource + rwWriteSource)
	rwExtend   = newScript(rwCommonSource + rwExtendSource)
	rwRelease  = newScript(rwCommonSource + rwReleaseSource)
	rwWithdraw = newScript(rwCommonSource + rwWithdrawSource)
	rwLook     = newScript(rwCommonSource + rwLookSource)
)

// rwMode is a side of the lock, as the scripts call it.
type rwMode string

const (
	readMode  rwMode = "r"
	writeMode rwMode = "w"
)

// rwForm is one side of the hash.
type rwForm struct {
	wire   wire
	keys   []string // the lock; its fence, if it has one
	mode   rwMode
	taking *script
	free   string // tells writers that somebody has left
	open   string // tells readers that a writer has left, or waits no longer
}

func newRWForm(w wire, key string, mode rwMode, fence bool) *rwForm {
	f := &rwForm{wire: w, keys: keysOf(key, fence), mode: mode, taking: rwRead, free: name(key, "free"), open: name(key, "open")}
	if mode == writeMode {
		f.taking = rwWrite
	}
	return f
}

// ask sends what the scripts that take a side have in common: who is an own
// token or id, and d a time, that mean something else for each.
func (f *rwForm) ask(ctx context.Context, token string, ttl time.Duration, entries int, who string, d time.Duration) pending {
	return f.taking.send(ctx, f.wire, f.keys, string(f.mode), token, ttl.Milliseconds(), entries, who, d.Milliseconds())
}

func (f *rwForm) acquire(ctx context.Context, token string, ttl time.Duration, entries int) pending {
	return f.ask(ctx, token, ttl, entries, "", -time.Millisecond)
}

func (f *rwForm) extend(ctx context.Context, token string, ttl time.Duration) pending {
	return rwExtend.send(ctx, f.wire, f.keys[:1], string(f.mode), token, ttl.Milliseconds())
}

func (f *rwForm) release(ctx context.Context, token string, left int) pending {
	return rwRelease.send(ctx, f.wire, f.keys[:1], string(f.mode), token, left, f.free, f.open)
}

func (f *rwForm) withdraw(ctx context.Context, id string) pending {
	return rwWithdraw.send(ctx, f.wire, f.keys[:1], "q", id, f.free, f.open)
}

func (f *rwForm) lockKey() string { return f.keys[0] }

func (f *rwForm) look(ctx context.Context) pending {
	return rwLook.send(ctx, f.wire, f.keys[:1], string(f.mode), "")
}

func (f *rwForm) channel() string {
	if f.mode == writeMode {
		return f.free
	}
	return f.open
}
