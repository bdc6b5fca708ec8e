//! One actor: its state and limits, what its kind does, its faults where they are enabled, and its last events.
use app::dispatch::{ActorView, LiveEvent, SupervisorView};
use maud::{Markup, html};
use serde_json::Value;

use super::load::load_text;
use super::tree_view::{events_of, fault_buttons, mailbox, restart_budget};
use crate::console::form;
use crate::console::format::{duration, or_dash, state_label};
use crate::console::layout::{self, Page};
use crate::console::pages::events::event_row::{self, event_row};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use crate::state::HttpState;

/// Events of the page, the latest of the actor.
const EVENTS_MAX: usize = 50;
/// The events whose field `partition` is one of the outbox.
const LEASE_EVENTS: [&str; 4] = ["lease_acquired", "lease_released", "lease_lost", "batch_resolved"];

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let path = format!("/{}", context.path_parameter("path"));
    let (state, dispatch) = (&context.state, &context.state.dispatch);
    let actor = dispatch.actors().into_iter().find(|actor| actor.path == path);
    let events: Vec<LiveEvent> =
        dispatch.live(Some(0)).backlog.into_iter().rev().filter(|event| is_of(event, &path)).take(EVENTS_MAX).collect();
    // A worker that was handed over is gone, but its events still say why.
    if actor.is_none() && events.is_empty() {
        return Err(Problem::not_found("no such actor"));
    }
    let main = html! {
        @match &actor {
            Some(actor) => (details(&context, actor, dispatch.supervisors().iter().find(|found| found.label == actor.supervisor))),
            None => p class="verdict" { (state_label("ended")) " The actor is not in the tree: its supervisor has removed it." },
        }
        section class="card" {
            h2 { "Last events" }
            (event_table(&events, state))
            p { a href=(events_of(&path)) { "All events of this actor" } }
        }
        p { a href="/console/actors" { "Back to the actors" } }
    };
    let command = "posthaste actors tree";
    layout::show(&context, &Page { tab: "Actors", refreshes: true, title: &path, main, path: "/admin/actors", command })
}

fn details(context: &RequestContext, actor: &ActorView, supervisor: Option<&SupervisorView>) -> Markup {
    let csrf = context.state.dispatch.faults_enabled().then(|| form::csrf_field(context));
    let load = context.state.actor_load.by_kind().get(&actor.actor).copied();
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        p class="verdict" {
            (state_label(actor.state)) @if let Some(uptime) = actor.uptime { " for " (duration(uptime)) } ", generation " (actor.generation) "."
        }
        section class="card" {
            div class="wide" { table class="facts" {
                caption { "Details" }
                tbody {
                    (fact("Kind", html! { (actor.actor) }))
                    (fact("Restarts", html! { (actor.restarts) }))
                    (fact("Last exit", html! { (or_dash(actor.last_exit.as_deref())) }))
                    (fact("Mailbox", html! { (mailbox(actor)) " " (actor.mailbox_depth) " of " (actor.mailbox_capacity) }))
                    (fact("In progress", html! { (or_dash(actor.in_progress.as_deref())) }))
                    (fact("Messages of its kind", html! { (load_text(load)) }))
                    (fact("Supervisor", html! {
                        (actor.supervisor)
                        @if let Some(supervisor) = supervisor { ", " (supervisor.strategy) ", " (restart_budget(supervisor)) }
                    }))
                }
            } }
            @if let Some(csrf) = &csrf { (fault_buttons(csrf, &actor.path)) }
        }
    }
}

fn event_table(events: &[LiveEvent], state: &HttpState) -> Markup {
    let now = state.operations.now();
    html! {
        @if events.is_empty() { p class="empty" { "None among the latest events of the service." } }
        @else {
            div class="wide" { table class="cards events" {
                caption { "Newest first" }
                (event_row::head())
                tbody { @for event in events { (event_row(event, now)) } }
            } }
        }
    }
}

/// Whether the event is one of this actor, an operator's action on it, or one of the lease on its partition.
fn is_of(event: &LiveEvent, path: &str) -> bool {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    let partition = path.rsplit_once("/partition-worker-").map(|(_, number)| number);
    let is_of_partition = || partition.is_some_and(|number| data["partition"] == number);
    data["child"] == path || data["on"] == path || (LEASE_EVENTS.contains(&&*event.event) && is_of_partition())
}
