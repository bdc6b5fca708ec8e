//! The frame of `top`: problems, rates, waiting rows and actors of a running service.
use app::health::UNSENT_AGE_NOTABLE;
use serde_json::Value;

use super::dead_letters::DeadLetterSum;
use super::metrics_page::MetricsPage;
use crate::cli::output::table::{TableCell, TableColumn, table, table_row};
use crate::cli::output::terminal::{TerminalFeatures, TextStyle};
use crate::cli::output::wrap::wrap;

const RATES: [TableColumn; 3] =
    [TableColumn::text("EVENTS"), TableColumn::number("PER SECOND"), TableColumn::number("TOTAL")];
const ROWS: [TableColumn; 2] = [TableColumn::text("OUTBOX"), TableColumn::number("ROWS")];

/// The service's answers at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) metrics: MetricsPage,
    /// `/admin/actors`.
    pub(super) actors: Value,
    /// `/actuator/info`.
    pub(super) info: Value,
    pub(super) is_ready: bool,
    /// The dead letters that were not sent back; `None` without a broker, or while they cannot be counted.
    pub(super) dead_letters: Option<DeadLetterSum>,
}

/// A reason to act, and the command that shows more.
#[derive(Debug, PartialEq, Eq)]
struct OverviewProblem {
    text: String,
    command: &'static str,
}

/// The lines of the frame. Rates and latencies are those since `before`, `seconds` ago.
pub(super) fn frame(url: &str, now: &Sample, before: &Sample, seconds: f64, terminal: TerminalFeatures) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let (version, instance) = (text(&now.info["app"]["version"]), text(&now.info["instance"]["id"]));
    let mut lines = vec![terminal.styled(&format!("posthaste {version}, {instance}, {url}"), TextStyle::Bold)];
    lines.extend(verdict(now, terminal));
    lines.push(String::new());
    lines.extend(rates(now, before, seconds, terminal).lines().map(str::to_owned));
    lines.push(String::new());
    lines.extend(rows(now, terminal).lines().map(str::to_owned));
    lines.push(String::new());
    lines.extend(summary(now, before).into_iter().map(|line| wrap(&line, terminal.width, 2)));
    lines
}

fn verdict(sample: &Sample, terminal: TerminalFeatures) -> Vec<String> {
    let problems = problems(sample);
    if problems.is_empty() {
        return vec![terminal.styled("all is well", TextStyle::Success)];
    }
    let line = |OverviewProblem { text, command }: &OverviewProblem| {
        let line = wrap(&format!("{text} → {command}"), terminal.width, 2);
        line.replacen(text.as_str(), &terminal.styled(text, TextStyle::Error), 1)
    };
    problems.iter().map(line).collect()
}

