// Package writers lets several gateways, real processes on a real NATS server,
// append to the same partitions. What must hold is checked in any case: no
// offset twice, no gap, the order of each producer, every acknowledged record
// once where it was acknowledged. How fast it is compared with one gateway, and
// how long a producer waits, means something only alone on the machine:
//
//	make bench-gateways
package writers
