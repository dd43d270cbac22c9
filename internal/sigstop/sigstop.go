// Package sigstop waits for the effect of the signal SIGSTOP.
package sigstop
