package jetstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// streamConfig is what the server says about a stream.
func streamConfig(t *testing.T, srv *embedded.Server, name string) nats.StreamConfig {
	t.Helper()
	js, err := raw(t, srv).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	si, err := js.StreamInfo(name)
	if err != nil {
		t.Fatal(err)
	}
	return si.Config
}

// TestNewsSwitch: a folder is opened alone, then for others too, and back. The
// stream sends news exactly where others can append, its other settings stay,
// and following begins only when news come.
func TestNewsSwitch(t *testing.T) {
	dir := t.TempDir()
	const name, subject = "kafka-a-0", "kafka.a.0"
	next := pubsub.Seq(0)
	open := func(listen string) (*embedded.Server, *jetstream.Store) {
		srv, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		st, err := jetstream.Connect(t.Context(), jetstream.Config{InProcess: srv, Alone: srv.Alone()})
		if err != nil {
			srv.Stop()
			t.Fatal(err)
		}
		return srv, st
	}
	append1 := func(l pubsub.Log) {
		t.Helper()
		seq, err := l.Append(t.Context(), next, pubsub.Entry{Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		next = seq
	}

	srv, st := open("")
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: name, Subject: subject, Metadata: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	append1(st.Log(name, subject))
	if c := streamConfig(t, srv, name); c.RePublish != nil {
		t.Errorf("made alone, the stream sends news: %+v", c.RePublish)
	}
	// What an operator has changed stays.
	js, err := raw(t, srv).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	c := streamConfig(t, srv, name)
	c.Description, c.Duplicates = "mine", time.Second
	if _, err := js.UpdateStream(&c); err != nil {
		t.Fatal(err)
	}
	want := streamConfig(t, srv, name)
	same := func(srv *embedded.Server, news *nats.RePublish) {
		t.Helper()
		got := streamConfig(t, srv, name)
		want.RePublish, got.RePublish = nil, nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("settings became %+v, want %+v", got, want)
		}
		if got := streamConfig(t, srv, name).RePublish; fmt.Sprint(got) != fmt.Sprint(news) {
			t.Errorf("the stream's news go to %+v, want %+v", got, news)
		}
	}
	st.Close()
	srv.Stop()

	for range 2 {
		srv, st = open("127.0.0.1:0")
		other := connect(t, jetstream.Config{URL: srv.ClientURL()})
		news := make(chan pubsub.Message, 10)
		cancel, err := st.Log(name, subject).Follow(func(m pubsub.Message) { news <- m })
		if err != nil {
			t.Fatal(err)
		}
		if m := receive(t, news); m.Seq != 0 {
			t.Fatalf("following began with %+v", m)
		}
		append1(other.Log(name, subject))
		if m := receive(t, news); m.Seq != next {
			t.Errorf("news of sequence %d, want %d", m.Seq, next)
		}
		same(srv, &nats.RePublish{Source: subject, Destination: "kafka-news." + subject, HeadersOnly: true})
		cancel()
		other.Close()
		st.Close()
		srv.Stop()

		srv, st = open("")
		l := st.Log(name, subject)
		if b, err := l.Bounds(t.Context()); err != nil || b.Last != next {
			t.Fatalf("bounds: %+v, %v", b, err)
		}
		same(srv, nil)
		append1(l)
		st.Close()
		srv.Stop()
	}
}

// TestNewsRefused: following does not begin before the stream sends news.
func TestNewsRefused(t *testing.T) {
	srv := plainServer(t, server.Options{JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{
		{Username: "all", Password: "p"},
		{Username: "few", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}}}},
	}})
	open := func(user string, alone bool) *jetstream.Store {
		c := jetstream.Config{URL: srv.ClientURL(), Alone: alone, Options: []nats.Option{nats.UserInfo(user, "p")}}
		if user == "all" {
			return connect(t, c)
		}
		c.APITimeout = 100 * time.Millisecond // what is denied has no answer
		var st *jetstream.Store
		testkit.Poll(t, 20*time.Second, "a connection", func() (err error) {
			st, err = jetstream.Connect(t.Context(), c)
			return err
		})
		t.Cleanup(st.Close)
		return st
	}
	if err := open("all", true).CreateLog(t.Context(), pubsub.LogConfig{Name: "f", Subject: "f.0"}); err != nil {
		t.Fatal(err)
	}
	follow := func(st *jetstream.Store) chan pubsub.Message {
		news := make(chan pubsub.Message, 10)
		cancel, err := st.Log("f", "f.0").Follow(func(m pubsub.Message) { news <- m })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cancel)
		return news
	}
	few := follow(open("few", false))
	select {
	case m := <-few:
		t.Errorf("following began with %+v although no news can come", m)
	case <-time.After(300 * time.Millisecond): // cannot prove it, only fail to disprove
	}
	all := follow(open("all", false))
	for _, news := range []chan pubsub.Message{all, few} {
		if m := receive(t, news); m.Seq != 0 {
			t.Errorf("following began with %+v", m)
		}
	}
	if _, err := open("all", false).Log("f", "f.0").Append(t.Context(), 0, pubsub.Entry{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for _, news := range []chan pubsub.Message{all, few} {
		if m := receive(t, news); m.Seq != 1 {
			t.Errorf("news %+v, want sequence 1", m)
		}
	}
}
