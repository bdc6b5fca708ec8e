//! `GET /admin/audit`: what operators did to outbox rows.
use app::contract::rfc3339;
use app::operators::outbox::ROWS_MAX;
use app::port_types::{AuditEntry, AuditFilter, OperatorAction};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::filters::{TEXT_MESSAGE, parameter, printable};
use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{AnyInteger, OperatorActionFilter, PrintableText};
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::{RouteResult, ok};

/// Entries of a page unless `limit` is given.
const ENTRIES_DEFAULT: i64 = 100;

/// A page of the audit table.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub(crate) struct AuditPageBody {
    entries: Vec<AuditEntryBody>,
    /// `after` of the next page; null at the end.
    next: Option<i64>,
}

/// An operator's action on one outbox row.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditEntryBody {
    /// Grows in the order of the actions.
    #[schema(minimum = 0, example = 7)]
    id: i64,
    #[schema(format = DateTime)]
    at: String,
    /// retry, park or redrive
    #[schema(example = "retry")]
    action: String,
    /// The id of the outbox row that the action changed.
    #[schema(minimum = 0, example = 42)]
    row: Option<i64>,
    /// The operator: the subject of a token, or the user name of the command line.
    #[schema(example = "root")]
    by: String,
    /// Empty if the operator gave none.
    #[schema(example = "the broker is back")]
    reason: String,
}

impl From<&AuditEntry> for AuditEntryBody {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: rfc3339(entry.at),
            action: entry.action.clone(),
            row: entry.row,
            by: entry.audit.operator.clone(),
            reason: entry.audit.reason.clone(),
        }
    }
}

/// List what operators did
///
/// An entry for each outbox row that an operator retried, parked or redrove, through any interface.
#[utoipa::path(get, path = "/admin/audit", tag = "admin", operation_id = "listAudit", security(("bearer" = [])),
    params(
        ("row" = inline(Option<AnyInteger>), Query, description = "Only entries of this outbox row"),
        ("action" = inline(Option<OperatorActionFilter>), Query, description = "Only entries of this action"),
        ("by" = inline(Option<PrintableText>), Query, description = "Only entries of the operator with exactly this name"),
        ("after" = inline(Option<AnyInteger>), Query, description = "`next` of the previous page"),
        ("limit" = inline(Option<AnyInteger>), Query, description = "Clamped to 1…500; 100 by default")),
    responses(
        (status = 200, description = "Entries, newest first", body = AuditPageBody),
        (status = 400, description = "A parameter is not valid", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let query = context.query();
    query.reject_unknown(&["row", "action", "by", "after", "limit"])?;
    let filter = audit_filter(&query)?;
    let limit = query.integer("limit")?.unwrap_or(ENTRIES_DEFAULT).clamp(1, i64::from(ROWS_MAX)) as u32;
    let page = context.state.operations.audit_entries(&filter, limit).await?;
    Ok(ok(&AuditPageBody { entries: page.entries.iter().map(AuditEntryBody::from).collect(), next: page.next }))
}

/// The filter in a query; the console's pages read it too.
pub(crate) fn audit_filter(query: &Query<'_>) -> Result<AuditFilter, Problem> {
    let number = |name: &'static str| query.non_empty(name)?.map_or(Ok(None), |_| query.integer(name));
    Ok(AuditFilter {
        row: number("row")?,
        action: parameter(query, "action", OperatorAction::parse, "must be one of retry, park, redrive")?,
        operator: parameter(query, "by", printable, TEXT_MESSAGE)?,
        after: number("after")?,
    })
}
