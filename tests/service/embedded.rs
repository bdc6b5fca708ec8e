//! Tests of the embedded installation: data folder, command line, console, demo, documents and packages.
mod cli;
mod code_handlers;
mod configuration;
mod console;
mod data_folder;
mod demo;
mod doctor;
mod documents;
mod invalid_arguments;
#[cfg(target_os = "linux")]
mod killed_chaos;
mod packages;
mod schema;
#[cfg(feature = "postgres")]
mod startup_probes;
mod topics;
mod webhooks;
