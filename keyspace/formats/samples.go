package formats

import (
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"locktop/keyspace"
)

//go:embed samples
var samplesFile string

// Samples returns the samples of the format with a name, which the caller must not change.
func Samples(format string) []keyspace.Sample { return samples()[format] }

var samples = sync.OnceValue(func() map[string][]keyspace.Sample {
	all := make(map[string][]keyspace.Sample)
	words := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)
	var format string
	var s keyspace.Sample
	for line := range strings.Lines(samplesFile) {
		line = strings.TrimSuffix(line, "\n")
		switch first, rest, _ := strings.Cut(line, " "); first {
		case "", "#":
		case ":":
			format, s.Name, _ = strings.Cut(rest, ": ")
		case "=":
			ttl, lock, _ := strings.Cut(rest, " ")
			var err error
			if s.TTL, err = time.ParseDuration(ttl); err == nil {
				err = json.Unmarshal([]byte(lock), &s.Want)
			}
			if err != nil {
				panic(line + ": " + err.Error()) // the file in this package is wrong
			}
			for i, h := range s.Want.Holders {
				if strings.Contains(h.ID, `\x`) {
					s.Want.Holders[i].ID = unquoted(`"` + h.ID + `"`)
				}
			}
			all[format], s = append(all[format], s), keyspace.Sample{}
		default:
			argv := words.FindAllString(line, -1)
			for i := range argv {
				argv[i] = unquoted(argv[i])
			}
			s.Commands = append(s.Commands, argv)
		}
	}
	return all
})

// unquoted returns a word without its quotes, if it has some.
func unquoted(word string) string {
	if text, err := strconv.Unquote(word); err == nil && word[0] == '"' {
		return text
	}
	return word
}

// At returns the sample with its placeholders filled in, for a server with the clock
// now.
func At(s keyspace.Sample, now time.Time) keyspace.Sample {
	commands := make([][]string, len(s.Commands))
	for i, argv := range s.Commands {
		commands[i] = slices.Clone(argv)
		for j := range argv {
			commands[i][j] = fill(argv[j], now)
		}
	}
	s.Commands = commands
	s.Want.Holders = slices.Clone(s.Want.Holders)
	for i := range s.Want.Holders {
		s.Want.Holders[i].ID = fill(s.Want.Holders[i].ID, now)
	}
	s.Want.Waiters = slices.Clone(s.Want.Waiters)
	for i := range s.Want.Waiters {
		s.Want.Waiters[i].ID = fill(s.Want.Waiters[i].ID, now)
	}
	return s
}

// fill replaces the placeholders in one argument.
func fill(arg string, now time.Time) string {
	if !strings.Contains(arg, "{") {
		return arg
	}
	placeholder := regexp.MustCompile(`\{(ms|s|f|iso|ruby|uniqid|v1|v1hex|v1b64|v7)([+-]\d+)(?:/([0-9a-f]{2}))?\}`)
	return placeholder.ReplaceAllStringFunc(arg, func(found string) string {
		part := placeholder.FindStringSubmatch(found)
		offset, _ := strconv.ParseInt(part[2], 10, 64)
		rest, _ := strconv.ParseUint("0"+part[3], 16, 8)
		at := now.Add(time.Duration(offset) * time.Millisecond)
		switch part[1] {
		case "v7":
			return version7(at, byte(rest)).String()
		case "v1":
			return version1(at, byte(rest)).String()
		case "v1hex":
			id := version1(at, byte(rest))
			return hex.EncodeToString(id[:])
		case "v1b64":
			id := version1(at, byte(rest))
			return base64.StdEncoding.EncodeToString(id[:])
		case "uniqid":
			return fmt.Sprintf("%08x%05x", at.Unix(), at.Nanosecond()/1000)
		case "ruby":
			return at.UTC().Format(rubyLayout)
		case "iso":
			return at.UTC().Format("2006-01-02T15:04:05.000Z")
		case "f":
			return fmt.Sprintf("%d.%03d", at.Unix(), at.UnixMilli()%1000)
		case "s":
			return strconv.FormatInt(at.Unix(), 10)
		default:
			return strconv.FormatInt(at.UnixMilli(), 10)
		}
	})
}

// version7 returns a UUID v7 with the time at and rest in all other bytes.
func version7(at time.Time, rest byte) uuid.UUID {
	id := repeated(rest)
	milli := uint64(at.UnixMilli())
	binary.BigEndian.PutUint16(id[0:], uint16(milli>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(milli))
	id[6] = 0x70 | id[6]&0x0f
	return id
}

// version1 returns a UUID v1 with the time at and rest in all other bytes.
func version1(at time.Time, rest byte) uuid.UUID {
	const gregorian = 122_192_928_000_000_000 // 1582-10-15 to 1970-01-01, in units of 100 ns
	id := repeated(rest)
	ticks := uint64(at.UnixNano()/100) + gregorian
	binary.BigEndian.PutUint32(id[0:], uint32(ticks))
	binary.BigEndian.PutUint16(id[4:], uint16(ticks>>32))
	binary.BigEndian.PutUint16(id[6:], 0x1000|uint16(ticks>>48)&0x0fff)
	return id
}

// repeated returns a UUID of the usual variant with b in all other bytes.
func repeated(b byte) uuid.UUID {
	var id uuid.UUID
	for i := range id {
		id[i] = b
	}
	id[8] = 0x80 | b&0x3f
	return id
}
