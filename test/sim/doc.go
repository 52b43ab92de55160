// Package sim has what the simulations below it share: seeds from the
// environment, and a weather that decides what goes wrong at the store. They run
// in virtual time over pubsub/memory, and differ in what they run:
//
//   - partition: one to three partition hosts on one log, with every fault that
//     an append or a read can meet;
//   - gateway: one to five whole gateways, with topics, groups and membership,
//     under clients that do what real ones do.
//
// A run follows from its seed as far as the scheduler allows. SIM_SEEDS sets how
// many seeds are run, SIM_FIRST the first of them; SIM_SEED runs one, SIM_REPEAT
// times; SIM_TRACE=1 prints what happens. A failing run prints its seed.
package sim
