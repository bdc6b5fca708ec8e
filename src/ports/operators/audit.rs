//! Operator and reason of an action.

/// Operator and reason of an action, stored in the audit row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Name of the operator.
    pub operator: String,
    /// Reason that the operator gave; may be empty.
    pub reason: String,
}

impl Audit {
    /// The failure reason of a row that an operator parks and that has no failure of its own.
    pub fn parked(&self) -> String {
        ::outbox::operator::parked_reason(&self.operator, &self.reason)
    }
}
