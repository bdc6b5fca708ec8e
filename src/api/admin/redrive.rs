//! `POST /admin/outbox/redrive`: parked rows go on their way again; a dry run unless told otherwise.
use app::port_types::RowFilter;
use domain::OrderId;
use serde::Serialize;
use utoipa::ToSchema;

use super::asked::{Asked, NOT_PLAIN, body, chosen, plain};
use crate::call::{Call, ok};
use crate::error::Envelope;
use crate::route::Answer;

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
    let (query, body) = (call.query(), body(&call, &[&["key", "type"], &Asked::MEMBERS[..]].concat())?);
    query.known(&["dryRun"])?;
    let filter = RowFilter {
        key: chosen(&body, "key", OrderId::parse, "must be a hyphenated UUID")?,
        kind: chosen(&body, "type", plain, NOT_PLAIN)?,
        ..RowFilter::default()
    };
    let Asked { failure_type, older_than, limit, dry_run, reason } = Asked::read(&body, &query)?;
    let filter = RowFilter { failure_type, older_than, ..filter };
    let who = call.identity()?.subject.as_str();
    let rows = call.state.operations.redrive(&filter, limit, !dry_run, who, &reason).await?;
    Ok(ok(&Redriven { dry_run, matched: rows, redriven: if dry_run { 0 } else { rows } }))
}
