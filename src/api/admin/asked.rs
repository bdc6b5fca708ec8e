//! What every redrive is asked, of parked rows and of dead letters alike.
use std::time::Duration;

use app::port_types::FailureType;
use app::units::duration;

use super::outbox::reason_of;
use crate::body::object;
use crate::call::Call;
use crate::error::Problem;
use crate::json::Json;
use crate::query::{Query, all_known};

/// How many of one redrive unless asked otherwise.
const LIMIT_DEFAULT: u32 = 1_000;
/// Most of one redrive: one statement must stay short.
pub(crate) const LIMIT_MAX: u32 = 10_000;
/// What a way to fail must be.
pub(super) const BAD_FAILURE: &str = "must be one of NETWORK, TIMEOUT, VALIDATION, SYSTEM";
/// What an age must be.
pub(super) const BAD_AGE: &str = "must be a duration such as 250ms, 5s or 1h";

/// Members of a redrive's body.
pub(super) struct Asked {
    pub(super) failure_type: Option<FailureType>,
    pub(super) older_than: Option<Duration>,
    pub(super) limit: u32,
    pub(super) dry_run: bool,
    pub(super) reason: String,
}

impl Asked {
    /// Its members, beside those of a redrive's own.
    pub(super) const MEMBERS: [&str; 5] = ["failureType", "olderThan", "limit", "dryRun", "reason"];

    pub(super) fn read(body: &Json<'_>, query: &Query<'_>) -> Result<Self, Problem> {
        let failure_type = chosen(body, "failureType", FailureType::parse, BAD_FAILURE)?;
        let older_than = chosen(body, "olderThan", |text| duration(text).ok(), BAD_AGE)?;
        let dry_run = dry_run(body, query)?;
        Ok(Self { failure_type, older_than, limit: limit(body)?, dry_run, reason: reason_of(body)? })
    }
}

/// The body of an operator's request; none is an empty object. A member that is not known is refused: a filter that is misspelt must not
/// let everything through.
pub(super) fn body<'a>(call: &'a Call, known: &[&str]) -> Result<Json<'a>, Problem> {
    if call.body.is_empty() {
        return Ok(Json::Object(Vec::new()));
    }
    let body = object(&call.body)?;
    if let Json::Object(members) = &body {
        all_known(members.iter().map(|(name, _)| &**name), known)?;
    }
    Ok(body)
}

/// A text that a store can hold and a log can show.
pub(super) fn plain(text: &str) -> Option<String> {
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// What such a text must be.
pub(super) const NOT_PLAIN: &str = "must be text without control characters";

/// A text of the body, read as something; null is as good as none.
pub(super) fn chosen<T>(
    body: &Json<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    message: &'static str,
) -> Result<Option<T>, Problem> {
    match body.member(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) => parse(text).map(Some).ok_or_else(|| Problem::field(name, message)),
        Some(_) => Err(Problem::field(name, "must be a string")),
    }
}

fn limit(body: &Json<'_>) -> Result<u32, Problem> {
    let bad = || Problem::field("limit", "must be an integer from 1 to 10000");
    match body.member("limit") {
        None | Some(Json::Null) => Ok(LIMIT_DEFAULT),
        Some(Json::Number(number)) => {
            number.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(bad)
        }
        Some(_) => Err(bad()),
    }
}

/// In the body or in the query string; where both speak, the body does.
pub(super) fn dry_run(body: &Json<'_>, query: &Query<'_>) -> Result<bool, Problem> {
    let wrong = || Problem::field("dryRun", "must be true or false");
    match body.member("dryRun") {
        Some(Json::Bool(dry_run)) => return Ok(*dry_run),
        None | Some(Json::Null) => {}
        Some(_) => return Err(wrong()),
    }
    match query.filled("dryRun")? {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(wrong()),
    }
}
