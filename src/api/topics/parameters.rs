//! Path and query parameters of the routes that read topics and commit offsets.
use std::sync::Arc;
use std::time::Duration;

use app::consume::topic_cursor::ReadStart;
use app::consume::topic_reads::{GROUP_MAX, ReadRequest, TopicReads, is_group_name};
use app::units::duration;

use crate::error::Problem;
use crate::http::options::TopicReadLimits;
use crate::request::context::RequestContext;
use crate::request::query::Query;

/// Records of a response unless `limit` is given.
const LIMIT_DEFAULT: u32 = 500;
/// Most partitions of a topic that the configuration accepts.
const PARTITIONS_MAX: usize = 10_000;

/// How much one request reads, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAmount {
    /// The parameter `limit`, clamped; `None` when it is absent.
    pub(crate) limit: Option<u32>,
    /// The parameter `wait`, clamped.
    pub(crate) wait: Duration,
}

impl ReadAmount {
    pub(crate) fn read(query: &Query<'_>, limits: &TopicReadLimits) -> Result<Self, Problem> {
        let most = i64::from(limits.records_max);
        let limit = query.integer("limit")?.map(|limit| limit.clamp(1, most) as u32);
        let wait = match query.non_empty("wait")? {
            None => Duration::ZERO,
            Some(text) => duration(text).map_err(|expected| Problem::field("wait", format!("must be {expected}")))?,
        };
        Ok(Self { limit, wait: wait.min(limits.wait_max) })
    }

    /// The records of a response that ends by itself.
    pub(crate) fn page(&self, limits: &TopicReadLimits) -> u32 {
        self.limit.unwrap_or(LIMIT_DEFAULT).min(limits.records_max)
    }
}

/// The use cases that read topics.
///
/// # Errors
/// 501 with another broker than the embedded one.
pub(crate) fn topic_reads(context: &RequestContext) -> Result<Arc<TopicReads>, Problem> {
    context.state.topic_reads.clone().ok_or_else(Problem::topics_not_readable)
}

/// What a request reads, and where it begins. `resume`, a non-empty header `Last-Event-ID`, takes precedence over `after`.
pub(crate) fn read_request(
    context: &RequestContext,
    query: &Query<'_>,
    resume: Option<&str>,
) -> Result<ReadRequest, Problem> {
    let group = query.non_empty("group")?.map(|name| group_name("group", name)).transpose()?;
    let start = match resume {
        Some(resume) => Some(read_start("Last-Event-ID", resume)?),
        None => query.non_empty("after")?.map(|text| read_start("after", text)).transpose()?,
    };
    let partitions = query.non_empty("partitions")?.map(partition_list).transpose()?;
    Ok(ReadRequest { topic: context.path_parameter("topic").to_owned(), group, start, partitions })
}

/// The group in the path.
pub(crate) fn path_group(context: &RequestContext) -> Result<String, Problem> {
    group_name("group", context.path_parameter("group"))
}

pub(crate) fn read_start(field: &str, text: &str) -> Result<ReadStart, Problem> {
    text.parse()
        .map_err(|invalid: app::consume::topic_cursor::InvalidCursor| Problem::field(field, invalid.to_string()))
}

fn group_name(field: &str, text: &str) -> Result<String, Problem> {
    if is_group_name(text) {
        return Ok(text.to_owned());
    }
    let message = format!("must have 1 to {GROUP_MAX} letters, digits, dots, underscores or hyphens");
    Err(Problem::field(field, message))
}

fn partition_list(text: &str) -> Result<Vec<u32>, Problem> {
    let numbers: Option<Vec<u32>> = text.split(',').take(PARTITIONS_MAX + 1).map(|part| part.parse().ok()).collect();
    let mut numbers = numbers
        .filter(|numbers| numbers.len() <= PARTITIONS_MAX)
        .ok_or_else(|| Problem::field("partitions", "must be partition numbers separated by commas"))?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}
