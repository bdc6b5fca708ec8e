//! The live log: what is remembered stands on the page, what happens from now on comes over the stream.
use std::collections::BTreeSet;
use std::sync::Arc;

use app::dispatch::LiveEvent;
use maud::{Markup, html};

use super::links::link;
use super::page::{self, Page};
use crate::admin::events::follow;
use crate::call::Call;
use crate::route::Answer;

/// Most events of a page: the newest.
const EVENTS_MAX: usize = 200;

pub(super) async fn show(call: Call) -> Answer {
    let query = call.query();
    let only = query.filled("event")?.unwrap_or_default();
    let backlog = call.state.dispatch.live(Some(0)).backlog;
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
            caption { "The newest first" }
            thead { tr { th scope="col" { "No." } th scope="col" { "Event" } th scope="col" { "What it tells" } } }
            tbody { @for event in shown { (row(event)) } }
        } }
    };
    page::show(&call, &Page { tab: "Events", fresh: false, title: "Events", main, path: "/admin/events", command: "" })
}

/// The stream of `/admin/events`, until the session ends.
pub(super) async fn stream(call: Call) -> Answer {
    let Some(session) = call.session.clone() else { return follow(&call, || true) };
    let state = Arc::clone(&call.state);
    let welcome = move || {
        let now = state.operations.now();
        state.sessions.lives(&session, now, |identity| state.auth.still_holds(identity, now))
    };
    follow(&call, welcome)
}

/// One link for each name that was seen: a filter that can be kept as a bookmark.
fn chips(names: &BTreeSet<&str>, only: &str) -> Markup {
    let chip = |name: &str, told: &str| {
        html! {
            li { a href=(link("/console/events", &[("event", name)])) aria-current=[(name == only).then_some("true")] { (told) } }
        }
    };
    html! { ul class="chips" id="chips" aria-label="Only events of one name" { (chip("", "all")) @for name in names { (chip(name, name)) } } }
}

fn row(event: &LiveEvent) -> Markup {
    html! { tr { th scope="row" { (event.seq) } td { (event.event) } td { code { (event.data) } } } }
}
