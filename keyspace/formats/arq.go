package formats

import (
	"time"

	"locktop/keyspace"
)

// arq is the format of the job locks of Python's arq. A worker sets the flag.
func arq() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return v == "1" }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "arq",
		Library:   "arq",
		Source:    "github.com/python-arq/arq: arq/worker.py",
		Signature: "the name begins with arq:in-progress:, and the value is 1",
		Prefixes:  []string{"arq:in-progress:"},
		Samples:   []keyspace.Sample{opaqueSample("a job that runs", "arq:in-progress:"+sampleHex3, "1", keyspace.Certain, 5*time.Minute)},
	})
}
