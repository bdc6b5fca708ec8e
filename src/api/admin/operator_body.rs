//! The JSON bodies of operator commands, and the settings that both kinds of redrive share.
use std::time::Duration;

use app::port_types::FailureType;
use app::units::duration;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::admin::filters::{AGE_MESSAGE, FAILURE_TYPE_MESSAGE};
use crate::admin::paced_redrive::{Pace, PacedRedrive};
use crate::error::Problem;
use crate::openapi::schemas::ReasonText;
use crate::request::context::RequestContext;
use crate::request::json::{self, JsonMember, JsonValue};
use crate::request::query::{Query, reject_unknown_names};

/// Redriven records unless the body sets a limit.
pub(crate) const LIMIT_DEFAULT: u32 = 1_000;
/// Upper bound of one redrive, which keeps its statement short, and of its rate.
pub(crate) const LIMIT_MAX: u32 = 10_000;
/// Message of a limit or rate that is not valid.
pub(crate) const COUNT_MESSAGE: &str = "must be an integer from 1 to 10000";
/// Characters of a reason.
pub(crate) const REASON_MAX: usize = 1_000;

/// The reason of an operator's command.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Reason)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonBody<'a> {
    /// Stored in the audit record.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<ReasonText>, example = "the broker is back")]
    pub(crate) reason: JsonMember<'a>,
}

/// The members that both kinds of redrive have in common.
pub(crate) struct RedriveMembers<'a> {
    pub(crate) failure_type: JsonMember<'a>,
    pub(crate) older_than: JsonMember<'a>,
    pub(crate) limit: JsonMember<'a>,
    pub(crate) rate: JsonMember<'a>,
    pub(crate) dry_run: JsonMember<'a>,
    pub(crate) reason: JsonMember<'a>,
}

/// [`RedriveMembers`] parsed, with their defaults.
pub(crate) struct RedriveSettings {
    pub(crate) failure_type: Option<FailureType>,
    pub(crate) older_than: Option<Duration>,
    pub(crate) limit: u32,
    /// Most per second; as fast as possible without it.
    pub(crate) rate: Option<u32>,
    pub(crate) dry_run: bool,
    pub(crate) reason: String,
}

impl RedriveSettings {
    pub(crate) fn read(members: &RedriveMembers<'_>, query: &Query<'_>) -> Result<Self, Problem> {
        Ok(Self {
            failure_type: text(members.failure_type, "failureType", FailureType::parse, FAILURE_TYPE_MESSAGE)?,
            older_than: text(members.older_than, "olderThan", |text: &str| duration(text).ok(), AGE_MESSAGE)?,
            dry_run: dry_run(members.dry_run, query)?,
            limit: count(members.limit, "limit")?.unwrap_or(LIMIT_DEFAULT),
            rate: count(members.rate, "rate")?,
            reason: reason(members.reason)?,
        })
    }
}

/// The body of an operator's command; an absent body has no members. The schema's properties are the known members: others are refused,
/// because a misspelt filter must not select every row.
pub(crate) fn read<'a, T: Default + Deserialize<'a> + ToSchema>(context: &'a RequestContext) -> Result<T, Problem> {
    if context.body.is_empty() {
        return Ok(T::default());
    }
    let names = json::member_names(&context.body)?;
    if let RefOr::T(Schema::Object(object)) = T::schema() {
        let known: Vec<&str> = object.properties.keys().map(String::as_str).collect();
        reject_unknown_names(names.iter().map(String::as_str), &known)?;
    }
    json::object(&context.body)
}

/// A text member parsed by `parse`; `null` counts as absent.
pub(crate) fn text<T>(
    member: JsonMember<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    message: &'static str,
) -> Result<Option<T>, Problem> {
    match member.non_null() {
        None => Ok(None),
        Some(JsonValue::Text(text)) => parse(&text).map(Some).ok_or_else(|| Problem::field(name, message)),
        Some(_) => Err(Problem::field(name, "must be a string")),
    }
}

/// The member `dryRun`, or the query parameter; true when both are absent.
///
/// # Errors
/// 400 also when the two differ: a client that meant a dry run must not change anything.
pub(crate) fn dry_run(member: JsonMember<'_>, query: &Query<'_>) -> Result<bool, Problem> {
    let invalid = || Problem::field("dryRun", "must be true or false");
    let in_body = match member.non_null() {
        Some(JsonValue::Bool(dry_run)) => Some(dry_run),
        None => None,
        Some(_) => return Err(invalid()),
    };
    let in_query = match query.get("dryRun")? {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(invalid()),
    };
    match (in_body, in_query) {
        (Some(body), Some(query)) if body != query => {
            Err(Problem::field("dryRun", "differs in the body and in the query"))
        }
        (body, query) => Ok(body.or(query).unwrap_or(true)),
    }
}

/// The member `reason`; empty when it is absent.
pub(crate) fn reason(member: JsonMember<'_>) -> Result<String, Problem> {
    match member.non_null() {
        None => Ok(String::new()),
        Some(JsonValue::Text(text)) if is_reason(&text) => Ok(text.into_owned()),
        Some(_) => {
            Err(Problem::field("reason", "must be a string of at most 1000 characters, none of them a zero byte"))
        }
    }
}

/// Line breaks are allowed; stores cannot hold a zero byte in a text.
pub(crate) fn is_reason(text: &str) -> bool {
    text.chars().count() <= REASON_MAX && !text.contains('\0')
}

fn count(member: JsonMember<'_>, name: &str) -> Result<Option<u32>, Problem> {
    let invalid = || Problem::field(name, COUNT_MESSAGE);
    match member.non_null() {
        None => Ok(None),
        Some(JsonValue::Number(number)) => parse_count(number).map(Some).ok_or_else(invalid),
        Some(_) => Err(invalid()),
    }
}

/// A limit or a rate: 1…[`LIMIT_MAX`].
pub(crate) fn parse_count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| (1..=LIMIT_MAX).contains(count))
}

/// A redrive within one request: it ends within four fifths of the time that the request has, so that it is answered in time.
pub(crate) fn paced_redrive(context: &RequestContext, limit: u64, pace: Pace) -> PacedRedrive<'static> {
    let time_max = Some(context.time_limit * 4 / 5);
    PacedRedrive { limit, pace, time_max, progress: &|_| {} }
}
