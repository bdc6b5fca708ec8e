//! The parts of a state, from the rows in the store to the requests that have not arrived.
pub mod broker;
pub mod event_set;
pub mod execution;
pub mod instance;
pub mod normal_form;
pub mod statement;
pub mod store;
pub mod system;
