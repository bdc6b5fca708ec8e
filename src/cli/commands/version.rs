//! `version`: the version, the commit and the features of this program.
use serde_json::json;
use telemetry::{COMMIT, UNKNOWN_COMMIT};

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::print_line;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) fn version(arguments: &Arguments) -> Result<u8, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let commit = (COMMIT != UNKNOWN_COMMIT).then_some(COMMIT);
    if arguments.output.is_json() {
        print_line(&json!({"version": version, "commit": commit, "features": features()}).to_string())?;
    } else {
        print_line(&format!("posthaste {version}"))?;
        print_line(&format!("commit    {COMMIT}"))?;
        print_line(&format!("features  {}", features().join(", ")))?;
    }
    Ok(0)
}

/// The stores and brokers that this program was built with.
fn features() -> Vec<&'static str> {
    let optional = [
        (cfg!(feature = "postgres"), "postgres"),
        (cfg!(feature = "kafka"), "kafka"),
        (cfg!(feature = "kafka-tls"), "kafka-tls"),
        (cfg!(feature = "redis"), "redis"),
    ];
    let built = optional.into_iter().filter(|(is_built, _)| *is_built).map(|(_, name)| name);
    std::iter::once("embedded").chain(built).collect()
}
