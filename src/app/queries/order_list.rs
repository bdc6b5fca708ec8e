//! A list of orders that is read in chunks, so that its size in memory does not grow with the orders.
use std::sync::Arc;

use domain::{Order, OrderId};
use ports::orders::{OrderFilter, PageStart};

use super::cached_reads::CachedReads;
use crate::error::QueryError;

/// Limit of the first chunk. The limits of later chunks follow the size of the orders: a store may read rows that it then leaves out.
const FIRST_CHUNK: u32 = 16;

/// Orders that are read in chunks, newest first. An order that changes meanwhile is listed once, in its state when it is read.
pub struct OrderList {
    reads: Arc<CachedReads>,
    filter: OrderFilter,
    from: PageStart,
    /// Orders that may still be listed.
    left: u32,
    chunk_limit: u32,
}

impl OrderList {
    /// At most `limit` orders; reads nothing yet.
    pub(crate) fn new(reads: Arc<CachedReads>, filter: OrderFilter, from: PageStart, limit: u32) -> Self {
        Self { reads, filter, from, left: limit, chunk_limit: FIRST_CHUNK }
    }

    /// Reads the next chunk: at least one order, unless the list has ended. A chunk holds at most [`ports::orders::LIST_BYTES`] and
    /// one order. After an error, or if the call is dropped, the next call reads the same chunk.
    pub async fn next_chunk(&mut self) -> Result<Vec<Order>, QueryError> {
        let limit = self.left.min(self.chunk_limit);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let chunk = self.reads.list(&self.filter, self.from, limit).await?;
        self.advance(chunk.len(), limit, chunk.last().map(|order| order.id));
        Ok(chunk)
    }

    /// Reads the orders up to the size of a chunk, or all that may be listed.
    pub(crate) async fn read_within_bytes(mut self) -> Result<Vec<Order>, QueryError> {
        let mut orders = Vec::new();
        loop {
            let limit = self.left.min(self.chunk_limit);
            let chunk = self.next_chunk().await?;
            let ended = chunk.len() < limit as usize || self.left == 0;
            orders.extend(chunk);
            if ended {
                return Ok(orders);
            }
        }
    }

    fn advance(&mut self, read: usize, limit: u32, last: Option<OrderId>) {
        let read = u32::try_from(read).unwrap_or(u32::MAX);
        self.left = if last.is_some() { self.left.saturating_sub(read) } else { 0 };
        self.from = last.map_or(self.from, PageStart::After);
        // A full chunk is a sign of small orders; a shorter one reached the size limit, or the end.
        self.chunk_limit = if read < limit { read.saturating_mul(2).max(1) } else { limit.saturating_mul(4) };
    }
}
