//! `version`: the version, the commit and the features of this program.
use serde_json::json;

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::print_line;

/// The commit that the program was built from, where the build sets POSTHASTE_COMMIT.
const COMMIT: Option<&str> = option_env!("POSTHASTE_COMMIT");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) fn version(arguments: &Arguments) -> Result<u8, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if arguments.output.is_json() {
        print_line(&json!({"version": version, "commit": COMMIT, "features": features()}).to_string())?;
    } else {
        print_line(&format!("posthaste {version}"))?;
        print_line(&format!("commit    {}", COMMIT.unwrap_or("unknown")))?;
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
