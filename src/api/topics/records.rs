//! `GET /topics/{topic}/records`: reads a topic, waits for new records, or follows it.
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{AgeFilter, AnyInteger, GroupNameFilter, PartitionListFilter, ReadStartFilter};
use crate::request::context::RequestContext;
use crate::request::headers::single_value;
use crate::request::media_types::accepts_event_stream;
use crate::request::response::{RouteResult, end_without_chunks};
use crate::topics::parameters::{ReadAmount, read_request, topic_reads};
use crate::topics::record_body::TopicLine;
use crate::topics::record_stream::{RecordFormat, RecordStream, StreamStart};

/// Read a topic
///
/// Records behind a cursor, in offset order within each partition: the records of a key come in the order of its events. By default JSON
/// lines: a line with `offset` is a record; a line with `cursor` follows the records before it and ends every complete response, so that a
/// response without it was cut off. With `wait` a request without records waits for the first one. With `Accept: text/event-stream` the
/// response follows the topic until the client or the service ends it, or the token expires; the id of an event is the cursor behind it.
#[utoipa::path(get, path = "/topics/{topic}/records", tag = "topics", operation_id = "readTopic", security(("bearer" = [])),
    params(
        ("topic" = String, Path, description = "The full name of the topic"),
        ("after" = inline(Option<ReadStartFilter>), Query, description = "A cursor, `beginning` or `end`. By default the group's committed offsets, or the beginning"),
        ("group" = inline(Option<GroupNameFilter>), Query, description = "The consumer group that reads; retention keeps what it has not committed"),
        ("partitions" = inline(Option<PartitionListFilter>), Query, description = "Only these partitions, separated by commas"),
        ("limit" = inline(Option<AnyInteger>), Query, description = "Clamped to 1…`read.records_max`; 500 by default, unlimited for an event stream"),
        ("wait" = inline(Option<AgeFilter>), Query, description = "Longest wait for the first record, such as 20s; at most `read.wait_max`"),
        ("Last-Event-ID" = Option<String>, Header, description = "The cursor at which an event stream resumes")),
    responses(
        (status = 200, description = "Records and cursors", content(
            (TopicLine<'_> = "application/x-ndjson"), (String = "text/event-stream"))),
        (status = 400, description = "A parameter is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such topic or partition", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The cursor is beyond the end of the topic, the group is the service's own, or there are too many groups", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 410, description = "Retention has deleted records behind the cursor; `next` continues without them", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Not with this broker", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests read topics, or the log is not available", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn read(context: RequestContext) -> RouteResult {
    let (query, limits) = (context.query(), &context.state.options.reads);
    query.reject_unknown(&["after", "group", "partitions", "limit", "wait"])?;
    let amount = ReadAmount::read(&query, limits)?;
    let events = accepts_event_stream(context.headers());
    let resume = single_value(context.headers(), "last-event-id").filter(|id| events && !id.is_empty());
    let request = read_request(&context, &query, resume)?;
    let reads = topic_reads(&context)?;
    let Ok(permit) = Arc::clone(&context.state.reader_permits).try_acquire_owned() else {
        return Err(Problem::unavailable("too many requests read topics", 5));
    };
    let cursor = reads.begin(&request).await?;
    let (format, content_type) = if events {
        (RecordFormat::Events { limit: amount.limit }, "text/event-stream")
    } else {
        (RecordFormat::Lines { limit: amount.page(limits), wait: amount.wait }, "application/x-ndjson")
    };
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, content_type)).insert_header((CACHE_CONTROL, "no-store"));
    if context.request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let start = StreamStart { reads, topic: request.topic, group: request.group, cursor, format, permit };
    let stream = RecordStream::open(&context, start).await?;
    let mut response = response.streaming(stream.into_bytes());
    end_without_chunks(&context.request, &mut response);
    Ok(response)
}
