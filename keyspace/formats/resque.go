package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// resqueLock is the format of Ruby's resque-lock-timeout: the deadline in seconds, or
// "true", under the class and the arguments of a job, without a TTL.
func resqueLock() keyspace.Format {
	f := endsByValue(fixed(keyspace.Certain), func(s string) (time.Time, bool) {
		if s == "true" {
			return time.Time{}, true
		}
		return atSeconds(s)
	})
	f.Name = "resque-lock-timeout"
	f.Library = "resque-lock-timeout"
	f.Source = "github.com/lantins/resque-lock-timeout: lib/resque/plugins/lock_timeout.rb"
	f.Signature = "the name is lock: and a job's class, and the value a time in seconds, or true"
	f.Match = func(key string) bool {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(key, "resque:"), "loner:"), "lock:")
		class, _, _ := strings.Cut(rest, ":")
		return ok && class != "" && 'A' <= class[0] && class[0] <= 'Z' && only(class, "")
	}
	s := endsItself("a job that runs", "resque:lock:ImportJob:17", "{s+600000}", 600*time.Second, whyByValue)
	s.Want.Confidence = keyspace.Certain
	f.Samples = []keyspace.Sample{s}
	return f
}
