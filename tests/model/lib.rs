//! A model of the relay's protocol and an exhaustive search over its states. It shares no code with the relay: it is written from the
//! guarantees of docs/guarantees.md, and checks that they follow from the rules of leases, tokens, fences and watermarks.
//!
//! - `configuration`: the events, the partitions and the number of faults of one search.
//! - `invariants`: the violations that the search reports, and the rules that a test can switch off.
//! - `state`: the store, the broker, the instances, and the statements that have not arrived.
//! - `actions`: each step that changes the state.
//! - `search`: breadth first, so that the first violation has the shortest trace.
//!
//! Each action is atomic. Freezes need no action of their own: an instance that takes no step is frozen, and acts later on what it knew.
//! No clock exists: a lease may expire at any moment, and its owner may act after that.
pub mod actions;
pub mod configuration;
pub mod configurations;
pub mod invariants;
pub mod search;
pub mod state;
pub mod successors;
pub mod trace;
