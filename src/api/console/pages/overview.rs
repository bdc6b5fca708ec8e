//! The overview: the state of the service in a few numbers, and the chart of the outbox depth.
use app::vitals::{Component, Picture};
use maud::{Markup, html};

use crate::console::chart::chart;
use crate::console::depth_history::{UNSENT_STATUSES, unsent_rows};
use crate::console::format::{duration, optional_time, or_dash, state_label};
use crate::console::layout::{self, Page};
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let state = &context.state;
    let (snapshot, now) = (state.operations.picture(), state.operations.now());
    let main = html! {
        (tiles(&snapshot, state.restarts()))
        h2 { "Unsent rows" }
        (chart(&state.depth_history.recent(now), now))
        (dependencies(&snapshot.components))
        p class="quiet" { "The outbox was measured " (optional_time(snapshot.measured_at.map(|at| at.min(now)), now)) "." }
    };
    let page = Page {
        tab: "Overview",
        refreshes: true,
        title: "Overview",
        main,
        path: "/actuator/health",
        command: "posthaste doctor",
    };
    layout::show(&context, &page)
}

/// A number or a state with its metric and details.
struct Tile {
    name: &'static str,
    metric: &'static str,
    value: Markup,
    details: Markup,
}

fn tiles(snapshot: &Picture, restarts: u64) -> Markup {
    let depth = &snapshot.depth;
    let rows = UNSENT_STATUSES.iter().zip(unsent_rows(depth));
    let all = [
        region(snapshot),
        pressure(snapshot),
        breaker(snapshot),
        Tile {
            name: "Oldest unsent event",
            metric: "outbox_oldest_pending_age_seconds",
            value: html! { (depth.oldest_unsent.map_or_else(|| "no unsent event".to_owned(), duration)) },
            details: html! {},
        },
        Tile {
            name: "Rows",
            metric: "outbox_rows",
            value: html! { ul { @for (name, rows) in rows { li { a href={ "/console/outbox?status=" (name) } { (name) } " " strong { (rows) } } } } },
            details: html! { "Sent rows in the archive: " (depth.sent) },
        },
        Tile {
            name: "Actor restarts",
            metric: "actor_restarts_total",
            value: html! { a href="/console/actors" { (restarts) } },
            details: html! { "Partitions owned by this instance: " (snapshot.partitions_owned) },
        },
    ];
    html! {
        div class="tiles" {
            @for tile in all {
                section class="tile" {
                    h2 { (tile.name) }
                    div class="value" aria-live="polite" { (tile.value) }
                    div class="more" { (tile.details) }
                    p { a class="metric" href={ "/actuator/metrics/" (tile.metric) } { (tile.metric) } }
                }
            }
        }
    }
}

fn region(snapshot: &Picture) -> Tile {
    let details = html! {
        @if snapshot.draining { "The service is draining." }
        @else if !snapshot.started { "The service is starting." }
        @else if let Some(reason) = &snapshot.no_room { "The store has no space for writes: " (reason) }
        @else if snapshot.passive { "Writes are refused until the dependencies are available again." }
        @else { "Writes are accepted." }
    };
    let value = state_label(if snapshot.passive { "PASSIVE" } else { "ACTIVE" });
    Tile { name: "Region", metric: "failover.events.count", value, details }
}

fn pressure(snapshot: &Picture) -> Tile {
    let inputs = &snapshot.inputs;
    let details = html! {
        ul {
            li { a href="/actuator/metrics/backpressure.kafka.lag.ms" { "lag" } " " (duration(inputs.lag)) }
            li { a href="/actuator/metrics/backpressure.outbox.backlog" { "backlog" } " " (inputs.backlog) " rows" }
            li { a href="/actuator/metrics/backpressure.db.saturation.percent" { "saturation" } " " (format!("{:.0} %", inputs.saturation * 100.0)) }
        }
    };
    Tile {
        name: "Pressure",
        metric: "backpressure.level",
        value: state_label(snapshot.stage.level().as_str()),
        details,
    }
}

fn breaker(snapshot: &Picture) -> Tile {
    let configured = snapshot.broker_configured;
    let value = if configured {
        state_label(snapshot.breaker)
    } else {
        html! { "no broker" }
    };
    let details = html! { @if configured { "The circuit breaker of the broker" } @else { "Events stay in the outbox until a broker is configured." } };
    Tile { name: "Breaker", metric: "kafka_breaker_state", value, details }
}

fn dependencies(components: &[Component]) -> Markup {
    html! {
        div class="wide" { table {
            caption { "Dependencies" }
            thead { tr { th scope="col" { "Name" } th scope="col" { "State" } th scope="col" { "Latency" }
                th scope="col" { "Gates the region" } th scope="col" { "Last failure" } } }
            tbody {
                @for component in components {
                    tr {
                        th scope="row" { (component.name) }
                        td { (state_label(if component.up { "UP" } else { "DOWN" })) }
                        td class="number" { (format!("{:.1} ms", component.latency.as_secs_f64() * 1_000.0)) }
                        td { @if component.gates { "yes" } @else { "no" } }
                        td { (or_dash(component.detail.as_deref())) }
                    }
                }
            }
        } }
    }
}
