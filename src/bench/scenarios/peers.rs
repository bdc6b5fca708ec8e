//! `peers`: another relay on the same services, in turns with this one: as shares of one machine in one minute, figures of both can be compared.
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::error::Error;
use crate::load::figures::{median, rounded};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program, ThrowawayData};
use crate::scenarios::relay;
use crate::store::throwaway::with_data;

/// Drains with this relay and with the peer's command in turns, each on a database of its own. Without a command it prints the line that a peer
/// is run with.
pub(crate) async fn peers<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    let (plan, reporter) = (bench.plan, &bench.reporter);
    let Some(command) = &plan.peer else {
        let line = with_data(bench.program, BrokerUse::StoreOnly, async |data| shell_line(bench, data)).await?;
        return reporter.report("peers", &json!({"command": line}));
    };
    let (mut rates, mut outputs) = (Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        reporter.progress(&format!("peers, round {round} of {}: this relay", plan.rounds));
        let drain = async |data: &P::Data| relay::drain(bench, data).await;
        let drain = with_data(bench.program, BrokerUse::Configured, drain).await?;
        rates.push(plan.events as f64 / drain.duration.as_secs_f64());
        reporter.progress(&format!("peers, round {round} of {}: {command}", plan.rounds));
        let peer = async |data: &P::Data| run(command, environment(bench, data)?).await;
        outputs.push(with_data(bench.program, BrokerUse::Configured, peer).await?);
    }
    reporter.report(
        "peers",
        &json!({"eventsPerS": median(&rates).round(), "roundsPerS": rounded(&rates), "peer": command, "peerSays": outputs}),
    )
}

/// The environment of a peer: the addresses of the services, as variables of libpq and as one string, and the load of the plan.
fn environment<P: Program>(bench: &Bench<'_, P>, data: &P::Data) -> Result<Vec<(&'static str, String)>, Error> {
    let needs = || Error::new("a peer runs on PostgreSQL and Kafka: set store.kind and broker.kind");
    let mut variables = data.pgbench_environment()?.ok_or_else(needs)?;
    let brokers = bench.program.kafka_brokers().ok_or_else(needs)?;
    let plan = bench.plan;
    variables.extend([
        ("DSN", connection_string(&variables)),
        ("BROKERS", brokers),
        ("N", plan.events.to_string()),
        ("P", data.partitions().to_string()),
        ("BATCH", data.batch().to_string()),
        ("RATE", plan.rates.first().copied().unwrap_or_default().to_string()),
        ("SECONDS", plan.time.as_secs().to_string()),
    ]);
    Ok(variables)
}

fn connection_string(variables: &[(&str, String)]) -> String {
    let names = [
        ("PGHOST", "host"),
        ("PGPORT", "port"),
        ("PGUSER", "user"),
        ("PGPASSWORD", "password"),
        ("PGDATABASE", "dbname"),
    ];
    let value = |variable| variables.iter().find(|(name, _)| *name == variable).map(|(_, value)| value);
    let parts: Vec<String> =
        names.iter().filter_map(|(variable, name)| Some(format!("{name}='{}'", escaped(value(*variable)?)))).collect();
    parts.join(" ")
}

/// A value between single quotes, as libpq reads it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\'', "\\'")
}

/// The line for a shell. It names no password and no database: a peer creates tables in its own.
fn shell_line<P: Program>(bench: &Bench<'_, P>, data: &P::Data) -> Result<String, Error> {
    let mut variables = environment(bench, data)?;
    variables.retain(|(name, _)| !matches!(*name, "PGPASSWORD" | "PGDATABASE" | "DSN"));
    let dsn: Vec<(&str, String)> = variables.iter().filter(|(name, _)| name.starts_with("PG")).cloned().collect();
    variables.push(("DSN", format!("{} dbname='peer'", connection_string(&dsn))));
    let words: Vec<String> = variables.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    Ok(format!("export {}; createdb peer && ./peer", words.join(" ")))
}

/// Runs the peer to its end and returns the lines that it printed.
async fn run(command: &str, variables: Vec<(&'static str, String)>) -> Result<Vec<String>, Error> {
    let run = Command::new("sh").args(["-c", command]).envs(variables).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = run.await?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!("the peer ended with {}: {}", output.status, stderr.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_string_names_what_is_known_and_quotes_values() {
        let variables =
            [("PGHOST", "/var/run".to_owned()), ("PGPASSWORD", "a'b\\".to_owned()), ("PGSSLMODE", "prefer".to_owned())];
        assert_eq!(connection_string(&variables), "host='/var/run' password='a\\'b\\\\'");
    }
}
