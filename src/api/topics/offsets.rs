//! `/groups/{group}/topics/{topic}/offsets`: the committed offsets of a consumer group.
use std::ops::Range;

use app::consume::topic_cursor::ReadStart;
use app::consume::topic_reads::GroupOffsets;
use app::port_types::OffsetCommitMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{GroupName, ReadStartText};
use crate::request::context::RequestContext;
use crate::request::json::{self, JsonMember, JsonValue};
use crate::request::query::reject_unknown_names;
use crate::request::response::{RouteResult, ok};
use crate::topics::parameters::{path_group, read_start, topic_reads};

/// The offsets to commit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CommitOffsets)]
pub(crate) struct CommitBody<'a> {
    /// A cursor, whose partitions are committed and others are not; `beginning` or `end` for all partitions.
    #[serde(borrow, default)]
    #[schema(required = true, value_type = ReadStartText, example = "0:17,3:4")]
    cursor: JsonMember<'a>,
    /// Whether the offsets may move back, so that the group reads records again; false by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = bool, example = false)]
    reset: JsonMember<'a>,
}

/// The committed offsets of a group in one topic.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupOffsets)]
pub(crate) struct GroupOffsetsBody<'a> {
    #[schema(example = "billing")]
    group: &'a str,
    #[schema(example = "order.events")]
    topic: &'a str,
    /// The cursor at which the group continues.
    #[schema(example = "0:17,3:4")]
    cursor: String,
    /// One entry for each partition of the topic.
    partitions: Vec<PartitionOffsetBody>,
}

/// A group's offset in one partition.
#[derive(Serialize, ToSchema)]
#[schema(as = PartitionOffset)]
pub(crate) struct PartitionOffsetBody {
    #[schema(example = 3)]
    partition: u32,
    /// The next offset that the group reads; null where it has never read.
    #[schema(example = 17)]
    committed: Option<u64>,
    /// The first offset that is kept.
    first: u64,
    /// The next offset to be written.
    end: u64,
    /// Records from the committed offset to the end.
    lag: u64,
}

/// Read the committed offsets of a group
#[utoipa::path(get, path = "/groups/{group}/topics/{topic}/offsets", tag = "topics", operation_id = "findOffsets",
    security(("bearer" = [])),
    params(
        ("group" = inline(GroupName), Path, description = "The consumer group"),
        ("topic" = String, Path, description = "The full name of the topic")),
    responses(
        (status = 200, description = "The offsets", body = GroupOffsetsBody<'_>),
        (status = 400, description = "The name of the group is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such topic or partition", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Not with this broker", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn find(context: RequestContext) -> RouteResult {
    let (group, topic) = (path_group(&context)?, context.path_parameter("topic"));
    let offsets = topic_reads(&context)?.offsets(&group, topic).await?;
    Ok(ok(&body(&group, topic, &offsets)))
}

/// Commit offsets of a group
///
/// The group continues at the cursor, also after a restart of the service. A commit never moves a group back without `reset`: the larger
/// offset counts, so a repeated or late commit changes nothing.
#[utoipa::path(post, path = "/groups/{group}/topics/{topic}/offsets", tag = "topics", operation_id = "commitOffsets",
    security(("bearer" = [])),
    params(
        ("group" = inline(GroupName), Path, description = "The consumer group"),
        ("topic" = String, Path, description = "The full name of the topic")),
    request_body(content = CommitBody<'_>, content_type = "application/json", example = json!({"cursor": "0:0"})),
    responses(
        (status = 200, description = "The offsets after the commit", body = GroupOffsetsBody<'_>),
        (status = 400, description = "The body or a name is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such topic or partition", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "An offset is beyond the end, the group is the service's own, or there are too many groups", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Not with this broker", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn commit(context: RequestContext) -> RouteResult {
    let (group, topic) = (path_group(&context)?, context.path_parameter("topic"));
    let (cursor, mode) = read_commit(&context.body)?;
    let offsets = topic_reads(&context)?.commit(&group, topic, &cursor, mode).await?;
    let body = body(&group, topic, &offsets);
    if mode == OffsetCommitMode::Reset || cursor == ReadStart::End {
        let (by, cursor) = (context.identity()?.subject.as_str(), body.cursor.as_str());
        tracing::info!(event = "group_offsets_reset", by, group, topic, cursor, "a group's offsets were reset");
    }
    Ok(ok(&body))
}

fn read_commit(body: &[u8]) -> Result<(ReadStart, OffsetCommitMode), Problem> {
    let names = json::member_names(body)?;
    reject_unknown_names(names.iter().map(String::as_str), &["cursor", "reset"])?;
    let body: CommitBody<'_> = json::object(body)?;
    let cursor = match body.cursor.value() {
        Some(JsonValue::Text(text)) => read_start("cursor", &text)?,
        Some(_) => return Err(Problem::field("cursor", "must be a string")),
        None => return Err(Problem::field("cursor", "is required")),
    };
    let mode = match body.reset.value() {
        None | Some(JsonValue::Bool(false)) => OffsetCommitMode::Forward,
        Some(JsonValue::Bool(true)) => OffsetCommitMode::Reset,
        Some(_) => return Err(Problem::field("reset", "must be true or false")),
    };
    Ok((cursor, mode))
}

fn body<'a>(group: &'a str, topic: &'a str, offsets: &GroupOffsets) -> GroupOffsetsBody<'a> {
    let partition = |(partition, (committed, kept)): (u32, (&Option<u64>, &Range<u64>))| {
        let (committed, first, end) = (*committed, kept.start, kept.end);
        PartitionOffsetBody { partition, committed, first, end, lag: end.saturating_sub(committed.unwrap_or(first)) }
    };
    let both = offsets.committed.iter().zip(&offsets.view.partitions);
    let partitions = (0..).zip(both).map(partition).collect();
    GroupOffsetsBody { group, topic, cursor: offsets.cursor().to_string(), partitions }
}
