package protocol

// conn is one client connection; see the file's owner for the rest.
type conn struct{}

// Config is the package's section of the configuration.
type Config struct{}
