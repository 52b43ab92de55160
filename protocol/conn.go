package protocol

// conn is one client connection.
type conn struct {
	id       uint64
	listener string // name of the listener it came in by
	host     string // peer address without port; DescribeGroups shows "/"+host
	// softwareName and softwareVersion are what ApiVersions (v3+) announced,
	// else "". Read and written only while a request of this connection is
	// being handled.
	softwareName, softwareVersion string
}

// Config is the package's section of the configuration.
type Config struct{}
