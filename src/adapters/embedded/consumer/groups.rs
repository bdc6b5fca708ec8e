//! `ConsumerGroups`: the members of a group divide the topic partitions by number.
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};
use rusqlite::params;

use crate::broker::log;
use crate::connection::group_commit::WriteContext;
use crate::consumer::group_member::{LogGroupMember, MemberPartition};
use crate::error::CommandResult;
use crate::store::Embedded;

#[async_trait]
impl ConsumerGroups for Embedded {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        if members == 0 || member >= members {
            return Err(Error::Rejected(format!("there is no member {member} of {members}")));
        }
        let mut owned = Vec::new();
        for name in topics {
            let (name, topic) = self.topic(name).await?;
            let assigned = (0..topic.partitions).filter(|partition| partition % members == member);
            owned.extend(assigned.map(|partition| MemberPartition::new(name.clone(), topic, partition)));
        }
        // Before its offsets are read, so that no sweep takes the group for one that has ended.
        let joined = self.inner.joined_groups.join(group.into());
        let numbers: Vec<u32> = owned.iter().map(MemberPartition::number).collect();
        let name = group.to_string();
        let offsets = self.write("group_join", move |context| join(context, &name, &numbers)).await?;
        owned.iter_mut().zip(offsets).for_each(|(partition, offset)| partition.start_at(offset));
        Ok(Arc::new(LogGroupMember::new(self.clone(), joined, owned)))
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        let mut ranges = Vec::with_capacity(topics.len());
        for name in topics {
            let (_, topic) = self.topic(name).await?;
            ranges.push((topic.first, topic.first + topic.partitions));
        }
        let group = group.to_string();
        self.write("group_begin", move |context| {
            let mut begin = context.sql.prepare_cached(
                "INSERT INTO group_offset (consumer_group, number, next_offset, seen_at)
                 SELECT ?1, number, next_offset, ?4 FROM topic_partition WHERE number >= ?2 AND number < ?3
                 ON CONFLICT DO NOTHING",
            )?;
            for (first, end) in &ranges {
                begin.execute(params![group, first, end, context.now.millis()])?;
            }
            Ok(())
        })
        .await
    }

    async fn keep_offsets(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        let (name, topics) = (group.to_string(), topics.to_vec());
        let keep = self.write("group_keep", move |context| {
            let mut seen = context.sql.prepare_cached(
                "UPDATE group_offset SET seen_at = max(seen_at, ?4) WHERE consumer_group = ?1 AND number >= ?2 AND number < ?3",
            )?;
            let mut kept = 0;
            for topic in &topics {
                let Some(topic) = log::find_topic(context.sql, topic)? else { continue };
                kept += seen.execute(params![name, topic.first, topic.first + topic.partitions, context.now.millis()])?;
            }
            Ok(kept)
        });
        if keep.await? > 0 {
            self.inner.joined_groups.record_seen(group);
        }
        Ok(())
    }
}

/// Reads the group's offset in each topic partition. It also sets the group's `seen_at`: the sweep of the log keeps the unread records of
/// groups seen within the retention. While the group is joined, [`JoinedGroups::refresh_seen_at`](crate::consumer::joined_groups::JoinedGroups)
/// refreshes it.
fn join(context: &WriteContext<'_>, group: &str, numbers: &[u32]) -> CommandResult<Vec<u64>> {
    let mut seen = context.sql.prepare_cached(
        "INSERT INTO group_offset (consumer_group, number, next_offset, seen_at) VALUES (?1, ?2, 0, ?3)
         ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at) RETURNING next_offset",
    )?;
    let offset = |number: &u32| {
        let values = params![group, number, context.now.millis()];
        Ok(seen.query_row(values, |row| row.get::<_, i64>(0))? as u64)
    };
    numbers.iter().map(offset).collect()
}
