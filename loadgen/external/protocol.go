// Package external drives lock clients that are processes of their own, in any language.
//
// A client reads requests from stdin and writes replies to stdout, as UTF-8 JSON, one
// object per line. This is version 1 of the protocol:
//
//	→ {"op":"hello","v":1,"urls":["redis://127.0.0.1:40001"],"client":"c7","clock_offset_ms":3000}
//	← {"ok":true,"name":"redsync 4.18.1","kinds":["mutex"],"renews":false,"fences":false,"tells":false,"clock":false}
//	→ {"op":"lock","id":1,"key":"load:{x}:1","ttl_ms":5000,"wait_ms":2000}
//	← {"id":1,"ok":true,"token":"…","valid_ms":4990,"fence":17}
//	← {"id":1,"ok":false,"held":true}              another holder had the lock for all of wait_ms
//	← {"id":1,"ok":false,"error":"…"}
//	→ {"op":"unlock","id":2,"token":"…","lock":1}
//	← {"id":2,"ok":true}
//	← {"id":2,"ok":false,"lost":true}              the client did not hold the lock any more
//	→ {"op":"extend","id":3,"token":"…","lock":1,"ttl_ms":5000}
//	← {"id":3,"ok":true,"valid_ms":4990}
//	← {"event":"lost","token":"…"}                 at any time, if hello says tells
//	← {"event":"renewed","token":"…","valid_ms":4990}   after a renewal, if the library shows it
//	→ {"op":"cancel","id":1}                       stop waiting for lock 1, which is then answered; if hello says cancels
//	→ {"op":"bye"}                                 release everything and exit
//
// A lock may ask for more, of a client whose hello has the kind: "mode":"read" of rw,
// "permits":3 of semaphore, "keys":["a","b"] of all, and a second lock of a held key of
// reentrant. Without these fields it is a lock of one key for one holder. A client with
// "clock":true adds clock_offset_ms to its clock.
//
// Unknown fields and events are ignored. What a client writes to stderr is for people:
// an error of the client quotes the last lines of it.
package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Version is the version of the protocol.
const Version = 1

// Operations of a [Request].
const (
	opHello  = "hello"
	opLock   = "lock"
	opUnlock = "unlock"
	opExtend = "extend"
	opCancel = "cancel"
	opBye    = "bye"
)

// Request is a line on the stdin of a client.
type Request struct {
	Op     string   `json:"op"`
	ID     int64    `json:"id,omitempty"` // of lock, unlock and extend, from 1; of cancel: that of the lock
	V      int      `json:"v,omitempty"`
	URLs   []string `json:"urls,omitempty"`
	Client string   `json:"client,omitempty"`
	Key    string   `json:"key,omitempty"`
	TTL    int64    `json:"ttl_ms,omitempty"`
	Wait   *int64   `json:"wait_ms,omitempty"`
	Token  string   `json:"token,omitempty"`
	Lock   int64    `json:"lock,omitempty"` // of unlock and extend: the ID of the lock, for a client with one token for several

	ClockOffset int64    `json:"clock_offset_ms,omitempty"` // how far the clock of the client is ahead
	Mode        string   `json:"mode,omitempty"`            // ModeRead, or "" = write
	Permits     int      `json:"permits,omitempty"`         // how many clients may hold the key at once; 0 = 1
	Keys        []string `json:"keys,omitempty"`            // to lock together, Key is the first; none = only Key

	cancel <-chan struct{} // of lock: closed to stop waiting; nil: never
}

// ModeRead is the mode of a lock that readers share.
const ModeRead = "read"

// Hello is the first reply of a client.
type Hello struct {
	Name   string   `json:"name"`   // of the library, with its version
	Kinds  []string `json:"kinds"`  // of lock: mutex, reentrant, rw, fair, redlock, semaphore, all
	Renews bool     `json:"renews"` // the client renews its leases by itself
	Fences bool     `json:"fences"` // a lock has a fence
	Tells  bool     `json:"tells"`  // the client reports a lost lease
	Clock  bool     `json:"clock"`  // the client obeys Request.ClockOffset

	Cancels bool `json:"cancels"` // the client can stop waiting for a lock
}

