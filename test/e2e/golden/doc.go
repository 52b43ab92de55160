// Package golden runs Apache Kafka's command line tools and compares what they
// print, and their exit codes, with what they printed on Apache Kafka.
//
// A file of testdata is the transcript of one tool:
//
//	# a comment
//	@file offsets.json {"partitions": []}       a file for the commands below
//	@join group topic                           a member that stays in a group
//	@leave group
//	$ kafka-topics --bootstrap-server localhost:9092 --list
//	< a line of input
//	    a line of stdout
//	  ! a line of stderr
//	  = 1                                       the exit code, if it is not 0
//
// In commands localhost:9092 stands for the broker and DIR for the folder of
// the files. Outputs are compared after masking what no two runs have in common:
// ids, times, sizes, rates, addresses (mask_test.go). Every transcript starts on a
// broker without topics and groups.
//
// make golden-record writes the outputs anew, from Apache Kafka. Where ours
// differ, testdata/differences lists the lines and says why. A listed difference
// that has vanished fails: the list only shrinks.
package golden
