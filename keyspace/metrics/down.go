package metrics

// DownReason is why a target does not answer. Those that Prometheus has for its own
// connections have the same names.
type DownReason string

// Reasons. The first ones are found before the server has a connection, so they are those
// of a network that does not work, too.
const (
	Resolution     DownReason = "resolution"      // the name of the server has no address
	Unreachable    DownReason = "unreachable"     // the network reports that there is no way to the server
	ConnectTimeout DownReason = "connect-timeout" // there was no answer to the request for a connection
	Refused        DownReason = "refused"         // the machine answers, but nothing listens on the port
	ReplyTimeout   DownReason = "reply-timeout"   // there is a connection, but no reply
	Closed         DownReason = "closed"          // the connection was closed
	TLS            DownReason = "tls"             // no agreement on TLS, such as a wrong certificate
	Rejected       DownReason = "rejected"        // the server rejects the user or the password
	ErrorReply     DownReason = "error-reply"     // the server replies with another error, such as LOADING
	OtherReason    DownReason = "other"
)

// DownReasons lists all reasons.
func DownReasons() []DownReason {
	return []DownReason{Resolution, Unreachable, ConnectTimeout, Refused, ReplyTimeout, Closed, TLS, Rejected, ErrorReply, OtherReason}
}