// Reply is a line on the stdout of a client.
type Reply struct {
	Hello

	OK    bool   `json:"ok"`
	V     *int   `json:"v"`  // of hello; absent = 1
	ID    *int64 `json:"id"` // of the request
	Event string `json:"event"`
	Error string `json:"error"`
	Held  bool   `json:"held"`
	Lost  bool   `json:"lost"`
	Token string `json:"token"`
	Valid *int64 `json:"valid_ms"` // 0 or less: the lease is over already
	Fence int64  `json:"fence"`
}

// Ways in which a client breaks the protocol. An [Error] wraps one of them.
var (
	ErrNoHello       = errors.New("it did not say hello in time")
	ErrVersion       = fmt.Errorf("it does not speak version %d of the protocol", Version)
	ErrNotJSON       = errors.New("it wrote a line that is not a JSON object")
	ErrField         = errors.New("it wrote a line with a missing or wrong field")
	ErrUnknownID     = errors.New("it answered a request that was never made")
	ErrAnsweredTwice = errors.New("it answered a request twice")
	ErrLate          = errors.New("it did not answer in time")
	ErrExited        = errors.New("it exited")
	ErrFlood         = errors.New("it flooded its stdout")
)

// Results of requests that do not break the protocol.
var (
	ErrHeld   = errors.New(`it answered "held"`)
	ErrLost   = errors.New("the client does not hold the lock any more")
	ErrKilled = errors.New("the client was killed")
	ErrClosed = errors.New("the client was closed")
)

// Error is the end of a client that broke the protocol. It is one line of printable
// text.
type Error struct {
	Client string // its name, or its command before it said hello
	Err    error  // one of the errors above
	Detail string // "" if there is none
	Stderr string // the last lines of its stderr, joined by " | "
}

func (e *Error) Error() string {
	text := fmt.Sprintf("client %s: %v", e.Client, e.Err)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Stderr != "" {
		text += "; its stderr ends with: " + e.Stderr
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// parseReply parses a line of a client. The error is that of an [Error].
func parseReply(line []byte) (r Reply, detail string, err error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return r, quoted(line), ErrNotJSON
	}
	failed := json.Unmarshal(line, &r)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(failed, &wrong):
		return r, fmt.Sprintf("%s is a %s", wrong.Field, wrong.Value), ErrField
	case failed != nil:
		return r, quoted(line), ErrNotJSON
	}
	return r, "", nil
}

// check returns an error about the first missing field of a reply to a request.
func (r Reply) check(op string) (detail string, err error) {
	switch {
	case !r.OK:
		return "", nil
	case op == opLock && r.Token == "":
		return "a lock without a token", ErrField
	case op == opLock && r.Valid == nil:
		return "a lock without valid_ms", ErrField
	}
	return r.checkValid()
}

func (r Reply) checkValid() (detail string, err error) {
	if most := maxValid.Milliseconds(); r.Valid != nil && (*r.Valid > most || *r.Valid < -most) {
		return fmt.Sprintf("valid_ms is %d", *r.Valid), ErrField
	}
	return "", nil
}

// maxValid is the longest lease.
const maxValid = 365 * 24 * time.Hour

// checkHello returns an error about a first reply that is not a hello.
func (r Reply) checkHello() (detail string, err error) {
	switch {
	case r.V != nil && *r.V != Version:
		return fmt.Sprintf("it speaks version %d", *r.V), ErrVersion
	case r.ID != nil || r.Event != "":
		return "its first line is not a hello", ErrField
	case !r.OK:
		return quoted([]byte(r.Error)), ErrVersion
	case r.Name == "":
		return "a hello without a name", ErrField
	}
	return "", nil
}
