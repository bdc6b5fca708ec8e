//! The parts of a model state: store, broker, instances and the requests that have not arrived.
pub mod broker;
pub mod event_set;
pub mod execution;
pub mod instance;
pub mod normal_form;
pub mod statement;
pub mod store;
pub mod system;
