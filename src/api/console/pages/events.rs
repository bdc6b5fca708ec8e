//! The live events: the page contains the recent ones, the script adds those of the stream.
use std::collections::BTreeSet;
use std::sync::Arc;

use app::dispatch::LiveEvent;
use maud::{Markup, html};

use crate::admin::live_events::{follow, follow_with_token};
use crate::console::layout::{self, Page};
use crate::console::links::link;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

/// Events of a page; older ones are left out.
const EVENTS_MAX: usize = 200;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    let only = query.non_empty("event")?.unwrap_or_default();
    let backlog = context.state.dispatch.live(Some(0)).backlog;
    let last = backlog.last().map(|event| event.seq);
    let names: BTreeSet<&str> =
        backlog.iter().map(|event| &*event.event).chain(Some(only)).filter(|name| !name.is_empty()).collect();
    let shown = backlog.iter().rev().filter(|event| only.is_empty() || event.event == only).take(EVENTS_MAX);
    let main = html! {
        (chips(&names, only))
        p class="buttons" id="tools" hidden {
            button type="button" id="copy" { "Copy as JSON lines" }
            span id="stream" role="status" { "connecting" }
        }
        div class="wide" { table id="log" data-stream="/console/events/stream" data-last=[last] data-only=(only) {
            caption { "Newest first" }
            thead { tr { th scope="col" { "No." } th scope="col" { "Event" } th scope="col" { "Data" } } }
            tbody { @for event in shown { (row(event)) } }
        } }
    };
    layout::show(
        &context,
        &Page { tab: "Events", refreshes: false, title: "Events", main, path: "/admin/events", command: "" },
    )
}

/// The stream of `/admin/events`. It ends with the session, or with the token of a request without one.
pub(crate) async fn stream(context: RequestContext) -> RouteResult {
    let Some(session) = context.session.clone() else { return follow_with_token(&context) };
    let state = Arc::clone(&context.state);
    let is_authorized = move || {
        let now = state.operations.now();
        state.sessions.is_active(&session, now, |identity| state.auth.is_within_validity(identity, now))
    };
    follow(&context, is_authorized)
}

/// One filter link for each event name; a link can be bookmarked.
fn chips(names: &BTreeSet<&str>, only: &str) -> Markup {
    let chip = |name: &str, label: &str| {
        html! {
            li { a href=(link("/console/events", &[("event", name)])) aria-current=[(name == only).then_some("true")] { (label) } }
        }
    };
    html! { ul class="chips" id="chips" aria-label="Filter by event name" { (chip("", "all")) @for name in names { (chip(name, name)) } } }
}

fn row(event: &LiveEvent) -> Markup {
    html! { tr { th scope="row" { (event.seq) } td { (event.event) } td { code { (event.data) } } } }
}
