//! `TopicReader`: reads the log from the file, so that it also sees the records that another process appends.
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topic_log::TopicLog;
use ports::broker::topics::{TopicReader, TopicView};
use rusqlite::{Connection, params};

use crate::broker::log;
use crate::broker::log_state::{log_id, offset_in};
use crate::error::{CommandResult, WriteError};
use crate::store::Embedded;

#[async_trait]
impl TopicReader for Embedded {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        self.read("topic_list", list).await
    }

    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        let name: Arc<str> = topic.into();
        Embedded::read(self, "topic_read", move |sql| {
            let topic = log::topic_in(sql, &name)?;
            if partition >= topic.partitions {
                let message =
                    format!("topic {name} has {} partitions; there is no partition {partition}", topic.partitions);
                return Err(WriteError::Port(Error::Rejected(message)));
            }
            log::read(sql, &name, topic, partition, offset, limit)
        })
        .await
    }

    async fn group_offsets(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error> {
        TopicLog::committed(self, group, topic).await
    }
}

fn list(sql: &Connection) -> CommandResult<Vec<TopicView>> {
    let names = log::topic_names(sql)?;
    names.iter().filter_map(|name| view(sql, name).transpose()).collect()
}

/// A topic with the offsets that its partitions keep; `None` without such a topic.
pub(crate) fn view(sql: &Connection, name: &str) -> CommandResult<Option<TopicView>> {
    let Some(topic) = log::find_topic(sql, name)? else { return Ok(None) };
    let partitions = (topic.first..topic.first + topic.partitions).map(|number| kept_offsets(sql, number));
    Ok(Some(TopicView { name: name.to_owned(), partitions: partitions.collect::<CommandResult<_>>()? }))
}

/// From the first offset that is kept to before the next one to be written.
fn kept_offsets(sql: &Connection, number: u32) -> CommandResult<Range<u64>> {
    let mut next = sql.prepare_cached("SELECT next_offset FROM topic_partition WHERE number = ?1")?;
    let next = next.query_row([number], |row| row.get::<_, i64>(0))? as u64;
    let mut first = sql.prepare_cached("SELECT min(place) FROM log WHERE place >= ?1 AND place < ?2")?;
    let first: Option<i64> = first.query_row(params![log_id(number, 0), log_id(number + 1, 0)], |row| row.get(0))?;
    Ok(first.map_or(next, offset_in)..next)
}
