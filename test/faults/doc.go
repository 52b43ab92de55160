// Package faults breaks the store under a running stream process: slow, full,
// gone, restarted, lagging. NATS servers are real, the disk that fills up is a
// small file system of its own; only slowness and loss are made by a proxy that
// speaks NATS's protocol. While it lasts and after, a test checks what
// world_test.go lists: nothing acknowledged is missing, no offset is used twice
// or skipped, no answer says "nothing" where there is something, no error but
// those that clients retry; and that it heals by itself.
//
// A module of its own, so that the product does not depend on a Kafka client.
package faults
