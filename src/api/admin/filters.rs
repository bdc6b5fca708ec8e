//! Query parameters that select rows and dead letters. The console's pages read them too.
use std::time::Duration;

use app::operators::dead_letters::{DeadLetterCursor, DeadLetterFilter};
use app::port_types::{EventKey, FailureType, PartitionNo, RowFilter, RowId, RowStatus};
use app::units::duration;

use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;

pub(crate) const KEY_MESSAGE: &str = "must be 1 to 1024 bytes of text without control characters";
pub(crate) const FAILURE_TYPE_MESSAGE: &str = "must be one of NETWORK, TIMEOUT, VALIDATION, SYSTEM";
pub(crate) const AGE_MESSAGE: &str = "must be a duration such as 250ms, 5s or 1h";
pub(crate) const PARTITION_MESSAGE: &str = "must be the number of a partition";
pub(crate) const TEXT_MESSAGE: &str = "must be text without control characters";
pub(crate) const CURSOR_MESSAGE: &str = "must be `next` of a response, or a partition and an offset such as 3/17";

/// A parameter parsed by `parse`; an empty value counts as absent.
///
/// # Errors
/// 400 with `message` when `parse` returns `None`.
pub(crate) fn parameter<T>(
    query: &Query<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    message: &'static str,
) -> Result<Option<T>, Problem> {
    let Some(text) = query.non_empty(name)? else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| Problem::field(name, message))
}

/// The filter of a list of outbox rows.
pub(crate) fn row_filter(query: &Query<'_>) -> Result<RowFilter, Problem> {
    Ok(RowFilter {
        status: parameter(
            query,
            "status",
            RowStatus::parse,
            "must be one of PENDING, IN_FLIGHT, FAILED, PARKED, SENT",
        )?,
        key: event_key(query)?,
        partition: parameter(query, "partition", parse_partition, PARTITION_MESSAGE)?,
        event_type: event_type(query)?,
        failure_type: failure_type(query)?,
        after: query.non_empty("after")?.map_or(Ok(None), |_| query.integer("after"))?,
        ..RowFilter::default()
    })
}

/// The filter of a list of dead letters.
pub(crate) fn dead_letter_filter(query: &Query<'_>) -> Result<DeadLetterFilter, Problem> {
    Ok(DeadLetterFilter {
        key: query.non_empty("key")?.map(str::to_owned),
        event_type: event_type(query)?,
        failure_type: failure_type(query)?,
        older_than: older_than(query)?,
        redriven: parameter(query, "redriven", |text| text.parse().ok(), "must be true or false")?,
        after: parameter(query, "after", DeadLetterCursor::parse, CURSOR_MESSAGE)?,
        webhook: None,
    })
}

pub(crate) fn event_key(query: &Query<'_>) -> Result<Option<EventKey>, Problem> {
    parameter(query, "key", parse_key, KEY_MESSAGE)
}

/// A key that an event may have.
pub(crate) fn parse_key(text: &str) -> Option<EventKey> {
    EventKey::parse(text).ok()
}

/// A partition of the outbox. Its number has at most 31 bits in every store.
fn parse_partition(text: &str) -> Option<PartitionNo> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<i32>().ok().filter(|_| digits).map(|number| PartitionNo(number.unsigned_abs()))
}

pub(crate) fn failure_type(query: &Query<'_>) -> Result<Option<FailureType>, Problem> {
    parameter(query, "failureType", FailureType::parse, FAILURE_TYPE_MESSAGE)
}

pub(crate) fn older_than(query: &Query<'_>) -> Result<Option<Duration>, Problem> {
    parameter(query, "olderThan", |text: &str| duration(text).ok(), AGE_MESSAGE)
}

/// The `id` in the path of a row's routes.
pub(crate) fn row_id(context: &RequestContext) -> Result<RowId, Problem> {
    let id = context.path_parameter("id");
    let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    id.parse().ok().filter(|_| digits).ok_or_else(|| Problem::field("id", "must be the number of a row"))
}

/// Text that a store can hold and a log line can show.
pub(crate) fn printable(text: &str) -> Option<String> {
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn event_type(query: &Query<'_>) -> Result<Option<String>, Problem> {
    parameter(query, "type", printable, TEXT_MESSAGE)
}
