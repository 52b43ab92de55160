package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster makes the server one of several that keep copies of each other's
// streams. All have the same Name, Secret and number of Peers.
type Cluster struct {
	// Name of the cluster: servers of another one are turned away.
	Name string
	// Listen is the host:port on which the other servers are met (NATS routes).
	Listen string
	// Peers are the addresses at which all servers are reached, this one's among
	// them or not.
	Peers []string
	// Size is how many servers there are, this one included.
	Size int
	// Secret is what servers show each other; "" lets everybody in.
	Secret string
}

func (c *Cluster) validate() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.Name == "" || strings.ContainsAny(c.Name, " \t\r\n") {
		errs = append(errs, fmt.Errorf("cluster name %q: empty, or with white space", c.Name))
	}
	if c.Size < 3 {
		errs = append(errs, fmt.Errorf("a cluster of %d: no majority is left when one server goes", c.Size))
	}
	if len(c.Peers) < c.Size-1 {
		errs = append(errs, fmt.Errorf("%d peers for a cluster of %d", len(c.Peers), c.Size))
	}
	for _, a := range append([]string{c.Listen}, c.Peers...) {
		if _, port, err := hostPort(a); err != nil || port == 0 {
			errs = append(errs, fmt.Errorf("cluster address %q: want host:port", a))
		}
	}
	return errors.Join(errs...)
}

func hostPort(s string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(s)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("address %q: want host:port", s)
	}
	return cmp.Or(host, "0.0.0.0"), port, nil
}

// routeUser is the user name of routes; only the secret matters.
const routeUser = "stream"

// apply sets the options that make a server part of the cluster.
func (c *Cluster) apply(o *server.Options) {
	host, port, _ := hostPort(c.Listen) // validated
	o.Cluster = server.ClusterOpts{Name: c.Name, Host: host, Port: port}
	if c.Secret != "" {
		o.Cluster.Username, o.Cluster.Password = routeUser, c.Secret
	}
	// The server learns from the number of routes how many peers a majority
	// is made of, so there must be as many as servers: it finds out by itself
	// which one leads to itself.
	peers := slices.Clone(c.Peers)
	if len(peers) < c.Size {
		self := host
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			self = "localhost"
		}
		peers = append(peers, net.JoinHostPort(self, strconv.Itoa(port)))
	}
	for _, p := range peers {
		u := &url.URL{Scheme: "nats-route", Host: p}
		if c.Secret != "" {
			u.User = url.UserPassword(routeUser, c.Secret)
		}
		o.Routes = append(o.Routes, u)
	}
}

// inProcessOnly lets in clients of this process alone.
type inProcessOnly struct{}

// Check implements server.Authentication.
func (inProcessOnly) Check(c server.ClientAuthentication) bool {
	a := c.RemoteAddress()
	return a != nil && a.Network() == "pipe"
}

// nodeName is the file in the data folder that says whose it is.
const nodeName = "cluster-node.json"

// node is its content. A server's name is what the others count it by, so it
// stays with the folder.
type node struct {
	V       int    `json:"v"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
}

// openNode reads, or makes, the identity of the folder's server, and refuses a
// folder that is used in another way: a server that joins a cluster throws away
// the streams that the cluster does not know, and one that stands alone does not
// take up those of a cluster.
func openNode(dir string, c *Cluster, name string) (string, error) {
	path := filepath.Join(dir, nodeName)
	var n node
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &n); err != nil || n.Name == "" {
			return "", fmt.Errorf("%w: %s cannot be read: restore it, it is one line of JSON with v, cluster and name", ErrFolder, path)
		}
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%w: %w", ErrFolder, err)
	}
	switch {
	case c == nil && n.Name != "":
		return "", fmt.Errorf("%w: %s belongs to server %s of cluster %s", ErrOtherUse, dir, n.Name, n.Cluster)
	case c == nil:
		return name, nil
	case n.Name != "" && n.Cluster != c.Name:
		return "", fmt.Errorf("%w: %s belongs to server %s of cluster %s, not of %s", ErrOtherUse, dir, n.Name, n.Cluster, c.Name)
	case n.Name != "":
		return n.Name, nil
	}
	if used, err := os.ReadDir(filepath.Join(dir, "jetstream")); err == nil && len(used) > 0 {
		return "", fmt.Errorf("%w: %s holds what a server that stood alone has stored, and a cluster would delete it", ErrOtherUse, dir)
	}
	n = node{V: 1, Cluster: c.Name, Name: cmp.Or(name, "stream-"+strings.ToLower(rand.Text()[:8]))}
	if b, err = json.Marshal(n); err != nil {
		return "", err
	}
	if err := writeFile(path, append(b, '\n')); err != nil {
		return "", fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return n.Name, nil
}

// writeFile makes a file that is there whole or not at all.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}

// Waiting says what a server of a cluster lacks to take part: a majority that
// has a leader. "" if it has all it needs, and always if it stands alone.
func (s *Server) Waiting() string {
	c := s.config.Cluster
	if c == nil {
		return ""
	}
	s.mu.Lock()
	srv := s.srv
	s.mu.Unlock()
	// A leader notices only after ten seconds that the others are gone.
	names := []string{s.name}
	routes, err := srv.Routez(&server.RoutezOptions{})
	if err == nil {
		for _, r := range routes.Routes {
			if !slices.Contains(names, r.RemoteName) {
				names = append(names, r.RemoteName)
			}
		}
	}
	slices.Sort(names)
	here := fmt.Sprintf("%d of %d nodes are here (%s)", len(names), c.Size, strings.Join(names, ", "))
	if len(names) <= c.Size/2 {
		return "waiting for a majority of the cluster: " + here
	}
	if srv.JetStreamIsCurrent() {
		return ""
	}
	return "waiting for the cluster to elect a leader: " + here
}

// AwaitMajority waits until the server takes part in its cluster, or ctx ends.
// say is called every few seconds meanwhile, and with "" when that is over.
func (s *Server) AwaitMajority(ctx context.Context, say func(what string)) error {
	const every = 5 * time.Second
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var said time.Time
	for {
		what := s.Waiting()
		if what == "" {
			if !said.IsZero() {
				say("")
			}
			return nil
		}
		if time.Since(said) > every {
			said = time.Now()
			say(what)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("embedded nats: %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
