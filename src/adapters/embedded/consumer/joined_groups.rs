//! JoinedGroups: the consumer groups with a member in this process. Retention waits for them, however long they acknowledge nothing.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::params;

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;

/// Time for which a group that was seen needs no new write: far below any sensible retention, and far above the interval of sweeps and polls.
pub(crate) const SEEN_RECENTLY: Duration = Duration::from_secs(60);

/// The number of members of each joined group.
#[derive(Default)]
pub(crate) struct JoinedGroups {
    members: Mutex<BTreeMap<Arc<str>, usize>>,
}

impl JoinedGroups {
    /// Counts a member until the returned value is dropped.
    pub(crate) fn join(self: &Arc<Self>, group: Arc<str>) -> JoinedMember {
        *self.members.lock().entry(group.clone()).or_default() += 1;
        JoinedMember { groups: self.clone(), group }
    }

    /// Marks the joined groups as seen. Runs before each deletion that spares the groups seen since `oldest`, in its transaction, so that the
    /// deletion never takes a joined group for one that has ended, not even when the clock has jumped.
    pub(crate) fn mark_seen(&self, context: &WriteContext<'_>, oldest: i64) -> CommandResult<()> {
        let names: Vec<Arc<str>> = self.members.lock().keys().cloned().collect();
        let now = context.now.millis();
        let seen_at = oldest.max(now - SEEN_RECENTLY.as_millis() as i64);
        let mut seen = context
            .sql
            .prepare_cached("UPDATE group_offset SET seen_at = ?2 WHERE consumer_group = ?1 AND seen_at < ?3")?;
        for name in names {
            seen.execute(params![&*name, now, seen_at])?;
        }
        Ok(())
    }
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
