//! A list of orders that is read in parts, so that its size in memory does not grow with the orders.
use std::sync::Arc;

use domain::{Order, OrderId};
use ports::orders::{OrderFilter, PageStart};

use super::cached_reads::CachedReads;
use crate::error::QueryError;

/// Limit of the first part. Later ones follow the size of the orders: a store may read rows that it then leaves out.
const FIRST_PART: u32 = 16;

/// Orders that are read in parts, newest first. An order that changes meanwhile is listed once, in its state when it is read.
pub struct OrderList {
    reads: Arc<CachedReads>,
    filter: OrderFilter,
    from: PageStart,
    /// Orders that may still be listed.
    left: u32,
    part_limit: u32,
}

impl OrderList {
    /// At most `limit` orders; reads nothing yet.
    pub(crate) fn new(reads: Arc<CachedReads>, filter: OrderFilter, from: PageStart, limit: u32) -> Self {
        Self { reads, filter, from, left: limit, part_limit: FIRST_PART }
    }

    /// Reads the next part: at least one order, unless the list has ended. A part holds at most [`ports::orders::LIST_BYTES`] and
    /// one order. After an error the same part can be read again.
    pub async fn next_part(&mut self) -> Result<Vec<Order>, QueryError> {
        let limit = self.left.min(self.part_limit);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let part = self.reads.list(&self.filter, self.from, limit).await?;
        self.advance(part.len(), limit, part.last().map(|order| order.id));
        Ok(part)
    }

    /// Reads the orders up to the size of a part, or all that may be listed.
    pub(crate) async fn read_within_bytes(mut self) -> Result<Vec<Order>, QueryError> {
        let mut orders = Vec::new();
        loop {
            let limit = self.left.min(self.part_limit);
            let part = self.next_part().await?;
            let ended = part.len() < limit as usize || self.left == 0;
            orders.extend(part);
            if ended {
                return Ok(orders);
            }
        }
    }

    fn advance(&mut self, read: usize, limit: u32, last: Option<OrderId>) {
        let read = u32::try_from(read).unwrap_or(u32::MAX);
        self.left = if last.is_some() { self.left.saturating_sub(read) } else { 0 };
        self.from = last.map_or(self.from, PageStart::After);
        // A full part is a sign of small orders; a shorter one reached the size limit, or the end.
        self.part_limit = if read < limit { read.saturating_mul(2).max(1) } else { limit.saturating_mul(4) };
    }
}
