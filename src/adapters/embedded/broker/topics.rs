//! Topics of the embedded broker: created on first use, and the partition of each record.
use std::sync::Arc;

use ports::Error;
use ports::broker::Record;
use ports::broker::topic_log::TopicAdmission;
use rusqlite::params;

use crate::broker::headers;
use crate::broker::log::{self, PreparedRecord};
use crate::broker::log_state::LogTopic;
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::store::Embedded;

/// Most topics that clients may add to. Each has a row for each of its partitions, and the role to publish is enough to name a new one. The
/// configured topics and dead letters count, and are created beyond it.
const TOPICS_MAX: usize = 1_000;

impl Embedded {
    /// Creates the missing topics. Idempotent; an existing topic keeps its partitions.
    ///
    /// # Errors
    /// The errors of any write: a full queue, a full disk, a closed store.
    pub async fn create_topics(&self, names: &[&str]) -> Result<(), Error> {
        for name in names {
            self.topic(name).await?;
        }
        Ok(())
    }

    /// A topic by its name; created on first use.
    pub(crate) async fn topic(&self, name: &str) -> Result<(Arc<str>, LogTopic), Error> {
        if let Some(known) = self.inner.log_state.topic(name) {
            return Ok(known);
        }
        let options = &self.inner.options;
        let partitions = options.partitions_by_topic.get(name).copied().unwrap_or(options.topic_partitions).max(1);
        let shared: Arc<str> = name.into();
        let new_name = shared.clone();
        let topic = self.write("topic_create", move |context| create(context, &new_name, partitions)).await?;
        self.inner.log_state.add_topic(shared.clone(), topic);
        Ok((shared, topic))
    }

    /// Decides whether clients may write to these topics: each exists, or the limit of topics permits its creation.
    pub(crate) async fn admit(&self, names: &[&str]) -> Result<TopicAdmission, Error> {
        let admissions = &self.inner.topic_admissions;
        if admissions.admit_again(&self.inner.log_state.unknown_topics(names)) {
            return Ok(TopicAdmission::Admitted);
        }
        let existing = self.read("topic_names", log::topic_names).await?;
        let admitted = admissions.admit(&existing, names, TOPICS_MAX);
        Ok(if admitted { TopicAdmission::Admitted } else { TopicAdmission::TooManyTopics(TOPICS_MAX) })
    }

    /// Prepares a record for the writer: chooses its topic partition by its key, and encodes its headers.
    pub(crate) async fn prepare(&self, record: Record) -> Result<PreparedRecord, Error> {
        let (_, topic) = self.topic(&record.topic).await?;
        let partition = outbox::partition::topic_partition(record.key.as_bytes(), topic.partitions);
        let headers = headers::encode(&record.headers);
        Ok(PreparedRecord { number: topic.first + partition, partition, record, headers })
    }
}

fn create(context: &WriteContext<'_>, name: &str, partitions: u32) -> CommandResult<LogTopic> {
    if let Some(known) = log::find_topic(context.sql, name)? {
        return Ok(known);
    }
    let first: u32 =
        context.sql.query_row("SELECT coalesce(max(first + partitions), 0) FROM topic", [], |row| row.get(0))?;
    context
        .sql
        .prepare_cached("INSERT INTO topic (name, first, partitions) VALUES (?1, ?2, ?3)")?
        .execute(params![name, first, partitions])?;
    let mut insert = context.sql.prepare_cached("INSERT INTO topic_partition (number) VALUES (?1)")?;
    for number in first..first + partitions {
        insert.execute([number])?;
    }
    Ok(LogTopic { first, partitions })
}
