//! Moves orders that wait in PENDING on to PROCESSING: bounded pages, one transaction per order.
use domain::{OrderId, Status};

use super::context::CommandContext;
use crate::dispatch::{ChangeOrder, ChangePreconditions, Viewer};
use crate::error::CommandError;

/// One page of waiting orders, oldest first, strictly after `after`. Walking by place and not by page number,
/// an order that refuses is passed and not met again for ever.
pub async fn page(desk: &CommandContext, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, CommandError> {
    Ok(desk.orders.oldest(Status::Pending, after, limit).await?)
}

/// The command that promotes one order: the same road, rules and regional checks as any client's.
pub fn promotion(id: OrderId) -> ChangeOrder {
    ChangeOrder {
        id,
        to: Status::Processing,
        viewer: Viewer::Admin,
        preconditions: ChangePreconditions::default(),
        trace: None,
    }
}
