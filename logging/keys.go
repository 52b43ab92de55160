package logging

// Attribute keys, defined once. Record keys, values, headers and secrets are
// never logged under any of them.
const (
	Component = "component"
	ConnID    = "conn_id"
	ClientID  = "client_id"
	Principal = "principal"
	API       = "api"
	CorrID    = "corr_id"
	Topic     = "topic"
	Partition = "partition"
	Group     = "group"
	Error     = "error"

	// Suppressed counts the lines of a kind that throttling left out.
	Suppressed = "suppressed"
)
