//! The overview: how the service fares, in a few numbers, and what waited over the last minutes.
use app::health::{Component, HealthSnapshot};
use maud::{Markup, html};

use super::chart::chart;
use super::history::{WAITING, waiting};
use super::page::{self, Page};
use super::words::{maybe_when, or_dash, span, state};
use crate::call::Call;
use crate::route::Answer;

pub(super) async fn show(call: Call) -> Answer {
    let state = &call.state;
    let (picture, now) = (state.operations.health(), state.operations.now());
    let main = html! {
        (tiles(&picture, state.restarts()))
        h2 { "What waits" }
        (chart(&state.history.until(now), now))
        (dependencies(&picture.components))
        p class="quiet" { "The outbox was measured " (maybe_when(picture.measured_at.map(|at| at.min(now)), now)) "." }
    };
    let page = Page {
        tab: "Overview",
        fresh: true,
        title: "Overview",
        main,
        path: "/actuator/health",
        command: "posthaste doctor",
    };
    page::show(&call, &page)
}

/// A number or a state, the metric behind it, and what it is made of.
struct Tile {
    name: &'static str,
    metric: &'static str,
    value: Markup,
    more: Markup,
}

fn tiles(picture: &HealthSnapshot, restarts: u64) -> Markup {
    let depth = &picture.depth;
    let rows = WAITING.iter().zip(waiting(depth));
    let all = [
        region(picture),
        pressure(picture),
        breaker(picture),
        Tile {
            name: "Oldest unsent event",
            metric: "outbox_oldest_pending_age_seconds",
            value: html! { (depth.oldest_unsent.map_or_else(|| "none waits".to_owned(), span)) },
            more: html! {},
        },
        Tile {
            name: "Rows",
            metric: "outbox_rows",
            value: html! { ul { @for (name, rows) in rows { li { a href={ "/console/outbox?status=" (name) } { (name) } " " strong { (rows) } } } } },
            more: html! { "SENT, still in the archive: " (depth.sent) },
        },
        Tile {
            name: "Restarts of actors",
            metric: "actor_restarts_total",
            value: html! { a href="/console/actors" { (restarts) } },
            more: html! { "Partitions held here: " (picture.partitions_owned) },
        },
    ];
    html! {
        div class="tiles" {
            @for tile in all {
                section class="tile" {
                    h2 { (tile.name) }
                    div class="value" aria-live="polite" { (tile.value) }
                    div class="more" { (tile.more) }
                    p { a class="metric" href={ "/actuator/metrics/" (tile.metric) } { (tile.metric) } }
                }
            }
        }
    }
}

fn region(picture: &HealthSnapshot) -> Tile {
    let more = html! {
        @if picture.draining { "The service is draining." }
        @else if !picture.started { "The service is starting." }
        @else if let Some(why) = &picture.no_room { "No room for writes: " (why) }
        @else if picture.passive { "Writes are refused until its dependencies are back." }
        @else { "Writes are taken." }
    };
    let value = state(if picture.passive { "PASSIVE" } else { "ACTIVE" });
    Tile { name: "Region", metric: "failover.events.count", value, more }
}

fn pressure(picture: &HealthSnapshot) -> Tile {
    let inputs = &picture.inputs;
    let more = html! {
        ul {
            li { a href="/actuator/metrics/backpressure.kafka.lag.ms" { "lag" } " " (span(inputs.lag)) }
            li { a href="/actuator/metrics/backpressure.outbox.backlog" { "backlog" } " " (inputs.backlog) " rows" }
            li { a href="/actuator/metrics/backpressure.db.saturation.percent" { "saturation" } " " (format!("{:.0} %", inputs.saturation * 100.0)) }
        }
    };
    Tile { name: "Pressure", metric: "backpressure.level", value: state(picture.stage.level().as_str()), more }
}

fn breaker(picture: &HealthSnapshot) -> Tile {
    let configured = picture.broker_configured;
    let value = if configured {
        state(picture.breaker)
    } else {
        html! { "no broker" }
    };
    let more = html! { @if configured { "of the broker" } @else { "Events wait until one is configured." } };
    Tile { name: "Breaker", metric: "kafka_breaker_state", value, more }
}

fn dependencies(components: &[Component]) -> Markup {
    html! {
        div class="wide" { table {
            caption { "Dependencies" }
            thead { tr { th scope="col" { "Name" } th scope="col" { "State" } th scope="col" { "Last answer took" }
                th scope="col" { "Gates the region" } th scope="col" { "Last failure" } } }
            tbody {
                @for component in components {
                    tr {
                        th scope="row" { (component.name) }
                        td { (state(if component.up { "UP" } else { "DOWN" })) }
                        td class="number" { (format!("{:.1} ms", component.latency.as_secs_f64() * 1_000.0)) }
                        td { @if component.gates { "yes" } @else { "no" } }
                        td { (or_dash(component.detail.as_deref())) }
                    }
                }
            }
        } }
    }
}
