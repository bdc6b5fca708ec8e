//! Path and query parameters of the order routes.
use domain::{OrderId, Status};

use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;

/// The requirement on a status.
pub(crate) const STATUS_MESSAGE: &str = "must be one of PENDING, PROCESSING, SHIPPED, DELIVERED, CANCELLED";

pub(crate) fn order_id(context: &RequestContext) -> Result<OrderId, Problem> {
    OrderId::parse(context.path_parameter("id")).ok_or_else(|| Problem::field("id", "must be a hyphenated UUID"))
}

pub(crate) fn status_filter(query: &Query<'_>) -> Result<Option<Status>, Problem> {
    let Some(name) = query.non_empty("status")? else { return Ok(None) };
    Status::parse(name).map(Some).ok_or_else(|| Problem::field("status", STATUS_MESSAGE))
}
