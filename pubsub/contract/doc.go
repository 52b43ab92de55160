// Package contract is the suite of promises that every implementation of
// pubsub's interfaces keeps: memory and jetstream both pass it. A promise that
// broker/* relies on and that is not tested here is not a promise.
package contract
