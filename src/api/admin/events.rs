//! `GET /admin/events`: the live stream as server-sent events. A reader that comes back names the last event it saw.
use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Bytes;
use app::dispatch::{LiveEvent, LiveFeed};
use futures::StreamExt;
use futures::stream::{self, BoxStream, Stream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::call::Call;
use crate::context;
use crate::error::{Envelope, Problem};
use crate::route::Answer;

/// Silence after which a comment shows that the line still stands.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What readers are told to wait before they come back.
const PREAMBLE: &str = "retry: 2000\n\n";

/// Follow what happens
///
/// Life-cycle facts and transitions; `id` grows by one, `event` names the fact, `data` is a JSON object.
#[utoipa::path(get, path = "/admin/events", tag = "admin", operation_id = "liveEvents", security(("bearer" = [])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "Resume behind this one")),
    responses(
        (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
        (status = 503, description = "Too many readers", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn stream(call: Call) -> Answer {
    follow(&call, || true)
}

/// The stream of events, for as long as its reader is welcome: asked now and then, and never of a reader whose token was checked.
pub(crate) fn follow(call: &Call, welcome: impl Fn() -> bool + 'static) -> Answer {
    let mut answer = HttpResponse::Ok();
    answer.insert_header((CONTENT_TYPE, "text/event-stream")).insert_header((CACHE_CONTROL, "no-store"));
    if call.request.method() == Method::HEAD {
        return Ok(answer.finish());
    }
    let Ok(place) = call.state.streams.clone().try_acquire_owned() else {
        return Err(Problem::held_back("too many readers follow the live stream", 5));
    };
    // An id that is no number of ours is as good as none: the reader begins now.
    let after = context::only(call.headers(), "last-event-id").and_then(|id| id.trim().parse().ok());
    let feed = call.state.dispatch.live(after);
    Ok(answer.streaming(lines(feed, call.state.stopping(), place, Box::new(welcome))))
}

struct Reader {
    next: BoxStream<'static, LiveEvent>,
    stopping: watch::Receiver<bool>,
    tick: Interval,
    welcome: Box<dyn Fn() -> bool>,
    _place: OwnedSemaphorePermit,
}

fn lines(
    feed: LiveFeed,
    stopping: watch::Receiver<bool>,
    place: OwnedSemaphorePermit,
    welcome: Box<dyn Fn() -> bool>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + 'static {
    let mut first = PREAMBLE.to_owned();
    feed.backlog.iter().for_each(|event| write(&mut first, event));
    let mut tick = interval(KEEP_ALIVE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let reader = Reader { next: feed.next, stopping, tick, welcome, _place: place };
    let rest = stream::unfold(reader, |mut reader| async move { next(&mut reader).await.map(|bytes| (bytes, reader)) });
    stream::once(async move { Bytes::from(first) }).chain(rest).map(Ok)
}

/// The next lines; `None` when the service stops, the reader is welcome no more, or the feed gave it up as too slow.
async fn next(reader: &mut Reader) -> Option<Bytes> {
    // All three are safe to drop: the watch and the interval keep what they saw, and a stream's `next` takes nothing before it is ready.
    tokio::select! {
        biased;
        _ = reader.stopping.wait_for(|stopping| *stopping) => None,
        event = reader.next.next() => {
            let mut text = String::new();
            write(&mut text, &event?);
            Some(text.into())
        }
        _ = reader.tick.tick() => (reader.welcome)().then_some(Bytes::from_static(b": keep-alive\n\n")),
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
