//! PostgreSQL's own bench with the same statement, one transaction an order: what the service is held against.
use std::process::Stdio;
use std::time::Duration;

use posthaste::Throwaway;
use tokio::process::Command;

use super::super::failure::Failure;

const SCRIPT: &str = include_str!("../../../benches/create_order.sql");

/// Orders per second, or `None` where there is no pgbench, or another store.
pub(super) async fn orders_per_second(
    ground: &Throwaway,
    clients: usize,
    time: Duration,
) -> Result<Option<f64>, Failure> {
    let Some(variables) = posthaste::server_environment(&ground.config)? else { return Ok(None) };
    let script = ground.config.store.path.join("create_order.sql");
    std::fs::write(&script, SCRIPT)?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(clients);
    let run = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=prepared"])
        .arg(format!("--client={clients}"))
        .arg(format!("--jobs={threads}"))
        .arg(format!("--time={}", time.as_secs().max(1)))
        .arg(format!("--file={}", script.display()))
        .envs(variables)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        run => run?,
    };
    let told = String::from_utf8_lossy(&output.stdout);
    let rate = rate(&told).filter(|_| output.status.success());
    rate.map(Some).ok_or_else(|| {
        Failure::new(format!(
            "pgbench ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    })
}

fn rate(told: &str) -> Option<f64> {
    let figure = told.lines().find_map(|line| line.strip_prefix("tps = "))?;
    figure.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_it_prints() {
        assert_eq!(
            rate("latency average = 9 ms\ntps = 7012.345678 (without initial connection time)\n"),
            Some(7012.345678)
        );
        assert_eq!(rate("pgbench: error"), None);
    }
}
