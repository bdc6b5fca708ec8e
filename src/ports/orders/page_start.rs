//! PageStart: the start of a page of orders, an offset or the last id of the page before.
use domain::OrderId;

/// Start of a page. Orders are listed newest first by (created_at, id); ids carry created_at, so an id alone is a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageStart {
    /// Skip this many orders.
    Offset(u64),
    /// Begin with the first order older than this id; the id need not exist.
    After(OrderId),
}
