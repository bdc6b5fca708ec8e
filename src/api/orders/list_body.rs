//! A list of orders as JSON, written in pieces: its size in memory depends neither on the orders nor on the reader.
use std::mem;
use std::vec;

use actix_web::web::Bytes;
use app::error::QueryError;
use app::queries::OrderList;
use domain::Order;

use crate::orders::bodies::{ItemBody, OrderBody, PageBody};

/// Bytes after which a piece is complete: as much as actix buffers before it writes.
const PIECE: usize = 32 * 1024;

/// The JSON text of a list. It reads the next orders when its reader has taken what was written.
pub(crate) struct ListBody {
    /// The orders that are not read yet; `None` when all were read before.
    unread: Option<OrderList>,
    read: vec::IntoIter<Order>,
    writing: Option<PartialOrder>,
    /// Written, but not taken.
    buffer: Vec<u8>,
    /// Whether the next order follows another one.
    follows: bool,
    /// The text behind the orders; `None` once it is written.
    end: Option<String>,
}

/// An order whose beginning is written.
struct PartialOrder {
    order: Order,
    items_written: usize,
    /// The text behind the items.
    end: String,
}

impl ListBody {
    /// A bare array of the orders.
    pub(crate) fn array(orders: OrderList) -> Self {
        Self::new("[", Some(orders), Vec::new(), "]".to_owned())
    }

    /// A page: the orders are written into the empty list of `frame`.
    pub(crate) fn page(frame: &PageBody<'_>, unread: Option<OrderList>, read: Vec<Order>) -> Self {
        let (beginning, end) = split_behind(&json(frame), "\"orders\":[");
        Self::new(&beginning, unread, read, end)
    }

    fn new(beginning: &str, unread: Option<OrderList>, read: Vec<Order>, end: String) -> Self {
        let buffer = beginning.as_bytes().to_vec();
        Self { unread, read: read.into_iter(), writing: None, buffer, follows: false, end: Some(end) }
    }

    /// The next piece; `None` at the end. After an error the list cannot be completed.
    pub(crate) async fn next_piece(&mut self) -> Result<Option<Bytes>, QueryError> {
        while self.end.is_some() && self.buffer.len() < PIECE {
            let wrote = self.writing.as_mut().is_some_and(|partial| partial.write(&mut self.buffer));
            if !wrote {
                self.writing = None;
                self.begin_order().await?;
            }
        }
        Ok((!self.buffer.is_empty()).then(|| mem::take(&mut self.buffer).into()))
    }

    async fn begin_order(&mut self) -> Result<(), QueryError> {
        if self.read.len() == 0
            && let Some(unread) = &mut self.unread
        {
            self.read = unread.next_chunk().await?.into_iter();
        }
        let Some(order) = self.read.next() else {
            self.buffer.extend(self.end.take().unwrap_or_default().into_bytes());
            return Ok(());
        };
        if mem::replace(&mut self.follows, true) {
            self.buffer.push(b',');
        }
        let (beginning, end) = split_behind(&json(&OrderBody::without_items(&order)), "\"items\":[");
        self.buffer.extend(beginning.into_bytes());
        self.writing = Some(PartialOrder { order, items_written: 0, end });
        Ok(())
    }
}

impl PartialOrder {
    /// Writes the next item, or the end of the order; false when the order was complete before.
    fn write(&mut self, buffer: &mut Vec<u8>) -> bool {
        match self.order.items.as_slice().get(self.items_written) {
            Some(item) => {
                if self.items_written > 0 {
                    buffer.push(b',');
                }
                buffer.extend(json(&ItemBody::new(item)).into_bytes());
            }
            None if self.end.is_empty() => return false,
            None => buffer.extend(mem::take(&mut self.end).into_bytes()),
        }
        self.items_written += 1;
        true
    }
}

fn json(body: &impl serde::Serialize) -> String {
    serde_json::to_string(body).expect("bodies hold only texts, numbers, lists and objects")
}

/// The text up to the end of `member`, and the rest. No text of a client precedes it, which might contain the same characters.
fn split_behind(text: &str, member: &str) -> (String, String) {
    let at = text.find(member).map_or(text.len(), |start| start + member.len());
    (text[..at].to_owned(), text[at..].to_owned())
}
