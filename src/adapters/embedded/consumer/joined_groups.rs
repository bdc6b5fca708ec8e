//! JoinedGroups: the consumer groups with a member in this process, and the groups that read over HTTP. The log keeps unread records for a group with
//! a member without a time limit, and for the group of each webhook that exists: an inactive webhook has no member. For another group without one it
//! keeps them for the retention time after the group was last seen; neither a jump of the clock nor a stop of the service counts as such time.
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use domain::{Timestamp, WebhookId};
use parking_lot::Mutex;
use ports::endpoint::webhooks::group;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::time::Instant;

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::units::millis;

/// Longest age of a stored `seen_at` that needs no new write: far below any sensible retention, and far above the interval of sweeps and polls.
pub(crate) const SEEN_RECENTLY: Duration = Duration::from_secs(60);

/// The number of members of each joined group, and when each group without one was last seen.
#[derive(Default)]
pub(crate) struct JoinedGroups {
    members: Mutex<BTreeMap<Arc<str>, usize>>,
    /// By the monotonic clock. A group stays here for the retention time, so there are about as many as in the table `group_offset`.
    seen: Mutex<HashMap<Arc<str>, Instant>>,
}

impl JoinedGroups {
    /// Counts a member until the returned value is dropped.
    pub(crate) fn join(self: &Arc<Self>, group: Arc<str>) -> JoinedMember {
        *self.members.lock().entry(group.clone()).or_default() += 1;
        JoinedMember { groups: self.clone(), group }
    }

    /// Records that a group of the table without a member was seen now.
    pub(crate) fn record_seen(&self, group: &str) {
        let (mut groups, now) = (self.seen.lock(), Instant::now());
        match groups.get_mut(group) {
            Some(seen) => *seen = now,
            None => {
                groups.insert(group.into(), now);
            }
        }
    }

    /// The groups without a member that were seen within the retention, each with the time that has passed since. Forgets the others.
    fn seen_within(&self, retention: Duration) -> Vec<(Arc<str>, Duration)> {
        let mut groups = self.seen.lock();
        groups.retain(|_, seen| seen.elapsed() < retention);
        groups.iter().map(|(group, seen)| (group.clone(), seen.elapsed())).collect()
    }

    /// Updates `seen_at` of the joined groups, of those of webhooks, and of groups without a member that were seen within the retention. Runs in
    /// the transaction of each deletion that excepts the groups seen since `oldest`, before it, so that the deletion finds these groups also after
    /// a jump of the clock.
    pub(crate) fn refresh_seen_at(&self, context: &WriteContext<'_>, oldest: i64) -> CommandResult<()> {
        let mut names: BTreeSet<Arc<str>> = self.members.lock().keys().cloned().collect();
        names.extend(groups_of_webhooks(context.sql)?);
        let now = context.now.millis();
        let seen_at = oldest.max(now - SEEN_RECENTLY.as_millis() as i64);
        let mut seen = context
            .sql
            .prepare_cached("UPDATE group_offset SET seen_at = ?2 WHERE consumer_group = ?1 AND seen_at < ?3")?;
        for name in names {
            seen.execute(params![&*name, now, seen_at])?;
        }
        let retention = Duration::from_millis(now.saturating_sub(oldest).unsigned_abs());
        for (name, ago) in self.seen_within(retention) {
            // Only after a jump of the clock is the row older.
            seen.execute(params![&*name, now.saturating_sub(millis(ago)), oldest])?;
        }
        Ok(())
    }
}

fn groups_of_webhooks(sql: &Connection) -> rusqlite::Result<Vec<Arc<str>>> {
    let mut webhooks = sql.prepare_cached("SELECT id FROM webhook")?;
    let groups = webhooks.query_map([], |row| Ok(group(WebhookId::from_bytes(row.get(0)?)).into()))?;
    groups.collect()
}

/// Adds the time for which no service ran on the file to each group's `seen_at`. Called before a service begins.
pub(crate) fn skip_downtime(sql: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(sql, TransactionBehavior::Immediate)?;
    let last_heartbeat = "SELECT beaten_at FROM store_probe";
    let Some(last_heartbeat) = transaction.query_row(last_heartbeat, [], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(());
    };
    let stopped = now.millis().saturating_sub(last_heartbeat);
    if stopped < millis(SEEN_RECENTLY) {
        return Ok(());
    }
    let seen = "UPDATE group_offset SET seen_at = min(seen_at + ?1, ?2) WHERE seen_at < ?2";
    transaction.execute(seen, params![stopped, now.millis()])?;
    // A service that ends before its first heartbeat must not count the time again.
    transaction.execute("UPDATE store_probe SET beaten_at = ?1", [now.millis()])?;
    transaction.commit()
}

/// A member of a joined group.
pub(crate) struct JoinedMember {
    groups: Arc<JoinedGroups>,
    /// Name of the group.
    pub(crate) group: Arc<str>,
}

impl Drop for JoinedMember {
    fn drop(&mut self) {
        let mut members = self.groups.members.lock();
        if let Some(count) = members.get_mut(&self.group) {
            *count -= 1;
            if *count == 0 {
                members.remove(&self.group);
            }
        }
    }
}
