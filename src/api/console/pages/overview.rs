//! The overview: a verdict, the throughput, the unsent rows, and the state of the service.
mod consumers;
mod flow;
pub(crate) mod partition_count;
mod service_state;
pub(crate) mod verdict;

use app::health::HealthSnapshot;
use maud::{Markup, html};

use crate::console::charts::depth_chart::chart;
use crate::console::charts::depth_history::{UNSENT_STATUSES, unsent_rows};
use crate::console::dead_letter_count::DeadLetterCount;
use crate::console::format::{grouped, optional_time};
use crate::console::layout::{self, Page};
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use verdict::{OverviewFinding, Urgency, VerdictInputs};

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let state = &context.state;
    let (snapshot, now) = (state.operations.health(), state.operations.now());
    let (actors, supervisors) = (state.dispatch.actors(), state.dispatch.supervisors());
    let by_topic = state.dead_letter_counts.waiting(state.dead_letters.as_deref(), now).await;
    let dead_letters = by_topic.map(|by_topic| DeadLetterCount::total(&by_topic));
    let inputs = VerdictInputs {
        snapshot: &snapshot,
        actors: &actors,
        supervisors: &supervisors,
        dead_letters: dead_letters.map(|count| count.waiting),
        partitions_without_owner: state.unowned_partitions.count(&state.operations).await,
    };
    let main = html! {
        (verdict_banner(&verdict::findings(&inputs)))
        (flow::tiles(state, &snapshot, dead_letters, now))
        section class="card" {
            h2 { "Unsent rows" }
            (rows_by_status(&snapshot))
            (chart(&state.depth_history.recent(now), now))
        }
        (service_state::cards(state, &snapshot, &actors, now))
        (consumers::card(state))
        p class="quiet" {
            "posthaste " strong { (telemetry::VERSION) } ", commit " (telemetry::COMMIT) " · the outbox was measured " (optional_time(snapshot.measured_at.map(|at| at.min(now)), now)) "."
        }
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

/// The verdict: one line when all is well, else the findings.
fn verdict_banner(findings: &[OverviewFinding]) -> Markup {
    let class = match findings.first().map(|finding| finding.urgency) {
        None => "good",
        Some(Urgency::Watch) => "watch",
        Some(Urgency::Act) => "bad",
    };
    html! {
        section class={ "banner " (class) } aria-live="polite" {
            @match findings {
                [] => { h2 { span aria-hidden="true" { "●" } " All well" } p { "Every event flows, every actor runs, nothing waits for an operator." } }
                [_] => h2 { "1 thing needs attention" },
                more => h2 { (more.len()) " things need attention" },
            }
            @if !findings.is_empty() {
                ul class="findings" {
                    @for finding in findings {
                        li class=(if finding.urgency == Urgency::Act { "bad" } else { "watch" }) {
                            span aria-hidden="true" { (if finding.urgency == Urgency::Act { "■ " } else { "▲ " }) }
                            a href=(finding.href) { (finding.sentence) }
                        }
                    }
                }
            }
        }
    }
}

/// The number of unsent rows by status. A number that requires an operator is highlighted.
fn rows_by_status(snapshot: &HealthSnapshot) -> Markup {
    let rows = UNSENT_STATUSES.iter().zip(unsent_rows(&snapshot.depth));
    html! {
        ul class="counts" {
            @for (name, rows) in rows {
                li class=[count_class(name, rows)] { a href={ "/console/outbox?status=" (name) } { (name) } " " strong { (grouped(rows)) } }
            }
            li { a href="/console/outbox?status=SENT" { "SENT" } " " strong { (grouped(snapshot.depth.sent)) } }
            li { a class="metric" href="/actuator/metrics/outbox_rows" { "outbox_rows" } }
        }
    }
}

fn count_class(status: &str, rows: u64) -> Option<&'static str> {
    match status {
        "PARKED" if rows > 0 => Some("bad"),
        "FAILED" if rows > 0 => Some("watch"),
        _ => None,
    }
}
