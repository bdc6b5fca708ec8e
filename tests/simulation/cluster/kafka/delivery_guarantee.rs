//! How the relay of a run publishes.

/// The two settings of `broker.delivery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    /// In transactions, with watermarks and fences.
    ExactlyOnce,
    /// Without transactions: an open batch after a crash is published again.
    AtLeastOnce,
}
