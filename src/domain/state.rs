//! The status of an order: five states and the table of legal transitions between them.
use std::fmt;

/// State of an order in its life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Placed; work has not begun. The only state from which an order can be cancelled.
    Pending,
    /// Work on the order has begun.
    Processing,
    /// On its way to the customer.
    Shipped,
    /// Received by the customer. Final.
    Delivered,
    /// Cancelled before work began. Final.
    Cancelled,
}

impl Status {
    /// Every state, in life cycle order.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::Processing, Status::Shipped, Status::Delivered, Status::Cancelled];

    /// The states that may follow this one.
    pub fn successors(self) -> &'static [Status] {
        use Status::{Cancelled, Delivered, Pending, Processing, Shipped};
        match self {
            Pending => &[Processing, Shipped, Delivered, Cancelled],
            Processing => &[Shipped, Delivered],
            Shipped => &[Delivered],
            Delivered | Cancelled => &[],
        }
    }

    /// Whether the transition is legal. No state may follow itself.
    pub fn may_become(self, to: Status) -> bool {
        self.successors().contains(&to)
    }

    /// Whether no other state may follow.
    pub fn is_final(self) -> bool {
        self.successors().is_empty()
    }

    /// The name in events, HTTP bodies and stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Processing => "PROCESSING",
            Status::Shipped => "SHIPPED",
            Status::Delivered => "DELIVERED",
            Status::Cancelled => "CANCELLED",
        }
    }

    /// Parses a name that [`Status::as_str`] returns; case-sensitive.
    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_transitions_are_those_of_the_contract() {
        let legal: Vec<(Status, Status)> = Status::ALL
            .into_iter()
            .flat_map(|from| Status::ALL.into_iter().map(move |to| (from, to)))
            .filter(|(from, to)| from.may_become(*to))
            .collect();

        use Status::*;
        assert_eq!(
            legal,
            [
                (Pending, Processing),
                (Pending, Shipped),
                (Pending, Delivered),
                (Pending, Cancelled),
                (Processing, Shipped),
                (Processing, Delivered),
                (Shipped, Delivered),
            ]
        );
    }

    #[test]
    fn only_exact_status_names_are_parsed() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("pending"), None);
        assert_eq!(Status::parse(""), None);
    }
}
