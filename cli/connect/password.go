package connect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/redis/go-redis/v9/auth"

	"locktop/internal/humanize"
	"locktop/internal/shell"
	"locktop/tui/widget"
)

// passwordWays are the flags that give a password.
var passwordWays = []string{"pass", "askpass", "password-command", "password-file"}

// source is where a password that may change comes from: a command or a file, and the flag or the
// key of the context that names it. The zero value is none.
type source struct{ origin, command, file string }

// passwordSource returns the source of the password. A flag with a password replaces those of the
// context.
func (c *Flags) passwordSource() source {
	switch {
	case c.given("password-command"), c.of.has("password-command"):
		return source{origin: c.of.origin("password-command"), command: c.command}
	case c.given("password-file"), c.of.has("password-file"):
		return source{origin: c.of.origin("password-file"), file: c.file}
	}
	return source{}
}

// rotates reports whether the password comes from a command or a file.
func (c *Flags) rotates() bool { return c.passwordSource() != source{} }

// Interactive reports whether to connect may ask the user, or run a program.
func (c *Flags) Interactive() bool { return c.askPass || c.rotates() || c.ssh != "" }

// checkPassword returns an error for two flags that give a password.
func (c *Flags) checkPassword() error {
	given := slices.DeleteFunc(slices.Clone(passwordWays), func(way string) bool { return !c.given(way) })
	if len(given) > 1 {
		return usagef("", "--%s and --%s contradict each other", given[0], given[1])
	}
	return nil
}

// Prompt is where Open asks for the password and reports what is unsafe.
type Prompt struct {
	In   io.Reader
	Out  io.Writer
	Warn func(format string, args ...any) // nil: Open does not warn
	Note func(format string, args ...any) // nil: Open does not wait for a server that loads its data
}

