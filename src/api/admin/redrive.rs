//! `POST /admin/outbox/redrive`: makes parked rows due again. A dry run is the default.
use app::port_types::{RedriveMode, RowFilter};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::dead_letters::audit;
use crate::admin::filters::{KEY_MESSAGE, TEXT_MESSAGE, parse_key, printable};
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body::{self, RedriveMembers, RedriveSettings, paced_redrive, text};
use crate::admin::paced_redrive::Pace;
use crate::error::ProblemBody;
use crate::openapi::schemas::{AgeText, EventKeyText, FailureTypeName, PrintableText, ReasonText};
use crate::request::context::RequestContext;
use crate::request::json::JsonMember;
use crate::request::response::{RouteResult, ok};

/// The parked rows to redrive.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Redrive)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedriveBody<'a> {
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<PrintableText>, example = "ORDER_CREATED")]
    r#type: JsonMember<'a>,
    /// Only rows of this key, such as an order id.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<EventKeyText>)]
    key: JsonMember<'a>,
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<FailureTypeName>, example = "NETWORK")]
    failure_type: JsonMember<'a>,
    /// Only rows that are at least this old: `250ms`, `5s`, `1h`.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<AgeText>, example = "1h")]
    older_than: JsonMember<'a>,
    /// The maximum number of rows, 1000 by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<u32>, minimum = 1, maximum = 10000, example = 1000)]
    limit: JsonMember<'a>,
    /// Most per second; as fast as possible without it. The request then changes what fits into four fifths of `http.request_timeout`: repeat
    /// it while `redriven` is less than `matched`.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<u32>, minimum = 1, maximum = 10000, example = 100)]
    rate: JsonMember<'a>,
    /// Only count the rows; true by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<bool>, default = true, example = false)]
    dry_run: JsonMember<'a>,
    /// Stored in the audit record.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<ReasonText>, example = "the broker is back")]
    reason: JsonMember<'a>,
}

/// The result of a redrive of parked rows.
#[derive(Serialize, ToSchema)]
#[schema(as = Redriven)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowsRedriven {
    #[schema(example = false)]
    dry_run: bool,
    /// The parked rows that match the filter; unless it was a dry run, the redriven ones.
    #[schema(example = 3)]
    matched: u64,
    /// The rows that were made due.
    #[schema(example = 3)]
    redriven: u64,
}

/// Redrive parked outbox rows
#[utoipa::path(post, path = "/admin/outbox/redrive", tag = "admin", operation_id = "redriveOutbox",
    security(("bearer" = [])),
    params(("dryRun" = Option<bool>, Query, description = "As in the body; both must be equal")),
    request_body(content = Option<RedriveBody<'_>>, content_type = "application/json",
        example = json!({"failureType": "NETWORK", "dryRun": false, "reason": "the broker is back"})),
    responses(
        (status = 200, description = "The number of rows", body = RowsRedriven),
        (status = 400, description = "Not a valid filter", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let (query, body): (_, RedriveBody<'_>) = (context.query(), operator_body::read(&context)?);
    query.reject_unknown(&["dryRun"])?;
    let RedriveBody { r#type, key, failure_type, older_than, limit, rate, dry_run, reason } = body;
    let filter = RowFilter {
        key: text(key, "key", parse_key, KEY_MESSAGE)?,
        event_type: text(r#type, "type", printable, TEXT_MESSAGE)?,
        ..RowFilter::default()
    };
    let members = RedriveMembers { failure_type, older_than, limit, rate, dry_run, reason };
    let RedriveSettings { failure_type, older_than, limit, rate, dry_run, reason } =
        RedriveSettings::read(&members, &query)?;
    let filter = RowFilter { failure_type, older_than, ..filter };
    let (operations, audit) = (&context.state.operations, audit(&context, reason)?);
    if let Some(rate) = rate.filter(|_| !dry_run) {
        let matched = operations.redrive(&filter, limit, RedriveMode::DryRun, &audit.operator, "").await?;
        let redrive = paced_redrive(&context, matched.min(limit.into()), Pace::from_rate(Some(rate)));
        let result = redrive.rows(operations, &filter, &audit).await;
        log_if_changed(&context.state, &result, &audit, "redrive", "outbox");
        return Ok(ok(&RowsRedriven { dry_run, matched, redriven: result? }));
    }
    let result =
        operations.redrive(&filter, limit, RedriveMode::from_dry_run(dry_run), &audit.operator, &audit.reason).await;
    if !dry_run {
        log_if_changed(&context.state, &result, &audit, "redrive", "outbox");
    }
    let rows = result?;
    Ok(ok(&RowsRedriven { dry_run, matched: rows, redriven: if dry_run { 0 } else { rows } }))
}
