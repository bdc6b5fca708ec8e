//! The state of the service around the flow: region, pressure, breaker, restarts by cause, dependencies.
use std::collections::BTreeMap;

use app::dispatch::ActorView;
use app::health::{Component, HealthSnapshot};
use app::policy::backpressure::PressureLevel;
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::format::{duration, grouped, or_dash, relative_time, state_label};
use crate::state::HttpState;

pub(super) fn cards(state: &HttpState, snapshot: &HealthSnapshot, actors: &[ActorView], now: Timestamp) -> Markup {
    html! {
        div class="tiles wide-tiles" {
            (card("Region", "failover.events.count", &region(snapshot)))
            (card("Pressure", "backpressure.level", &pressure(snapshot)))
            (card("Breaker", "kafka_breaker_state", &breaker(snapshot, now)))
            (card("Actor restarts", "actor_restarts_total", &restarts(state, actors)))
        }
        section class="card" { (dependencies(&snapshot.components)) }
    }
}

fn card(name: &str, metric: &str, content: &Markup) -> Markup {
    html! {
        section class="tile" {
            h2 { (name) }
            (content)
            a class="metric" href={ "/actuator/metrics/" (metric) } { (metric) }
        }
    }
}

fn region(snapshot: &HealthSnapshot) -> Markup {
    html! {
        div class="value" aria-live="polite" { (state_label(if snapshot.passive { "PASSIVE" } else { "ACTIVE" })) }
        div class="more" {
            @if snapshot.draining { "The service is draining." }
            @else if !snapshot.started { "The service is starting." }
            @else if let Some(reason) = &snapshot.storage_full { "The store has no space for writes: " (reason) }
            @else if snapshot.passive { "Writes are refused until the dependencies are available again." }
            @else if !snapshot.accepts_writes() { "Writes are refused until the pressure is lower." }
            @else { "Writes are accepted." }
        }
    }
}

fn pressure(snapshot: &HealthSnapshot) -> Markup {
    let (inputs, thresholds) = (&snapshot.inputs, &snapshot.thresholds);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let rows = |rows: u64| format!("{} rows", grouped(rows));
    let [lag, backlog, saturation] = thresholds.levels(inputs, 1.0);
    let all = [
        (
            "lag",
            "backpressure.kafka.lag.ms",
            lag,
            duration(inputs.lag),
            (duration(thresholds.lag.elevated), duration(thresholds.lag.critical)),
        ),
        (
            "backlog",
            "backpressure.outbox.backlog",
            backlog,
            rows(inputs.backlog),
            (rows(thresholds.backlog.elevated), rows(thresholds.backlog.critical)),
        ),
        (
            "saturation",
            "backpressure.db.saturation.percent",
            saturation,
            percent(inputs.saturation),
            (percent(thresholds.saturation.elevated), percent(thresholds.saturation.critical)),
        ),
    ];
    html! {
        div class="value" aria-live="polite" { (state_label(snapshot.stage.level().as_str())) }
        ul class="more" {
            @for (name, metric, level, value, thresholds) in &all { (pressure_input(name, metric, *level, value, thresholds)) }
        }
    }
}

/// A measurement with the values from which it raises the level, and its own level where that is raised.
fn pressure_input(
    name: &str,
    metric: &str,
    level: PressureLevel,
    value: &str,
    (elevated, critical): &(String, String),
) -> Markup {
    html! {
        li {
            a href={ "/actuator/metrics/" (metric) } { (name) } " " strong { (value) }
            @if level != PressureLevel::Normal { " " (state_label(level.as_str())) }
            br; small { "ELEVATED from " (elevated) ", CRITICAL from " (critical) }
        }
    }
}

fn breaker(snapshot: &HealthSnapshot, now: Timestamp) -> Markup {
    html! {
        div class="value" aria-live="polite" {
            @if snapshot.broker_configured { (state_label(snapshot.breaker)) } @else { "no broker" }
        }
        div class="more" {
            @match (snapshot.broker_configured, snapshot.breaker, snapshot.breaker_probe_at) {
                (false, ..) => "Events stay in the outbox until a broker is configured.",
                (true, "half-open", _) => "Sends pause; a probe is under way.",
                (true, "open", Some(at)) if at > now => { "Sends pause; the next probe is due " (relative_time(at, now)) "." },
                (true, "open", _) => "Sends pause; the next batch is the probe.",
                (true, ..) => "The circuit breaker of the broker",
            }
        }
    }
}

/// Restarts by their cause: a panic is counted apart from restarts of siblings.
fn restarts(state: &HttpState, actors: &[ActorView]) -> Markup {
    let mut causes: BTreeMap<String, u64> = BTreeMap::new();
    for ([_, reason], count) in state.metrics.actor_restarts_total.members() {
        *causes.entry(reason).or_default() += count.get();
    }
    let all: u64 = actors.iter().map(|actor| actor.restarts).sum();
    html! {
        div class="value" aria-live="polite" { a href="/console/actors" { (grouped(all)) } }
        ul class="more" {
            @for (cause, count) in causes.iter().filter(|(_, count)| **count > 0) {
                li class=[(cause == "panic").then_some("bad")] { (cause) " " strong { (grouped(*count)) } }
            }
            @if all == 0 { li { "none since the process started" } }
        }
    }
}

fn dependencies(components: &[Component]) -> Markup {
    html! {
        div class="wide" { table class="cards" {
            caption { "Dependencies" }
            thead { tr { th scope="col" { "Name" } th scope="col" { "State" } th scope="col" { "Latency" }
                th scope="col" { "Gates the region" } th scope="col" { "Last failure" } } }
            tbody {
                @for component in components {
                    tr {
                        th scope="row" { (component.name) }
                        td data-label="State" { (state_label(if component.up { "UP" } else { "DOWN" })) }
                        td class="number" data-label="Latency" { (format!("{:.1} ms", component.latency.as_secs_f64() * 1_000.0)) }
                        td data-label="Gates the region" { @if component.gates { "yes" } @else { "no" } }
                        td data-label="Last failure" { (or_dash(component.detail.as_deref())) }
                    }
                }
            }
        } }
    }
}
