//! Runs pgbench, PostgreSQL's own benchmark: with the service's statement, one transaction an order, and with the scripts of scenarios.
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::error::Error;
use crate::program::ThrowawayData;

const SCRIPT: &str = include_str!("../create_order.sql");

/// The transaction that pgbench repeats.
pub(crate) struct PgbenchScript {
    /// Name of the file.
    pub(crate) name: &'static str,
    /// Statements and pgbench's own commands.
    pub(crate) text: &'static str,
}

/// The end of a pgbench run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunLimit {
    /// Stops after this time.
    Time(Duration),
    /// Stops after this number of transactions of each client.
    Transactions(u32),
}

/// Orders per second, or `None` where pgbench is not installed or the store is another one.
pub(crate) async fn orders_per_second(
    data: &impl ThrowawayData,
    clients: usize,
    time: Duration,
) -> Result<Option<f64>, Error> {
    rate(data, &PgbenchScript { name: "create_order.sql", text: SCRIPT }, clients, RunLimit::Time(time)).await
}

/// Transactions per second, or `None` where pgbench is not installed or the store is another one.
pub(crate) async fn rate(
    data: &impl ThrowawayData,
    script: &PgbenchScript,
    clients: usize,
    limit: RunLimit,
) -> Result<Option<f64>, Error> {
    let Some(variables) = data.pgbench_environment()? else { return Ok(None) };
    let file = data.folder().join(script.name);
    std::fs::write(&file, script.text)?;
    let limit = match limit {
        RunLimit::Time(time) => format!("--time={}", time.as_secs().max(1)),
        RunLimit::Transactions(count) => format!("--transactions={count}"),
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(clients);
    let run = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=prepared"])
        .arg(format!("--client={clients}"))
        .arg(format!("--jobs={threads}"))
        .arg(limit)
        .arg(format!("--file={}", file.display()))
        .envs(variables)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        run => run?,
    };
    let rate = parse_rate(&String::from_utf8_lossy(&output.stdout)).filter(|_| output.status.success());
    rate.map(Some).ok_or_else(|| {
        Error::new(format!("pgbench ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    })
}

fn parse_rate(output: &str) -> Option<f64> {
    let figure = output.lines().find_map(|line| line.strip_prefix("tps = "))?;
    figure.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_parsed_from_the_output_of_pgbench() {
        let output = "latency average = 9 ms\ntps = 7012.345678 (without initial connection time)\n";
        assert_eq!(parse_rate(output), Some(7012.345678));
        assert_eq!(parse_rate("pgbench: error"), None);
    }
}
