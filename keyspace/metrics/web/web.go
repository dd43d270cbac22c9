package web

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Server serves HTTP by a configuration file. Its methods may be called by several
// goroutines.
type Server struct {
	path string // "" = no TLS and no users
	note func(text string)
	auth authenticator

	mu     sync.Mutex
	config *config
	tls    *tls.Config // nil: no TLS
	stamps []stamp     // of the files that were read
}

// stamp identifies a version of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// New returns a Server with the configuration file at path; an empty path means no TLS
// and no users. It returns an error if the configuration is wrong. Later problems with it
// are reported to note, one sentence each.
func New(path string, note func(text string)) (*Server, error) {
	s := &Server{path: path, note: note, config: &config{}}
	return s, s.Reload()
}

// TLS reports whether the server uses TLS.
func (s *Server) TLS() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tls != nil
}

// Reload reads the configuration file again. After an error the old configuration stays.
func (s *Server) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload()
}

// reload is Reload for a caller that holds the mutex.
func (s *Server) reload() error {
	if s.path == "" {
		return nil
	}
	c, err := load(s.path)
	if err != nil {
		s.stamps = stampsOf(s.path, s.config.files()) // do not report the same error again
		return err
	}
	first := s.stamps == nil
	s.stamps = stampsOf(s.path, c.files())
	if !first && (c.TLS == nil) != (s.tls == nil) {
		return fmt.Errorf("%s: TLS cannot be switched on or off without a restart", s.path)
	}
	s.config = c
	if c.TLS != nil {
		s.tls, err = c.TLS.server(c.http2())
	}
	return err
}

// stampsOf returns the stamps of files; a file that cannot be read has the zero stamp.
func stampsOf(first string, others []string) []stamp {
	var all []stamp
	for _, name := range append([]string{first}, others...) {
		var s stamp
		if info, err := os.Stat(name); err == nil {
			s = stamp{info.ModTime(), info.Size()}
		}
		all = append(all, s)
	}
	return all
}

// current returns the configuration. It reads the files again if they have changed.
func (s *Server) current() (*config, *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != "" && !slices.Equal(s.stamps, stampsOf(s.path, s.config.files())) {
		if err := s.reload(); err != nil {
			s.note(fmt.Sprintf("the old web configuration stays: %v", err))
		}
	}
	return s.config, s.tls
}

// Time limits of a connection.
const (
	headerTimeout = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 5 * time.Minute // scrapes are minutes apart
	closeTimeout  = time.Second     // for requests in progress at the end
)

// Serve serves h on l until ctx ends, which is not an error, and closes l. New connections
// and requests use the current configuration.
func (s *Server) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: s.guard(h), ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout}
	server.ErrorLog = log.New(io.Discard, "", 0) // a scanner of ports must not fill the log
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() // only closes what is left
		}
	})
	err := s.serve(server, l)
	if !end() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// serve accepts connections until the server is closed.
func (s *Server) serve(server *http.Server, l net.Listener) error {
	if !s.TLS() {
		return server.Serve(l)
	}
	server.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}, // the server prepares HTTP/2; the connection's own configuration decides
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			_, t := s.current()
			return t, nil
		},
	}
	return server.ServeTLS(l, "", "")
}

// guard sets the headers of the configuration, and serves only its users if it has any.
func (s *Server) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := s.current()
		for name, value := range c.HTTP.Headers {
			w.Header().Set(name, value)
		}
		if len(c.Users) > 0 {
			user, pass, _ := r.BasicAuth()
			if !s.auth.allows(c.Users, user, pass) {
				w.Header().Set("WWW-Authenticate", `Basic realm="locktop"`)
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// authenticator checks passwords. A bcrypt hash takes about 50 ms of CPU, so that it
// checks one password at a time, and remembers those that were right.
type authenticator struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]bool // of user, hash and password
}

// nobody is a hash of cost 10 that no password has: a request with an unknown user takes as
// long as one with a wrong password.
const nobody = "$2a$10$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func (a *authenticator) allows(users map[string]string, user, pass string) bool {
	hash, exists := users[user]
	if !exists {
		hash = nobody
	}
	id := sha256.Sum256([]byte(user + "\x00" + hash + "\x00" + pass))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[id] {
		return true
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(pass)) != nil || !exists {
		return false
	}
	if a.known == nil || len(a.known) >= 100 { // the most that it remembers
		a.known = make(map[[sha256.Size]byte]bool)
	}
	a.known[id] = true
	return true
}
