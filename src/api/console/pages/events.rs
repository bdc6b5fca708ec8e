//! The live events: time, severity and one sentence each. The page contains the recent ones, the script adds those of the stream.
pub(crate) mod event_row;
mod filter;
pub(crate) mod sentence;
mod stream_line;

use std::sync::Arc;

use app::dispatch::LiveEvent;
use maud::html;

use crate::admin::live_events::{follow_mapped, follow_with_token};
use crate::console::layout::{self, Page};
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use event_row::event_row;
use filter::EventFilter;

/// Events of a page; older ones are left out.
const EVENTS_MAX: usize = 200;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    let filter = EventFilter::read(&query)?;
    let (backlog, now) = (context.state.dispatch.live(Some(0)).backlog, context.state.operations.now());
    let last = backlog.last().map(|event| event.seq);
    let shown: Vec<&LiveEvent> = backlog.iter().rev().filter(|event| filter.matches(event)).take(EVENTS_MAX).collect();
    let main = html! {
        (filter.chips(&backlog))
        (filter.form())
        p class="buttons" id="tools" hidden {
            button type="button" id="copy" { "Copy as JSON lines" }
            span id="stream" role="status" { "connecting" }
        }
        div class="wide" { table class="cards events" id="log" data-stream="/console/events/stream" data-last=[last]
            data-only=(filter.event) data-severity=(filter.severity_name()) data-q=(filter.text) {
            caption { @if shown.is_empty() { "No events match; new ones appear here" } @else { "Newest first" } }
            (event_row::head())
            tbody { @for event in shown { (event_row(event, now)) } }
        } }
    };
    layout::show(
        &context,
        &Page { tab: "Events", refreshes: false, title: "Events", main, path: "/admin/events", command: "" },
    )
}

/// The stream of `/admin/events`, each event with its sentence. It ends with the session, or with the token of a request without one.
pub(crate) async fn stream(context: RequestContext) -> RouteResult {
    let Some(session) = context.session.clone() else { return follow_with_token(&context) };
    let state = Arc::clone(&context.state);
    let is_authorized = move || {
        let now = state.operations.now();
        state.sessions.is_active(&session, now, |identity| state.auth.is_within_validity(identity, now))
    };
    let state = Arc::clone(&context.state);
    follow_mapped(&context, is_authorized, move |event| stream_line::stream_line(event, state.operations.now()))
}
