package formats

import (
	"time"

	"locktop/keyspace"
)

// gitlab is the format of GitLab's exclusive lease.
func gitlab() keyspace.Format {
	r := stringLock{token: opaqueToken(isUUID), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "gitlab",
		Library:   "GitLab",
		Source:    "gitlab.com/gitlab-org/gitlab: lib/gitlab/exclusive_lease.rb",
		Signature: "the name begins with gitlab:exclusive_lease:, and the value is a UUID",
		Prefixes:  []string{"gitlab:exclusive_lease:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "gitlab:exclusive_lease:project_housekeeping:17", sampleUUID2, keyspace.Certain, time.Hour)},
	})
}
