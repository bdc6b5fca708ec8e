//! The configuration, from three layers: `config/default.toml`, then `--config FILE`, then the environment (`POSTHASTE__SECTION__KEY`).
//! All errors are reported together, before anything starts.
mod consumer;
mod cross_key_rules;
mod layers;
mod load;
mod print;
mod rules;
mod sections;
#[cfg(test)]
mod tests;
mod text_format;
mod throwaway;
mod topic_keys;
#[cfg(test)]
mod topic_tests;
mod topic_validation;
mod topics;
mod traces;

pub use consumer::*;
pub use layers::{ConfigErrors, Environment};
pub use load::ConfigDraft;
pub use print::{MaskedSetting, masked_settings, schema};
pub use sections::*;
pub use throwaway::throwaway_environment;
pub use topics::TopicSettings;
pub use traces::*;
