package jetstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
)

// Login says how to log in to NATS. Empty fields are left out; what Context
// holds is overridden by the fields beside it.
type Login struct {
	Creds    string // credentials file (user JWT and seed)
	NKey     string // file with an nkey seed
	User     string
	Password string // never from a command line: see the flags' file variants
	Token    string
	TLSCA    string // file of certificate authorities to trust
	TLSCert  string // client certificate file, with TLSKey
	TLSKey   string
	// Context is the name of a context of the NATS command line tool, or the
	// path of such a file (ending in .json).
	Context string
}

// contextFile is what we read of the NATS tool's context files.
type contextFile struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	NSC         string `json:"nsc"`
	UserJWT     string `json:"user_jwt"`
	UserSeed    string `json:"user_seed"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"`
	SocksProxy  string `json:"socks_proxy"`
	Domain      string `json:"jetstream_domain"`
	APIPrefix   string `json:"jetstream_api_prefix"`
}

// Access is what a login comes to.
type Access struct {
	Options []nats.Option
	// URL and Domain (of JetStream) are the context's, "" if it names none or
	// there is no context.
	URL, Domain string
}

// LoginOptions turns a login into connection options. Files are checked here, so
// that a wrong path is one clear error and not a refused connection.
func LoginOptions(l Login) (Access, error) {
	var c contextFile
	var opts []nats.Option
	if l.Context != "" {
		var err error
		if c, err = readContext(l.Context); err != nil {
			return Access{}, err
		}
	}
	first := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	c.Creds, c.NKey = first(l.Creds, c.Creds), first(l.NKey, c.NKey)
	if l.User != "" {
		c.User, c.Password, c.Token = l.User, l.Password, ""
	} else if l.Password != "" {
		c.Password = l.Password
	}
	c.Token = first(l.Token, c.Token)
	c.CA, c.Cert, c.Key = first(l.TLSCA, c.CA), first(l.TLSCert, c.Cert), first(l.TLSKey, c.Key)

	var errs []error
	file := func(what, path string) (string, bool) {
		if path == "" {
			return "", false
		}
		path = expand(path)
		f, err := os.Open(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("nats %s: %w", what, err))
			return "", false
		}
		f.Close()
		return path, true
	}
	if p, ok := file("credentials file", c.Creds); ok {
		opts = append(opts, nats.UserCredentials(p))
	}
	if p, ok := file("nkey file", c.NKey); ok {
		o, err := nats.NkeyOptionFromSeed(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("nats nkey file %s: %w", p, err))
		} else {
			opts = append(opts, o)
		}
	}
	if c.UserJWT != "" {
		if c.UserSeed != "" {
			opts = append(opts, nats.UserJWTAndSeed(c.UserJWT, c.UserSeed))
		} else {
			errs = append(errs, errors.New("nats context: user_jwt without user_seed"))
		}
	}
	if c.User != "" {
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		opts = append(opts, nats.Token(c.Token))
	}
	if p, ok := file("certificate authorities file", c.CA); ok {
		opts = append(opts, nats.RootCAs(p))
	}
	if (c.Cert == "") != (c.Key == "") {
		errs = append(errs, errors.New("nats client certificate: certificate and key are both required"))
	} else if cert, ok := file("client certificate", c.Cert); ok {
		if key, ok := file("client key", c.Key); ok {
			opts = append(opts, nats.ClientCert(cert, key))
		}
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	for _, u := range []struct{ key, value string }{
		{"nsc", c.NSC}, {"socks_proxy", c.SocksProxy}, {"jetstream_api_prefix", c.APIPrefix},
	} {
		// A login or route that is silently ignored would be worse.
		if u.value != "" {
			errs = append(errs, fmt.Errorf("nats context %s: %s is not supported", l.Context, u.key))
		}
	}
	if c.Domain != "" && !domainRE.MatchString(c.Domain) {
		errs = append(errs, fmt.Errorf("nats context %s: jetstream_domain is no name of a domain", l.Context))
	}
	if err := errors.Join(errs...); err != nil {
		return Access{}, err
	}
	return Access{opts, c.URL, c.Domain}, nil
}

// domainRE: a domain becomes one token of subjects.
var domainRE = regexp.MustCompile(`^[^\s.*>]+$`)

func readContext(name string) (c contextFile, err error) {
	path := name
	if !strings.HasSuffix(name, ".json") {
		if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
			return c, fmt.Errorf("nats context %q: neither a name nor a path of a .json file", name)
		}
		dir := os.Getenv("XDG_CONFIG_HOME")
		if dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return c, fmt.Errorf("nats context %s: %w", name, err)
			}
			dir = filepath.Join(home, ".config")
		}
		path = filepath.Join(dir, "nats", "context", name+".json")
	}
	b, err := os.ReadFile(expand(path))
	if err != nil {
		return c, fmt.Errorf("nats context %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		// The decoder's own text may quote the file, which holds secrets.
		return c, fmt.Errorf("nats context %s: %s is no valid JSON", name, path)
	}
	return c, nil
}

// expand replaces ~ and variables as the NATS tool does.
func expand(path string) string {
	path = os.ExpandEnv(path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}