/// Problems that an operator must handle, most urgent first.
fn problems(sample: &Sample) -> Vec<OverviewProblem> {
    let metrics = &sample.metrics;
    let parked = metrics.value("outbox_rows{status=\"PARKED\"}");
    let stopped = actors(sample).filter(|actor| actor["state"] != "running").count();
    let breaker = metrics.value("kafka_breaker_state");
    let pressure = metrics.value("backpressure_level");
    let oldest = metrics.value("outbox_oldest_pending_age_seconds");
    let checks = [
        (!sample.is_ready, "the service is not ready".to_owned(), "posthaste doctor"),
        (breaker > 0.0, "the broker's circuit breaker is not closed".to_owned(), "posthaste doctor"),
        (pressure >= 2.0, "pressure is CRITICAL, writes are refused".to_owned(), "posthaste doctor"),
        (parked > 0.0, format!("{parked} rows are PARKED"), "posthaste outbox list --status PARKED"),
        (stopped > 0, format!("{stopped} actors do not run"), "posthaste actors tree --problems"),
        (
            oldest > UNSENT_AGE_NOTABLE.as_secs_f64(),
            format!("the oldest unsent event waits for {oldest:.0} s"),
            "posthaste doctor",
        ),
    ];
    let problem = |(_, text, command): (bool, String, &'static str)| OverviewProblem { text, command };
    checks.into_iter().filter(|(is_wrong, ..)| *is_wrong).map(problem).collect()
}

fn rates(now: &Sample, before: &Sample, seconds: f64, terminal: TerminalFeatures) -> String {
    let row = |name: &str, metric: &str| -> Vec<TableCell> {
        let (total, earlier) = (now.metrics.sum(metric), before.metrics.sum(metric));
        let rate = if seconds > 0.0 { (total - earlier).max(0.0) / seconds } else { 0.0 };
        table_row![name, format!("{rate:.1}"), total]
    };
    let rows = [
        row("written", "outbox_entries_written_total"),
        row("sent", "outbox_entries_delivered_total"),
        row("failed", "outbox_entries_failed_total"),
        row("consumed", "kafka_consumer_processed_count_total"),
        row("dead-lettered", "kafka_consumer_dlq_count_total"),
    ];
    table(&RATES, &rows, terminal)
}

fn rows(now: &Sample, terminal: TerminalFeatures) -> String {
    let row = |status: &str, style: TextStyle| -> Vec<TableCell> {
        let rows = now.metrics.value(&format!("outbox_rows{{status=\"{status}\"}}"));
        let style = if rows > 0.0 { style } else { TextStyle::Plain };
        table_row![TableCell::styled(status, style), TableCell::styled(rows, style)]
    };
    let rows = [
        row("PARKED", TextStyle::Error),
        row("FAILED", TextStyle::Warning),
        row("PENDING", TextStyle::Plain),
        row("IN_FLIGHT", TextStyle::Plain),
    ];
    table(&ROWS, &rows, terminal)
}

fn summary(now: &Sample, before: &Sample) -> Vec<String> {
    let quantile = |quantile: f64| {
        let bound = now.metrics.quantile_since(&before.metrics, "outbox_commit_to_ack_seconds", quantile);
        match bound {
            Some(bound) if bound.is_finite() => format!("≤ {} ms", bound * 1_000.0),
            Some(_) => "above the last bucket".to_owned(),
            None => "-".to_owned(),
        }
    };
    let running = actors(now).filter(|actor| actor["state"] == "running").count();
    let restarts: u64 = actors(now).filter_map(|actor| actor["restarts"].as_u64()).sum();
    let mut lines = vec![
        format!("commit to acknowledgement: p50 {}, p99 {}", quantile(0.50), quantile(0.99)),
        format!(
            "oldest unsent event: {:.1} s, consumer lag: {} records",
            now.metrics.value("outbox_oldest_pending_age_seconds"),
            now.metrics.sum("kafka_consumer_lag"),
        ),
        format!(
            "actors: {running} running, {restarts} restarts, partitions owned: {}",
            now.metrics.sum("outbox_partitions_owned")
        ),
    ];
    lines.extend(now.dead_letters.map(dead_letters));
    lines
}

/// Dead letters are no problem of the service: each was set aside as configured.
fn dead_letters(DeadLetterSum { waiting, more }: DeadLetterSum) -> String {
    let (at_least, next) =
        (if more { "at least " } else { "" }, if waiting > 0 { " → posthaste dlt list" } else { "" });
    format!("dead letters not sent back: {at_least}{waiting}{next}")
}

fn actors(sample: &Sample) -> impl Iterator<Item = &Value> {
    sample.actors["actors"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(parked: u32, sent: u32) -> Sample {
        let page = format!(
            "outbox_rows{{status=\"PARKED\"}} {parked}\noutbox_entries_delivered_total {sent}\nkafka_breaker_state 0\n\
             outbox_oldest_pending_age_seconds 1.7850000000000001\n\
             outbox_commit_to_ack_seconds_bucket{{le=\"0.01\"}} {sent}\n"
        );
        Sample {
            metrics: MetricsPage::parse(&page),
            actors: json!({"actors": [{"state": "running", "restarts": 1}, {"state": "paused", "restarts": 0}]}),
            info: json!({"app": {"version": "0.1.0"}, "instance": {"id": "vm:8080"}}),
            is_ready: true,
            dead_letters: None,
        }
    }

    #[test]
    fn a_frame_shows_what_is_wrong_rates_and_waiting_rows() {
        let lines = frame("http://127.0.0.1:8080", &sample(2, 30), &sample(0, 10), 2.0, TerminalFeatures::PIPE);

        let text = lines.join("\n");
        for part in [
            "posthaste 0.1.0, vm:8080, http://127.0.0.1:8080\n",
            "2 rows are PARKED → posthaste outbox list --status PARKED\n",
            "1 actors do not run → posthaste actors tree --problems\n",
            "sent                 10.0     30\n",
            "PARKED        2\n",
            "p50 ≤ 10 ms, p99 ≤ 10 ms\n",
            "oldest unsent event: 1.8 s, consumer lag: 0 records\n",
            "actors: 1 running, 1 restarts",
        ] {
            assert!(text.contains(part), "{part:?} is missing in: {text}");
        }
        assert!(!text.contains("all is well") && !text.contains("dead letters"), "they are not known: {text}");
    }

    #[test]
    fn dead_letters_are_a_line_with_their_command_and_no_problem() {
        let frame = |waiting, more| {
            let now =
                Sample { dead_letters: Some(DeadLetterSum { waiting, more }), is_ready: true, ..Sample::default() };
            frame("http://127.0.0.1:8080", &now, &now, 2.0, TerminalFeatures::PIPE)
        };

        assert_eq!(frame(3, false).last().unwrap(), "dead letters not sent back: 3 → posthaste dlt list");
        assert_eq!(
            frame(1_000, true).last().unwrap(),
            "dead letters not sent back: at least 1000 → posthaste dlt list"
        );
        assert_eq!(frame(0, false).last().unwrap(), "dead letters not sent back: 0");
        assert_eq!(frame(3, false)[1], "all is well");
    }

    #[test]
    fn a_service_without_problems_is_reported_healthy() {
        let well = Sample { actors: json!({"actors": [{"state": "running", "restarts": 0}]}), ..sample(0, 0) };
        let unready = Sample { is_ready: false, ..well.clone() };
        let late = Sample { metrics: MetricsPage::parse("outbox_oldest_pending_age_seconds 70.4\n"), ..well.clone() };

        assert_eq!(verdict(&well, TerminalFeatures::PIPE), ["all is well"]);
        assert_eq!(
            verdict(&late, TerminalFeatures::PIPE),
            ["the oldest unsent event waits for 70 s → posthaste doctor"]
        );
        assert_eq!(verdict(&unready, TerminalFeatures::PIPE), ["the service is not ready → posthaste doctor"]);
    }
}
