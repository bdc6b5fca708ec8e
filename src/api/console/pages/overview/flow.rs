//! The flow of events in numbers: created, sent and consumed per second, latency, lag, age, dead letters.
use app::health::{HealthSnapshot, UNSENT_AGE_NOTABLE};
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::charts::sparkline::sparkline;
use crate::console::charts::throughput::{EventStage, Throughput};
use crate::console::dead_letter_count::DeadLetterCount;
use crate::console::format::{duration, grouped, per_second};
use crate::state::HttpState;

/// A number with its unit, its metric and details.
struct Tile {
    name: &'static str,
    metric: &'static str,
    /// The CSS class of a value that needs attention.
    class: &'static str,
    value: Markup,
    details: Markup,
}

pub(super) fn tiles(
    state: &HttpState,
    snapshot: &HealthSnapshot,
    dead_letters: Option<DeadLetterCount>,
    now: Timestamp,
) -> Markup {
    let throughput = state.throughput_history.recent(now);
    let all = [
        rate("Created", "outbox.entries.written", &throughput, EventStage::Created),
        rate("Sent", "outbox.publish.rate", &throughput, EventStage::Sent),
        rate("Consumed", "kafka.consumer.processed.count", &throughput, EventStage::Consumed),
        latency(&throughput),
        lag(state, snapshot),
        age(snapshot),
        dead_letter_tile(dead_letters),
    ];
    html! {
        div class="tiles" {
            @for tile in all {
                section class="tile" {
                    h2 { (tile.name) }
                    div class={ "value " (tile.class) } aria-live="polite" { (tile.value) }
                    div class="more" { (tile.details) }
                    a class="metric" href={ "/actuator/metrics/" (tile.metric) } { (tile.metric) }
                }
            }
        }
    }
}

fn rate(name: &'static str, metric: &'static str, throughput: &Throughput, stage: EventStage) -> Tile {
    let value = match throughput.rate(stage) {
        Some(rate) => html! { (per_second(rate)) small { " /s" } },
        None => html! { "–" },
    };
    Tile { name, metric, class: "", value, details: sparkline(&throughput.rates(stage)) }
}

fn latency(throughput: &Throughput) -> Tile {
    let details = match throughput.latency(0.99) {
        Some(p99) => html! { "p50 of the last 5 min; p99 " strong { (duration(p99)) } },
        None => html! { "nothing was sent in the last 5 min" },
    };
    let value = match throughput.latency(0.5) {
        Some(p50) => html! { (duration(p50)) },
        None => html! { "–" },
    };
    Tile { name: "Commit → ack", metric: "outbox_commit_to_ack_seconds", class: "", value, details }
}

fn lag(state: &HttpState, snapshot: &HealthSnapshot) -> Tile {
    let records: i64 = state.metrics.kafka_consumer_lag.members().iter().map(|(_, gauge)| gauge.get().max(0)).sum();
    let value = html! { (grouped(records.unsigned_abs())) small { " records" } };
    let details = html! { "age when consumed: " (duration(snapshot.inputs.lag)) };
    Tile { name: "Consumer lag", metric: "kafka_consumer_lag", class: "", value, details }
}

fn age(snapshot: &HealthSnapshot) -> Tile {
    let age = snapshot.depth.oldest_unsent;
    let value = html! { (age.map_or_else(|| "no unsent event".to_owned(), duration)) };
    let class = match age {
        None => "words",
        Some(age) if age > UNSENT_AGE_NOTABLE => "watch",
        Some(_) => "",
    };
    let details = html! { "partitions owned by this instance: " (snapshot.partitions_owned) };
    Tile { name: "Oldest unsent event", metric: "outbox_oldest_pending_age_seconds", class, value, details }
}

fn dead_letter_tile(count: Option<DeadLetterCount>) -> Tile {
    let (class, value) = match count {
        Some(count) => (
            if count.waiting > 0 { "bad" } else { "" },
            html! { a href="/console/dlt" { (grouped(count.waiting)) @if count.more { "+" } } },
        ),
        None => ("", html! { "–" }),
    };
    let details = match count {
        Some(_) => html! { "not sent back yet" },
        None => html! { "not counted: no broker, or it does not answer" },
    };
    Tile { name: "Dead letters", metric: "kafka.consumer.dlq.count", class, value, details }
}
