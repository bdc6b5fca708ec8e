//! Operator and reason of an action, and the audit table that keeps them.
use domain::Timestamp;

use crate::outbox::RowId;

pub use ::outbox::OperatorAction;

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

/// Id of an audit entry; ids grow in the order in which the entries were written.
pub type AuditId = i64;

/// One entry of the audit table: an operator's action on one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Id of the entry.
    pub id: AuditId,
    /// Time of the action, by the store's clock.
    pub at: Timestamp,
    /// Name of the action, such as `retry`; a later version may have written one that this version does not define.
    pub action: String,
    /// Row that the action changed; `None` for an action without a row.
    pub row: Option<RowId>,
    /// Operator of the action and the reason.
    pub audit: Audit,
}

/// Conditions that listed audit entries meet; `None` matches every entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Entries of this row.
    pub row: Option<RowId>,
    /// Entries of this action.
    pub action: Option<OperatorAction>,
    /// Entries of the operator with exactly this name.
    pub operator: Option<String>,
    /// Entries older than this one, so with a smaller id.
    pub after: Option<AuditId>,
}
