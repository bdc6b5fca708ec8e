//! The configuration, from three layers: `config/default.toml`, then `--config FILE`, then the environment (`POSTHASTE__SECTION__KEY`).
//! All mistakes are reported together, before anything starts.
mod consumer;
mod cross_key_rules;
mod layers;
mod load;
mod print;
mod rules;
mod sections;
#[cfg(test)]
mod tests;
mod text;
mod throwaway;
mod topic_keys;
mod topic_mistakes;
#[cfg(test)]
mod topic_tests;
mod topics;
mod traces;

pub use consumer::*;
pub use layers::{ConfigErrors, Environment};
pub use load::ConfigDraft;
pub use print::{masked, schema};
pub use sections::*;
pub use throwaway::throwaway_environment;
pub use topics::TopicSettings;
pub use traces::*;
