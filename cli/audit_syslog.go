//go:build !windows

package cli

import (
	"io"
	"log/syslog"
)

// openSyslog connects to the local syslog daemon, or to the one behind a datagram socket
// with this path. The facility is authpriv, whose lines only administrators can read.
func openSyslog(socket string) (io.WriteCloser, error) {
	network := ""
	if socket != "" {
		network = "unixgram"
	}
	return syslog.Dial(network, socket, syslog.LOG_NOTICE|syslog.LOG_AUTHPRIV, "locktop")
}
