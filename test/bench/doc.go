// Command bench compares stream with Apache Kafka and with JetStream alone:
// the same librdkafka client, the same machine, one run, loads in turn with
// rotating order, a new topic for each.
//
//	go run ./test/bench            # about three minutes
//	go run ./test/bench -mode long # all views, more rounds
//	go run ./test/bench -mode compaction # the cleaners, see docs/benchmarks.md
//
// What counts are the ratios of one run, and CPU seconds per million records:
// rates of different runs or machines do not compare. Servers run on core 1 and
// clients on core 0 unless the view says "unpinned". The first rounds of each
// row warm both sides up and are discarded. All servers of a view are up at the
// same time, since a virtual machine's Kafka is slow until it is warm; the idle
// ones' use of the CPU is printed.
//
// Results are appended to docs/benchmarks.md, with date, command line, versions
// and what others did to the machine meanwhile.
package main
