package main

import (
	"time"

	"github.com/hanzoai/stream/logging"
)

// config is every setting of the server. One tag set per field yields the flag
// (--a-b), the variable (STREAM_A_B), the key of the YAML file (a-b, or with
// dots where Kafka has the name) and docs/config.md.
//
//	key      name; dots, dashes and underscores are the same when read
//	alias    older name of the same key, comma separated, each a hidden flag
//	env      foreign variable read when ours are unset
//	default  as it would be written
//	show     plain or url (user info masked): a field without it prints ***
//	kafka    Kafka property of the same meaning, for --kafka-property
//	unit     ms: a bare number is milliseconds; min: minutes
//	noflag   not on the command line (secrets)
//	range    lo..hi, either may be empty
//	oneof    allowed words
//	group    heading in the docs; holds for the fields below it
type config struct {
	PubsubURL        string         `key:"pubsub-url" alias:"nats-url" env:"NATS_URL" show:"url" group:"Store: external NATS" doc:"NATS URLs, comma separated. Empty: an embedded NATS server stores everything under data-dir. Set max_file_store of an external server below the size of its disk: NATS (2.15.2) answers no write to a stream that has met a full disk until it is restarted."`
	PubsubCreds      string         `key:"pubsub-creds" alias:"nats-creds" show:"plain" doc:"NATS credentials file (JWT and seed)."`
	NATSContext      string         `key:"nats-context" show:"plain" doc:"Name of a context of the nats command line tool, or the path of its file: URL and login are taken from it unless given here, and the JetStream domain."`
	NATSNKey         string         `key:"nats-nkey" show:"plain" doc:"File with the NKey seed to log in with."`
	NATSUser         string         `key:"nats-user" show:"plain" doc:"User name for NATS."`
	NATSPassword     logging.Secret `key:"nats-password" noflag:"true" doc:"Password for nats-user. Never on the command line: set the variable, or use nats-password-file."`
	NATSPasswordFile string         `key:"nats-password-file" show:"plain" doc:"File with the password for nats-user."`
	NATSTLSCA        string         `key:"nats-tls-ca" show:"plain" doc:"PEM file with the authorities that may sign the NATS server's certificate."`
	NATSTLSCert      string         `key:"nats-tls-cert" show:"plain" doc:"PEM file with the client certificate for NATS."`
	NATSTLSKey       string         `key:"nats-tls-key" show:"plain" doc:"PEM file with the key of nats-tls-cert."`
	MaxAPIInflight   int            `key:"nats.max.api.inflight" default:"512" range:"1..9000" show:"plain" doc:"JetStream API calls in flight; more wait. A NATS server drops all pending calls at 10,000."`

	DataDir    string   `key:"data-dir" show:"plain" group:"Store: embedded NATS" doc:"Folder of the embedded server's storage. Default: stream in the user's data folder ($XDG_DATA_HOME or ~/.local/share)."`
	Sync       syncMode `key:"sync" default:"always" show:"plain" doc:"When stored data is flushed to the disk: always (before a record is acknowledged) or an interval such as 10s. With an external NATS server it states what that server is set to."`
	NATSListen string   `key:"nats-listen" show:"plain" doc:"host:port on which the embedded server takes NATS clients. Empty: nobody else reaches it."`

	ClusterListen     string         `key:"cluster-listen" show:"plain" group:"Store: cluster of embedded NATS" doc:"host:port on which the other nodes of a cluster meet this one (NATS routes). With cluster-peers, 3 or 5 servers keep copies of everything: any one of 3, any two of 5 may be gone."`
	ClusterPeers      []string       `key:"cluster-peers" show:"plain" doc:"cluster-listen addresses of all nodes as they reach each other, comma separated, the same on every node; its own may be left out."`
	ClusterName       string         `key:"cluster-name" default:"stream" show:"plain" doc:"Name of the cluster, the same on every node; nodes of another one are turned away."`
	ClusterSecret     logging.Secret `key:"cluster-secret" noflag:"true" doc:"What nodes show each other, the same on every node; without it whoever reaches cluster-listen can join, read and destroy everything. Never on the command line: set the variable, or use cluster-secret-file. Routes are not encrypted."`
	ClusterSecretFile string         `key:"cluster-secret-file" show:"plain" doc:"File with the cluster-secret."`

	Prefix        string `key:"prefix" default:"kafka" show:"plain" group:"Store: layout" doc:"Prefix of streams, subjects and buckets (1 to 30 of A-Z, a-z, 0-9 and _): several Kafka clusters can share one NATS account."`
	Storage       string `key:"storage" default:"file" oneof:"file memory" show:"plain" doc:"Storage of new streams."`
	Replicas      int    `key:"replicas" default:"1" range:"1..5" show:"plain" kafka:"default.replication.factor" doc:"Replicas of new streams unless the client asks for a number. In a cluster of embedded servers 3 unless given."`
	ClampReplicas bool   `key:"clamp-replication" default:"false" show:"plain" doc:"Give a topic as many replicas as NATS can, instead of refusing more with INVALID_REPLICATION_FACTOR."`
	MaxPartitions int    `key:"max.partitions" default:"10000" range:"1..1000000" show:"plain" doc:"Most partitions of all topics together. Creating more answers INVALID_PARTITIONS."`

	Host       string   `key:"host" default:"localhost" show:"plain" group:"Kafka listener" doc:"Host name that clients are told to connect to. 0.0.0.0 and :: stand for the address that each client has reached."`
	Advertised string   `key:"advertised-address" show:"plain" doc:"host:port that clients are told, where it differs from host and port (port mapping, load balancer)."`
	Port       int      `key:"port" default:"9092" range:"0..65535" show:"plain" doc:"Kafka port; 0 takes a free one."`
	Bind       []string `key:"bind" show:"plain" doc:"Addresses to listen on for Kafka, comma separated, each host or host:port. Empty: all interfaces."`
	NodeID     nodeID   `key:"node-id" default:"-1" range:"-1..2147483647" show:"plain" kafka:"node.id,broker.id" doc:"Fixed node id from 1, or the name of a pod of a StatefulSet ($(POD_NAME)), whose ordinal plus one is taken: stream-0 is node 1. -1: a free one is leased, the lowest, or with address-mode per-gateway the one that its address had last. A gateway whose id belongs to one that lives does not start."`

	AddressMode string `key:"address-mode" default:"shared" oneof:"shared per-gateway" show:"plain" doc:"How clients reach the gateways of one cluster. shared: one address for all of them, behind which any may answer; clients see one broker, id 1. per-gateway: each has an address of its own (host or advertised-address) and is a broker under its node id; leaders and coordinators are spread over those that live. All gateways of a cluster must run in the same mode. The nodes of a cluster of embedded servers run per-gateway unless told otherwise."`

	AutoCreate    bool     `key:"auto.create.topics.enable" default:"true" show:"plain" kafka:"auto.create.topics.enable" group:"Topics" doc:"Create a topic when a client asks for its metadata and allows it."`
	NumPartitions int      `key:"num.partitions" default:"1" range:"1..10000" show:"plain" kafka:"num.partitions" doc:"Partitions of a topic created without a number."`
	MaxMessage    byteSize `key:"message.max.bytes" default:"1048588" range:"0..1000MiB" show:"plain" kafka:"message.max.bytes" doc:"Largest record batch a topic takes unless it has max.message.bytes of its own. Never above what NATS can store (its max_payload less 4 KiB)."`
	TopicDefaults string   `key:"topic.defaults" show:"plain" doc:"Defaults of topic configs, by the names of Kafka's broker configs, name=value with semicolons between: log.retention.hours=24;min.insync.replicas=2. docs/topic-configs.md lists them. All gateways should have the same."`

	MaxRequest     byteSize      `key:"socket.request.max.bytes" default:"16MiB" range:"128KiB..1GiB" show:"plain" kafka:"socket.request.max.bytes" group:"Limits: connections and memory" doc:"Largest request. Never below message.max.bytes + 64 KiB."`
	QueuedRequests byteSize      `key:"queued.max.request.bytes" default:"0" range:"0.." show:"plain" kafka:"queued.max.request.bytes" doc:"Bytes of requests held by the process; above it sockets are not read. 0: a quarter of the memory limit."`
	MaxElements    int           `key:"max.request.elements" default:"100000" range:"1000.." show:"plain" doc:"Array elements in one request."`
	MaxConns       int           `key:"max.connections" default:"10000" range:"1.." show:"plain" kafka:"max.connections" doc:"Open connections."`
	MaxConnsIP     int           `key:"max.connections.per.ip" default:"0" range:"0.." show:"plain" kafka:"max.connections.per.ip" doc:"Open connections of one address; 0 is no cap."`
	ConnRate       int           `key:"max.connection.creation.rate" default:"500" range:"0.." show:"plain" kafka:"max.connection.creation.rate" doc:"New connections a second; 0 is no cap."`
	IdleTimeout    time.Duration `key:"connections.max.idle.ms" default:"10m" range:"1s.." unit:"ms" show:"plain" kafka:"connections.max.idle.ms" doc:"Idle time after which a connection is closed. A waiting fetch is not idle."`
	FrameTimeout   time.Duration `key:"frame.timeout" default:"30s" range:"100ms.." show:"plain" doc:"Time for one whole request, longer only while at least 16 KiB/s arrive."`
	WriteTimeout   time.Duration `key:"write.timeout" default:"30s" range:"100ms.." show:"plain" doc:"Time without progress in writing a response after which the connection is closed."`
	MaxInflight    int           `key:"max.inflight.per.connection" default:"16" range:"5..64" show:"plain" doc:"Requests read ahead on one connection."`
	FetchMax       byteSize      `key:"fetch.max.bytes" default:"55MiB" range:"1024..2147483647" show:"plain" kafka:"fetch.max.bytes" doc:"Largest fetch answer; the first batch is always whole."`
	FetchWait      time.Duration `key:"fetch.max.wait" default:"60s" range:"1ms.." show:"plain" doc:"Longest wait of a fetch; an early empty answer is legal."`
	FetchHeld      byteSize      `key:"fetch.held.bytes" default:"0" range:"0.." show:"plain" doc:"Bytes of fetch answers not yet written to clients, all connections together; above it answers carry one batch each. 0: a quarter of the memory limit."`
	FetchSessions  int           `key:"max.incremental.fetch.session.cache.slots" default:"1000" range:"0..1048576" show:"plain" kafka:"max.incremental.fetch.session.cache.slots" doc:"Fetch sessions kept, with at most 256 partitions each on average; who gets none sends full fetches. 0: none are kept."`
	FetchCache     byteSize      `key:"fetch.cache.bytes" default:"64MiB" range:"0.." show:"plain" doc:"Newest batches kept in memory for readers at the end, all partitions together. Never above an eighth of the memory limit."`

	GroupMaxSize   int           `key:"group.max.size" default:"5000" range:"1.." show:"plain" kafka:"group.max.size" group:"Limits: groups" doc:"Members of one group."`
	GroupMinSess   time.Duration `key:"group.min.session.timeout.ms" default:"6s" range:"1ms.." unit:"ms" show:"plain" kafka:"group.min.session.timeout.ms" doc:"Shortest session timeout a member may ask for."`
	GroupMaxSess   time.Duration `key:"group.max.session.timeout.ms" default:"30m" range:"1ms.." unit:"ms" show:"plain" kafka:"group.max.session.timeout.ms" doc:"Longest session timeout a member may ask for."`
	GroupProtocols int           `key:"group.max.protocols" default:"100" range:"1.." show:"plain" doc:"Assignment protocols one member may offer."`
	GroupDelay     time.Duration `key:"group.initial.rebalance.delay.ms" default:"3s" range:"0.." unit:"ms" show:"plain" kafka:"group.initial.rebalance.delay.ms" doc:"How long the first rebalance of an empty group waits for more members."`
	OffsetMeta     int           `key:"offset.metadata.max.bytes" default:"4096" range:"0.." show:"plain" kafka:"offset.metadata.max.bytes" doc:"Longest metadata of a committed offset."`
	OffsetKeep     time.Duration `key:"offsets.retention.minutes" default:"168h" range:"1m.." unit:"min" show:"plain" kafka:"offsets.retention.minutes" doc:"How long offsets are kept after a group lost its last member."`

	TxnMaxTimeout time.Duration `key:"transaction.max.timeout.ms" default:"15m" range:"1ms.." unit:"ms" show:"plain" kafka:"transaction.max.timeout.ms" group:"Limits: transactions" doc:"Longest time that a transaction may ask to stay open."`
	TxnIDKeep     time.Duration `key:"transactional.id.expiration.ms" default:"168h" range:"1ms.." unit:"ms" show:"plain" kafka:"transactional.id.expiration.ms" doc:"How long a transactional id is kept that nobody uses."`

	CleanerEnable  bool          `key:"log.cleaner.enable" default:"true" show:"plain" kafka:"log.cleaner.enable" group:"Compaction" doc:"Whether this gateway compacts topics whose cleanup.policy has compact. One gateway at a time does it for all, whichever holds the maintenance lease: set it on all of them alike."`
	CleanerMemory  byteSize      `key:"log.cleaner.dedupe.buffer.size" default:"128MiB" range:"1MiB.." show:"plain" kafka:"log.cleaner.dedupe.buffer.size" doc:"Memory for the keys of the partition that is being compacted, while it is; if they need more, it takes several passes. Never above an eighth of the memory limit."`
	CleanerRate    byteSize      `key:"log.cleaner.io.max.bytes.per.second" default:"0" range:"0.." show:"plain" kafka:"log.cleaner.io.max.bytes.per.second" doc:"Bytes a second that compaction reads and writes, both together; 0: no limit."`
	CleanerCPU     int           `key:"compaction.cpu.percent" default:"100" range:"1..100" show:"plain" doc:"Share of one core that compaction takes at most, in percent: the time in which it does not rest."`
	CleanerBackoff time.Duration `key:"log.cleaner.backoff.ms" default:"15s" range:"0.." unit:"ms" show:"plain" kafka:"log.cleaner.backoff.ms" doc:"How long compaction rests when there is nothing to do, and between two runs on one partition; at least a second. Where a run read less than 1 MiB, or found nothing to do, that partition rests for at least as many seconds as there are compacted partitions."`

	AdminPort   int           `key:"admin-port" default:"9093" range:"0..65535" show:"plain" group:"Admin HTTP" doc:"HTTP port; 0 turns HTTP off."`
	AdminBind   []string      `key:"admin-bind" show:"plain" doc:"Addresses to listen on for HTTP, comma separated, each host or host:port. Empty: as bind."`
	AdminHeader byteSize      `key:"admin.header.max.bytes" default:"64KiB" range:"4096..16777216" show:"plain" doc:"Largest header of an HTTP request (431 above it)."`
	AdminBody   byteSize      `key:"admin.body.max.bytes" default:"1MiB" range:"0..1073741824" show:"plain" doc:"Largest body of an HTTP request (413 above it)."`
	AdminTime   time.Duration `key:"admin.timeout" default:"30s" range:"100ms.." show:"plain" doc:"Time for one HTTP request and its answer."`

	LogLevel      string        `key:"log-level" default:"info" oneof:"debug info warn error" show:"plain" group:"Process" doc:"Least important log line that is written (to stderr)."`
	LogFormat     string        `key:"log-format" default:"json" oneof:"json text" show:"plain" doc:"Form of log lines."`
	ShutdownGrace time.Duration `key:"shutdown-grace" default:"25s" range:"0.." show:"plain" doc:"Time for a graceful stop: produces finish, long polls answer early. Keep it below the grace period of whatever stops the process."`
	ShutdownDelay time.Duration `key:"shutdown-delay" default:"0s" range:"0.." show:"plain" doc:"Part of the grace in which /readyz already fails and connections are still taken, so that load balancers look away first."`
}
