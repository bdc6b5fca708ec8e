//! `POST /admin/outbox/redrive`: parked rows go on their way again; a dry run unless told otherwise.
use std::time::Duration;

use app::seen::{FailureType, RowFilter};
use domain::OrderId;
use serde::Serialize;
use utoipa::ToSchema;

use super::outbox::reason_of;
use crate::body::object;
use crate::call::{Call, ok};
use crate::error::{Envelope, Problem};
use crate::json::Json;
use crate::query::Query;
use crate::route::Answer;

/// Rows of one redrive unless asked otherwise.
const LIMIT_DEFAULT: u32 = 1_000;
/// Most rows of one redrive: one statement must stay short.
const LIMIT_MAX: u32 = 10_000;

/// Which parked rows to send on their way.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used; read() reads the body")]
pub(crate) struct Redrive {
    #[schema(required = false, example = "ORDER_CREATED")]
    r#type: String,
    /// Rows of this order.
    #[schema(required = false, format = "uuid")]
    key: String,
    /// NETWORK, TIMEOUT, VALIDATION or SYSTEM
    #[schema(required = false, example = "NETWORK")]
    failure_type: String,
    /// Written at least so long ago: `250ms`, `5s`, `1h`.
    #[schema(required = false, example = "1h")]
    older_than: String,
    /// Most rows; 1000 when left out.
    #[schema(required = false, minimum = 1, maximum = 10000, example = 1000)]
    limit: u32,
    /// Only count; true when left out.
    #[schema(required = false, default = true, example = false)]
    dry_run: bool,
    /// Kept with what was done.
    #[schema(required = false, max_length = 1000, example = "the broker is back")]
    reason: String,
}

/// What a redrive did, or would do.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Redriven {
    #[schema(example = false)]
    dry_run: bool,
    /// Parked rows that the filter lets through; not more than were redriven, unless it was a dry run.
    #[schema(example = 3)]
    matched: u64,
    /// Rows that were made due.
    #[schema(example = 3)]
    redriven: u64,
}

struct Order {
    filter: RowFilter,
    limit: u32,
    dry_run: bool,
    reason: String,
}

/// Send parked rows on their way
#[utoipa::path(post, path = "/admin/outbox/redrive", tag = "admin", operation_id = "redriveOutbox",
    security(("bearer" = [])),
    params(("dryRun" = Option<bool>, Query, description = "As in the body, which counts where both are given")),
    request_body(content = Option<Redrive>, content_type = "application/json",
        example = json!({"failureType": "NETWORK", "dryRun": false, "reason": "the broker is back"})),
    responses(
        (status = 200, description = "How many", body = Redriven),
        (status = 400, description = "Not a valid filter", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive(call: Call) -> Answer {
    let query = call.query();
    let Order { filter, limit, dry_run, reason } = if call.body.is_empty() {
        read(&Json::Object(Vec::new()), &query)?
    } else {
        read(&object(&call.body)?, &query)?
    };
    let who = call.identity()?.subject.as_str();
    let rows = call.state.operations.redrive(&filter, limit, !dry_run, who, &reason).await?;
    Ok(ok(&Redriven { dry_run, matched: rows, redriven: if dry_run { 0 } else { rows } }))
}

fn read(body: &Json<'_>, query: &Query<'_>) -> Result<Order, Problem> {
    let kind = text(body, "type")?.map(str::to_owned);
    let key = chosen(body, "key", OrderId::parse, "must be a hyphenated UUID")?;
    let failure = "must be one of NETWORK, TIMEOUT, VALIDATION, SYSTEM";
    let failure_type = chosen(body, "failureType", FailureType::parse, failure)?;
    let older_than = chosen(body, "olderThan", duration, "must be a duration such as 250ms, 5s or 1h")?;
    let limit = match body.member("limit") {
        None | Some(Json::Null) => LIMIT_DEFAULT,
        Some(Json::Number(number)) => {
            number.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n)).ok_or_else(bad_limit)?
        }
        Some(_) => return Err(bad_limit()),
    };
    let dry_run = dry_run(body, query)?;
    let filter = RowFilter { kind, key, failure_type, older_than, ..RowFilter::default() };
    Ok(Order { filter, limit, dry_run, reason: reason_of(body)? })
}

/// In the body or in the query string; where both speak, the body does.
fn dry_run(body: &Json<'_>, query: &Query<'_>) -> Result<bool, Problem> {
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

fn bad_limit() -> Problem {
    Problem::field("limit", "must be an integer from 1 to 10000")
}

fn text<'a>(body: &'a Json<'_>, name: &str) -> Result<Option<&'a str>, Problem> {
    match body.member(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Problem::field(name, "must be a string")),
    }
}

fn chosen<T>(
    body: &Json<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    message: &'static str,
) -> Result<Option<T>, Problem> {
    let Some(text) = text(body, name)? else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| Problem::field(name, message))
}

/// `250ms`, `5s`, `2m`, `1h`, `7d`, or a bare `0`.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    // A century is as good as for ever, and fits into every store's intervals.
    let limit = 36_525 * 86_400_000;
    number.parse::<u64>().ok()?.checked_mul(millis).map(|millis| Duration::from_millis(millis.min(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_the_configuration() {
        let ms = |millis| Some(Duration::from_millis(millis));
        assert_eq!(duration("0"), ms(0));
        assert_eq!(duration("250ms"), ms(250));
        assert_eq!(duration("5s"), ms(5_000));
        assert_eq!(duration("1h"), ms(3_600_000));
        for bad in ["", "5", "s", "-5s", "1.5s", "5 s", "1y", "99999999999999999999s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
