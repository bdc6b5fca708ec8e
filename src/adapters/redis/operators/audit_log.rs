//! The audit log: a list with an entry for each row that an operator changed, oldest first. An entry's id is its position in the list, from 1.
use deadpool_redis::redis::cmd;
use domain::Timestamp;
use outbox::OperatorAction;
use ports::Error;
use ports::operators::{Audit, AuditEntry, AuditFilter, AuditId};
use ports::outbox::RowId;
use serde_json::Value;

use crate::store::client::RedisStore;
use crate::store::reply::broken;

/// Entries that one command reads.
const PAGE: AuditId = 500;

impl RedisStore {
    /// At most `limit` entries, newest first. Entries are only appended, so pages that are read one after the other fit together.
    pub(super) async fn audit_log(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let list = format!("{}audit", self.inner.prefix);
        let mut length = cmd("LLEN");
        length.arg(&list);
        let length: AuditId = self.read_command("audit", length).await?;
        // Entries with ids up to this one are still unread.
        let mut last = filter.after.map_or(length, |after| after.saturating_sub(1).min(length));
        let mut found = Vec::new();
        while last > 0 && found.len() < limit as usize {
            let first = (last - PAGE).max(0);
            let mut range = cmd("LRANGE");
            range.arg(&list).arg(first).arg(last - 1);
            let lines: Vec<String> = self.read_command("audit", range).await?;
            for (id, line) in (first + 1..).zip(&lines).collect::<Vec<_>>().into_iter().rev() {
                let entry = entry(id, line)?;
                if matches(filter, &entry) && found.len() < limit as usize {
                    found.push(entry);
                }
            }
            last = first;
        }
        Ok(found)
    }
}

/// An entry as the script of operators' statements writes it: numbers as texts, because Lua's may lose digits.
fn entry(id: AuditId, line: &str) -> Result<AuditEntry, Error> {
    let entry: Value = serde_json::from_str(line).map_err(|error| broken(format!("audit entry {id}: {error}")))?;
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let millis: i64 = text("at").parse().map_err(|_| broken(format!("audit entry {id} has no time")))?;
    Ok(AuditEntry {
        id,
        at: Timestamp::from_millis(millis),
        action: text("action"),
        row: text("row").parse::<RowId>().ok(),
        audit: Audit { operator: text("who"), reason: text("why") },
    })
}

fn matches(filter: &AuditFilter, entry: &AuditEntry) -> bool {
    let AuditFilter { row, action, operator, after: _ } = filter;
    row.is_none_or(|row| entry.row == Some(row))
        && action.map(OperatorAction::as_str).is_none_or(|action| action == entry.action)
        && operator.as_ref().is_none_or(|operator| *operator == entry.audit.operator)
}
