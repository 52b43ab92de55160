// Package embedded runs a NATS server with JetStream inside this process, for
// package jetstream to talk to. It owns the server's options, its logs (through
// slog), its life from start to a clean stop, a lock on the data folder and room
// on its disk (room.go), which the NATS server itself does not care for. It
// knows nothing of logs, tables or Kafka. Start reading at Start in server.go.
package embedded
