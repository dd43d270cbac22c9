// Package testtier sorts the tests into the tiers that CONTRIBUTING.md describes:
//
//   - go test runs the first tier: everything that is pure or has a fake clock, and one test on a
//     real server for each promise.
//   - [LongVariable] also runs the tests that call [Long]. CI does so.
//   - [ProofVariable] also runs the tests that call [Proof], which are in lab, and all tests at the
//     sizes of the figures of the pages. It implies the long tier.
//
// With [SmallVariable], the tests of the long tier have the sizes of the first.
package testtier

import "os"

// LongVariable and ProofVariable are the environment variables that select a tier, and
// SmallVariable the one that makes the long tier small, by any value but the empty one.
const (
	LongVariable  = "LOCKTOP_LONG"
	ProofVariable = "LOCKTOP_PROOF"
	SmallVariable = "LOCKTOP_SMALL"
)

// TB is the part of *testing.T and *testing.B that this package uses.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
}

// Proving reports whether tests run at full size.
func Proving() bool { return os.Getenv(ProofVariable) != "" }

// InLong reports whether the tests of the long tier run.
func InLong() bool { return os.Getenv(LongVariable) != "" || Proving() }

// Long puts the test that calls it into the long tier: without that tier, it skips the test and
// says why, and how to run it. Why completes the sentence "the test is long: …".
func Long(t TB, why string) {
	t.Helper()
	if !InLong() {
		t.Skipf("the test is long: %s; %s=1 or `make test-long` runs it", why, LongVariable)
	}
}

// Proof puts the test that calls it into the proofs, which run only by name: else it skips the test
// and says why, and how to run it. Why completes the sentence "the test is a proof: …".
func Proof(t TB, why string) {
	t.Helper()
	if !Proving() {
		t.Skipf("the test is a proof: %s; %s=1 runs it", why, ProofVariable)
	}
}

// Size returns the size of a test in the selected tier.
func Size(first, long, proof int) int {
	switch {
	case Proving():
		return proof
	case InLong() && os.Getenv(SmallVariable) == "":
		return long
	default:
		return first
	}
}
