package suites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

const toxiproxyVersion = "v2.5.0"

// toxiproxy puts a proxy before the broker, which sarama's tests tell to break
// connections. It is known to them by five names, since they ask for five brokers.
func toxiproxy(t testing.TB, o *broker.Options) []string {
	t.Helper()
	dir := filepath.Join(testkit.Cache(), "toxiproxy-"+toxiproxyVersion)
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/Shopify/toxiproxy/v2/cmd/server@"+toxiproxyVersion)
	install.Env = append(testkit.Environ(), "GOBIN="+dir)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install toxiproxy: %v\n%s", err, out)
	}
	api := testkit.FreeAddr(t)
	p := testkit.StartProcess(t, testkit.Command{Name: "toxiproxy", Path: filepath.Join(dir, "server"), Args: []string{"-host", "127.0.0.1", "-port", port(api)},
		Env: []string{"LOG_LEVEL=error"}})
	url := "http://" + api
	testkit.Poll(t, 20*time.Second, "toxiproxy", func() error {
		select {
		case <-p.Exited():
			t.Fatal("toxiproxy has ended")
		default:
		}
		return testkit.Get(t.Context(), url+"/version")
	})
	o.Addr, o.Advertised = testkit.FreeAddr(t), testkit.FreeAddr(t)
	for i := range 5 {
		listen := o.Advertised
		if i > 0 {
			listen = testkit.FreeAddr(t)
		}
		if err := addProxy(url, fmt.Sprintf("kafka%d", i+1), listen, o.Addr); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"{toxiproxy}", url, "{proxy}", o.Advertised}
}

func addProxy(url, name, listen, upstream string) error {
	body, err := json.Marshal(map[string]any{"name": name, "listen": listen, "upstream": upstream, "enabled": true})
	if err != nil {
		return err
	}
	res, err := http.Post(url+"/proxies", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return fmt.Errorf("proxy %s: %s", name, res.Status)
	}
	return nil
}
