//! `GET /admin/events`: the live stream as server-sent events. A client resumes with the header `Last-Event-ID`.
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Bytes;
use app::dispatch::{LiveEvent, LiveFeed};
use app::error::QueryError;
use app::port_types::Audit;
use futures::StreamExt;
use futures::stream::{BoxStream, Stream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::error::{Problem, ProblemBody};
use crate::http::connection_timeouts::ClientClose;
use crate::request::context::RequestContext;
use crate::request::headers::single_value;
use crate::request::response::{RouteResult, end_without_chunks};
use crate::state::HttpState;

/// Time between two comments, with which the server notices an expired token. A client notices a broken connection when they stop; the
/// server, when the client does not acknowledge one within four times `http.body_timeout`.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Sets the client's reconnection delay to two seconds.
const PREAMBLE: &str = "retry: 2000\n\n";

/// Follow the live events
///
/// Life-cycle events and state changes; `id` grows by one, `event` is the name, `data` is a JSON object. The event `lagged` stands for events
/// that the client missed, because it reads too slowly or was away for longer than the service keeps them (1,000 events): `data` is
/// `{"missed": n}`, and `id` is that of the last missed event. A client that reads too slowly is disconnected after it. The stream ends at
/// the first keep-alive after the token has expired.
#[utoipa::path(get, path = "/admin/events", tag = "admin", operation_id = "liveEvents", security(("bearer" = [])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "Resume after this event")),
    responses(
        (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
        (status = 503, description = "Too many clients follow the stream", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn stream(context: RequestContext) -> RouteResult {
    follow_with_token(&context)
}

/// The stream of events for the caller of a token. It ends with the token's validity.
pub(crate) fn follow_with_token(context: &RequestContext) -> RouteResult {
    let (identity, state) = (Arc::clone(context.identity()?), Arc::clone(&context.state));
    follow(context, move || state.auth.is_within_validity(&identity, state.operations.now()))
}

/// The stream of events. It ends when `is_authorized`, which is called at each keep-alive, returns false.
pub(crate) fn follow(context: &RequestContext, is_authorized: impl Fn() -> bool + 'static) -> RouteResult {
    follow_mapped(context, is_authorized, LiveEvent::clone)
}

/// As [`follow`], with each event mapped by `map`.
pub(crate) fn follow_mapped(
    context: &RequestContext,
    is_authorized: impl Fn() -> bool + 'static,
    map: impl Fn(&LiveEvent) -> LiveEvent + Send + 'static,
) -> RouteResult {
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "text/event-stream")).insert_header((CACHE_CONTROL, "no-store"));
    if context.request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let Ok(permit) = context.state.stream_permits.clone().try_acquire_owned() else {
        return Err(Problem::unavailable("too many clients follow the live stream", 5));
    };
    // A malformed id counts as absent.
    let after = single_value(context.headers(), "last-event-id").and_then(|id| id.trim().parse().ok());
    let LiveFeed { backlog, next } = context.state.dispatch.live(after);
    let backlog = backlog.iter().map(&map).collect();
    let feed = LiveFeed { backlog, next: next.map(move |event| map(&event)).boxed() };
    let client_close = ClientClose::of(&context.request);
    let events = encode(feed, context.state.stopping(), client_close, permit, Box::new(is_authorized));
    let mut response = response.streaming(events);
    end_without_chunks(&context.request, &mut response);
    Ok(response)
}

struct LiveEventStream {
    events: BoxStream<'static, LiveEvent>,
    stopping: watch::Receiver<bool>,
    client_close: ClientClose,
    tick: Interval,
    is_authorized: Box<dyn Fn() -> bool>,
    _permit: OwnedSemaphorePermit,
}

fn encode(
    feed: LiveFeed,
    stopping: watch::Receiver<bool>,
    client_close: ClientClose,
    permit: OwnedSemaphorePermit,
    is_authorized: Box<dyn Fn() -> bool>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + 'static {
    let mut first = PREAMBLE.to_owned();
    feed.backlog.iter().for_each(|event| write(&mut first, event));
    let mut tick = interval(KEEP_ALIVE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let stream = LiveEventStream { events: feed.next, stopping, client_close, tick, is_authorized, _permit: permit };
    let rest =
        futures::stream::unfold(
            stream,
            |mut stream| async move { next(&mut stream).await.map(|bytes| (bytes, stream)) },
        );
    futures::stream::once(async move { Bytes::from(first) }).chain(rest).map(Ok)
}

/// The next bytes; `None` when the service stops, the client closes its side, the authorization ends, or the feed drops a client that is too
/// slow.
async fn next(stream: &mut LiveEventStream) -> Option<Bytes> {
    // All four are cancel-safe: watch, connection and interval keep their state, and a stream's `next` takes nothing before it is ready.
    tokio::select! {
        biased;
        _ = stream.stopping.wait_for(|stopping| *stopping) => None,
        () = stream.client_close.closed() => None,
        // Before the events: a busy feed must not keep an expired client.
        _ = stream.tick.tick() => (stream.is_authorized)().then_some(Bytes::from_static(b": keep-alive\n\n")),
        event = stream.events.next() => {
            let mut text = String::new();
            write(&mut text, &event?);
            Some(text.into())
        }
    }
}

fn write(text: &mut String, event: &LiveEvent) {
    // Writing to a String cannot fail.
    let _ = write!(text, "id: {}\nevent: {}\n", event.seq, event.event);
    for line in event.data.lines() {
        let _ = writeln!(text, "data: {line}");
    }
    text.push('\n');
}

/// Logs an operator's action and announces it on the live stream. The field is called `on`, because tracing reserves `target`.
pub(crate) fn log_operator_action(state: &HttpState, by: &str, action: &str, on: &str, reason: &str) {
    tracing::info!(event = "operator_action", by, action, on, reason, "{by} did {action} on {on}: {reason}");
    let fields = [("by", by), ("action", action), ("on", on), ("reason", reason)];
    let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
    state.dispatch.announce("operator_action", given.map(|(name, text)| (name, text.to_owned())).collect());
}

/// As [`log_operator_action`], if the action has changed something, or may have.
pub(crate) fn log_if_changed<T>(
    state: &HttpState,
    result: &Result<T, QueryError>,
    audit: &Audit,
    action: &str,
    on: &str,
) {
    if result.as_ref().err().is_none_or(QueryError::may_have_changed) {
        log_operator_action(state, &audit.operator, action, on, &audit.reason);
    }
}
