module github.com/hanzoai/stream/test/faults

go 1.26.0

replace github.com/hanzoai/stream => ../..

require (
	github.com/hanzoai/stream v0.0.0
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kmsg v1.15.1
)
