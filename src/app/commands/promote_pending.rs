//! Promotes PENDING orders to PROCESSING: bounded pages, one transaction per order.
use domain::{OrderId, Status};

use super::context::CommandContext;
use crate::dispatch::{ChangeOrder, ChangePreconditions, Viewer};
use crate::error::CommandError;

/// Lists one page of PENDING orders, oldest first and after `after`. Pages continue after an id, so that an order whose promotion fails is
/// not listed again in the same run.
pub async fn page(context: &CommandContext, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, CommandError> {
    Ok(context.orders.oldest(Status::Pending, after, limit).await?)
}

/// The command that promotes one order. It passes the same checks as a client's command.
pub fn promotion(id: OrderId) -> ChangeOrder {
    ChangeOrder {
        id,
        to: Status::Processing,
        viewer: Viewer::Admin,
        preconditions: ChangePreconditions::default(),
        trace: None,
        span: None,
        request_id: None,
    }
}
