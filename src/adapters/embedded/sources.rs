//! `ConsumerGroups`: members of consumer groups share the partitions by number.
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::source::{ConsumerGroups, GroupMember};
use rusqlite::params;

use crate::engine::Work;
use crate::error::Answer;
use crate::open::Embedded;
use crate::source::{Member, Share};

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
            return Err(Error::Rejected(format!("member {member} of {members} cannot be")));
        }
        let mut shares = Vec::new();
        for name in topics {
            let (name, topic) = self.topic(name).await?;
            let mine = (0..topic.partitions).filter(|partition| partition % members == member);
            shares.extend(mine.map(|partition| Share::new(name.clone(), topic, partition)));
        }
        let numbers: Vec<u32> = shares.iter().map(Share::number).collect();
        let name = group.to_string();
        let offsets = self.write("group_join", move |work| join(work, &name, &numbers)).await?;
        shares.iter_mut().zip(offsets).for_each(|(share, offset)| share.begin(offset));
        Ok(Arc::new(Member::new(self.clone(), group.into(), shares)))
    }
}

/// Where the group stands in each topic partition. Being asked is a sign of life: a living group holds the log's sweep back.
fn join(work: &Work<'_>, group: &str, numbers: &[u32]) -> Answer<Vec<u64>> {
    let mut seen = work.sql.prepare_cached(
        "INSERT INTO group_offset (consumer_group, number, next_offset, seen_at) VALUES (?1, ?2, 0, ?3)
         ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at) RETURNING next_offset",
    )?;
    let offset = |number: &u32| {
        let values = params![group, number, work.now.millis()];
        Ok(seen.query_row(values, |row| row.get::<_, i64>(0))? as u64)
    };
    numbers.iter().map(offset).collect()
}