// password reads a password from a terminal without echo, or else from the first line
// of In. When ctx ends first, password turns the echo on again and returns the error of
// ctx.
func (p Prompt) password(ctx context.Context) (string, error) {
	read := p.firstLine
	if f, ok := p.In.(*os.File); ok && term.IsTerminal(f.Fd()) {
		before, err := term.GetState(f.Fd())
		if err != nil {
			return "", fmt.Errorf("ask for the password: %w", err)
		}
		defer func() { _ = term.Restore(f.Fd(), before) }()
		read = func() (string, error) { return p.withoutEcho(f) }
	}

	// A blocked read cannot be cancelled: its goroutine lives until the process
	// ends.
	type answer struct {
		pass string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		pass, err := read()
		answered <- answer{pass, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-answered:
		if a.err != nil {
			return "", fmt.Errorf("ask for the password: %w", a.err)
		}
		if a.pass == "" {
			return "", usagef("", "--askpass got no password")
		}
		return a.pass, nil
	}
}

func (p Prompt) withoutEcho(terminal *os.File) (string, error) {
	fmt.Fprint(p.Out, "Password: ")
	defer fmt.Fprintln(p.Out)
	pass, err := term.ReadPassword(terminal.Fd())
	return string(pass), err
}

func (p Prompt) firstLine() (string, error) {
	line, err := bufio.NewReader(p.In).ReadString('\n')
	if err == io.EOF {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

// othersCanChange reports whether a regular file can be changed by users other than its
// owner.
func othersCanChange(info os.FileInfo) bool { return permits(info, 0o022) }

// permits reports whether the mode of a regular file has any of the bits. Windows has none.
func permits(info os.FileInfo, bits fs.FileMode) bool {
	return os.PathSeparator == '/' && info.Mode().IsRegular() && info.Mode().Perm()&bits != 0
}

// readPrivate reads the begin of a file with a password or a key, at most one byte more
// than maxSecret. It refuses a file that others can change.
func readPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && othersCanChange(info) {
		return nil, errors.New(withChmod("others may change "+path, path))
	}
	return io.ReadAll(io.LimitReader(file, maxSecret+1))
}

// withChmod appends the hint of chmodHint to a text about a file.
func withChmod(text, path string) string {
	if hint := chmodHint(path); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// chmodHint returns a hint with the command that hides a file from other users. It
// returns "" if the name has characters that a line for people cannot show.
func chmodHint(path string) string {
	line, _ := shell.Line("chmod", "600", path)
	if widget.Plain(line) != line {
		return ""
	}
	return line
}

const (
	secretWithin = 30 * time.Second // longest run of a password command
	secretReuse  = time.Second      // connections that open together share one run of the command
	maxSecret    = 64 << 10         // bytes of a password with its JSON
)

// credentials is a user and a password.
type credentials struct {
	user, pass string    // user is "" if the source names none
	expires    time.Time // zero: not known
}

// secret is a password that may change while locktop runs. Each new connection asks for
// it, and so does secret itself before the credentials expire. When the answer changes, all
// subscribed connections authenticate again. It is safe for concurrent use.
type secret struct {
	origin string // flag or key of the configuration, for errors
	read   func(context.Context) ([]byte, error)
	reuse  time.Duration // how long an answer stays fresh

	asking sync.Mutex // held while asking

	mu        sync.Mutex
	current   credentials
	answered  time.Time
	next      time.Time                           // when to ask again, before the credentials expire
	listeners map[auth.CredentialsListener]string // with the user of a connection whose source names none
	timer     *time.Timer                         // asks at next; nil: it is not armed
}

// newSecret returns the secret that a command prints, without a shell and without input, or the one
// in a file. It refuses a file that others can change.
func newSecret(from source) (*secret, error) {
	s := &secret{origin: from.origin, listeners: make(map[auth.CredentialsListener]string)}
	if from.file != "" {
		s.read = func(context.Context) ([]byte, error) { return readPrivate(from.file) }
		return s, nil
	}
	words, err := shell.Split(from.command)
	if err == nil && len(words) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, usagef("like 'pass show redis/prod'", "%s is no command: %w", from.origin, err)
	}
	s.reuse, s.read = secretReuse, func(ctx context.Context) ([]byte, error) { return output(ctx, words) }
	return s, nil
}

// output runs a command and returns its stdout. An error has the first line of its
// stderr, and nothing of its stdout.
func output(ctx context.Context, words []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.WaitDelay = time.Second // for children that keep stdout open
	var out, said limited
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
	line = widget.Plain(line)
	printed := strings.TrimSpace(out.String())
	_, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("the command has not ended within %s", humanize.Setting(secretWithin))
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case exited && line != "" && (printed == "" || !strings.Contains(line, printed)):
		return nil, fmt.Errorf("%w: %s", err, line)
	}
	return out.Bytes(), err
}

// limited keeps the first bytes of a program's output: maxSecret and one more, which shows that the secret is too long.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxSecret + 1 - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// parseSecret reads a line with the password, or a JSON object that begins with {. Its
// errors quote nothing.
func parseSecret(raw []byte) (credentials, error) {
	text := strings.TrimRight(string(raw), "\r\n")
	switch {
	case len(raw) > maxSecret:
		return credentials{}, fmt.Errorf("the password is longer than %s bytes", humanize.Count(maxSecret))
	case text == "":
		return credentials{}, errors.New("there is no password")
	case !strings.HasPrefix(text, "{"):
		if strings.ContainsAny(text, "\r\n") {
			return credentials{}, errors.New("there is more than one line")
		}
		return credentials{pass: text}, nil
	}
	var said struct {
		Username  string    `json:"username"`
		Password  string    `json:"password"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	switch err := json.Unmarshal([]byte(text), &said); {
	case err != nil:
		return credentials{}, errors.New(`it begins with { and is not JSON like {"username":"ann","password":"…","expires_at":"2030-01-31T12:00:00Z"}`)
	case said.Password == "":
		return credentials{}, errors.New(`the JSON has no "password"`)
	case !said.ExpiresAt.IsZero() && time.Until(said.ExpiresAt) <= 0:
		return credentials{}, fmt.Errorf("the credentials expired at %s", said.ExpiresAt.Format(time.RFC3339))
	}
	return credentials{said.Username, said.Password, said.ExpiresAt}, nil
}

// last returns the last answer; fresh is true if it is not older than reuse.
func (s *secret) last() (now credentials, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, time.Since(s.answered) < s.reuse
}

// ask asks for the credentials. If they have changed, all subscribed connections but one
// authenticate again. The caller holds asking.
func (s *secret) ask(ctx context.Context, but auth.CredentialsListener) (credentials, error) {
	defer s.schedule()
	var now credentials
	raw, err := s.read(ctx)
	if err == nil {
		now, err = parseSecret(raw)
	}
	s.mu.Lock()
	if err != nil {
		s.next = time.Now().Add(retryAfter(time.Until(s.current.expires)))
		s.mu.Unlock()
		if errors.Is(err, context.Canceled) {
			return credentials{}, err
		}
		return credentials{}, &Error{Err: fmt.Errorf("%s: %w", s.origin, err)}
	}
	tell := make(map[auth.CredentialsListener]credentials)
	if now.user != s.current.user || now.pass != s.current.pass {
		for l, user := range s.listeners {
			if l != but {
				tell[l] = now.withUser(user)
			}
		}
	}
	s.current, s.answered = now, time.Now()
	s.next = s.answered.Add(time.Until(now.expires) / 4 * 3)
	s.mu.Unlock()
	for l, c := range tell {
		l.OnNext(auth.NewBasicCredentials(c.user, c.pass))
	}
	return now, nil
}

// retryAfter returns how long to wait after an error, if credentials expire after left.
func retryAfter(left time.Duration) time.Duration {
	if left <= 0 {
		return time.Minute // each new connection asks by itself
	}
	return max(left/4, time.Second)
}

// withUser adds the user if the source names none.
func (c credentials) withUser(user string) credentials {
	if c.user == "" {
		c.user = user
	}
	return c
}

// schedule arms the timer for next. Without connections, or if the credentials do not
// expire, it stops the timer.
func (s *secret) schedule() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.current.expires.IsZero() || len(s.listeners) == 0 {
		return
	}
	s.timer = time.AfterFunc(time.Until(s.next), func() {
		s.asking.Lock()
		defer s.asking.Unlock()
		_, _ = s.ask(context.Background(), nil) // after an error the timer tries again
	})
}

// userSecret is a secret for the connections of one user, if its source names none. It implements
// [auth.StreamingCredentialsProvider].
type userSecret struct {
	*secret
	user string
}

// Subscribe returns the credentials for a new connection and passes later ones to the
// listener, until unsubscribe.
func (s userSecret) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	now, fresh := s.last()
	if !fresh {
		var err error
		if now, err = s.ask(context.Background(), l); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	s.listeners[l] = s.user
	s.mu.Unlock()
	s.schedule()
	now = now.withUser(s.user)
	return auth.NewBasicCredentials(now.user, now.pass), func() error {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		s.schedule()
		return nil
	}, nil
}

// now returns the present credentials. It asks for them if the last answer is old.
func (s *secret) now(ctx context.Context) (credentials, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if now, fresh := s.last(); fresh {
		return now, nil
	}
	return s.ask(ctx, nil)
}
