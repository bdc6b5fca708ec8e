//! The life of an order: the five states of the State pattern, and the table of legal moves.
use std::fmt;

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Placed, not yet worked on. The only state that can be cancelled.
    Pending,
    /// Being worked on.
    Processing,
    /// On its way.
    Shipped,
    /// Arrived. Final.
    Delivered,
    /// Withdrawn. Final.
    Cancelled,
}

impl Status {
    /// Every state, in the order of a life.
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

    /// Whether the move is legal. Standing still is no move.
    pub fn may_become(self, to: Status) -> bool {
        self.successors().contains(&to)
    }

    /// Whether nothing may follow.
    pub fn is_final(self) -> bool {
        self.successors().is_empty()
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Processing => "PROCESSING",
            Status::Shipped => "SHIPPED",
            Status::Delivered => "DELIVERED",
            Status::Cancelled => "CANCELLED",
        }
    }

    /// Reads the name on the wire, capitals only.
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
    fn the_table_of_moves_is_the_contracts() {
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
    fn names_read_back_and_nothing_else_does() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("pending"), None);
        assert_eq!(Status::parse(""), None);
    }
}
