//! `Broker`: batches go through the sessions that the relay opens, records without a watermark through a session of the adapter's own.
mod append_results;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use ports::Error;
use ports::broker::{Batch, Broker, BrokerFailure, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{InstanceId, PartitionNo, ProducerSessionId, Token};
use tokio::sync::oneshot;

use append_results::AppendResults;

use crate::adapter::Kafka;
use crate::connection::blocking_call::run_blocking;
use crate::producer::session_batch::SessionBatch;
use crate::producer::session_id::{self, SessionIdParts, WatermarkPartition};
use crate::topics::pending_watermarks::{AwaitedPartitions, WatermarkQuery, WatermarkReply};
use crate::topics::query_thread::TopicQuery;
use crate::topics::watermark_cache::InstallationRecords;

#[async_trait]
impl Broker for Kafka {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.inner.watcher.ready().await?;
        let inner = Arc::clone(&self.inner);
        run_blocking("kafka-open-session", move || inner.sessions.open(&slot.to_string())).await
    }

    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let (reply, result) = oneshot::channel();
        self.inner.sessions.enqueue(session, SessionBatch::from_claim(batch, reply));
        result.await.unwrap_or_else(|_| {
            PublishOutcome::SessionLost(BrokerFailure::unknown(format!(
                "the session {session} ended before it sent a result"
            )))
        })
    }

    async fn watermark(
        &self,
        partition: PartitionNo,
        fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        self.inner.watcher.ready().await?;
        if let Some(session) = fenced {
            self.check_topic_prefix(session)?;
        }
        let awaited = fenced.and_then(|session| session_id::parse(session).watermarks.for_outbox_partition(partition));
        let awaited = awaited.map_or(AwaitedPartitions::None, AwaitedPartitions::One);
        let reply = |sender| WatermarkReply::Watermark { outbox_partition: partition.0, sender };
        let query = |sender| TopicQuery::Watermark(WatermarkQuery::new(awaited, reply(sender)));
        self.inner.watermark_queries.request(query).await
    }

    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        self.inner.watcher.ready().await?;
        let (inner, session) = (Arc::clone(&self.inner), session.clone());
        run_blocking("kafka-fence", move || inner.sessions.fence(&session)).await
    }

    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        self.inner.watcher.ready().await?;
        let (mut fenced, mut awaited) = (BTreeSet::new(), AwaitedPartitions::None);
        loop {
            let InstallationRecords { registrations, watermarks } = self.installation_records(awaited).await?;
            let unfenced: Vec<String> = registrations.into_keys().filter(|id| !fenced.contains(id)).collect();
            match (unfenced.is_empty(), awaited) {
                // The watermarks are final: every id was fenced before they were read, and no transaction was undecided.
                (true, AwaitedPartitions::All) => return Ok(watermarks),
                (true, _) => awaited = AwaitedPartitions::All,
                // An open transaction hides what is registered behind it, until its own id is fenced.
                (false, _) => awaited = AwaitedPartitions::None,
            }
            let (inner, ids) = (Arc::clone(&self.inner), unfenced.clone());
            run_blocking("kafka-fence-all", move || inner.sessions.fence_ids(&ids)).await?;
            fenced.extend(unfenced);
        }
    }

    async fn remove_sessions(&self, members: &[InstanceId], limit: u32) -> Result<u32, Error> {
        self.inner.watcher.ready().await?;
        let InstallationRecords { registrations, .. } = self.installation_records(AwaitedPartitions::None).await?;
        let members: HashSet<String> =
            members.iter().map(|member| self.inner.options.transactional_id(member, "")).collect();
        let is_removed = |id: &str| id.rfind('-').is_none_or(|end| !members.contains(&id[..=end]));
        let removed: Vec<_> = registrations.into_iter().filter(|(id, _)| is_removed(id)).take(limit as usize).collect();
        let (inner, count) = (Arc::clone(&self.inner), u32::try_from(removed.len()).unwrap_or(limit));
        run_blocking("kafka-remove-sessions", move || inner.sessions.unregister_ids(&removed)).await?;
        Ok(count)
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let count = records.len();
        let published = self.append_once((0..).zip(records).collect()).await?;
        append_result(published, count)
    }

    async fn append_individually(&self, records: Vec<Record>) -> Vec<Result<Position, Error>> {
        let mut results = AppendResults::new(records);
        loop {
            let unsent = results.unsent();
            if unsent.is_empty() {
                return results.into_results();
            }
            results.add(self.append_once(unsent).await.unwrap_or_else(|error| PublishOutcome::Unknown(error.into())));
        }
    }

    async fn recovered(&self) {
        self.inner.contact.recovered().await;
    }

    fn record_bytes_max(&self) -> usize {
        self.inner.options.record_bytes_max
    }
}

impl Kafka {
    /// Refuses a session whose watermarks are in the topic of another prefix: without them a batch that it published looks unpublished.
    fn check_topic_prefix(&self, session: &ProducerSessionId) -> Result<(), Error> {
        let SessionIdParts { transactional_id, watermarks } = session_id::parse(session);
        match self.inner.options.other_topic_prefix(transactional_id) {
            Some(prefix) if watermarks != WatermarkPartition::None => Err(Error::Broken(format!(
                "the open batch of the session {session} was claimed with broker.topic_prefix {prefix:?} (\"posthaste\" stands for an empty \
                 one), and {} has no watermark of it: stop all instances, and run one with the former prefix until no event is in flight",
                self.inner.options.watermark_topic()
            ))),
            _ => Ok(()),
        }
    }

    /// The installation's records in the watermark topic, once the transactions in these partitions of the topic are decided.
    async fn installation_records(&self, awaited: AwaitedPartitions) -> Result<InstallationRecords, Error> {
        let query = |sender| WatermarkQuery::new(awaited, WatermarkReply::Installation(sender));
        self.inner.watermark_queries.request(|sender| TopicQuery::Watermark(query(sender))).await
    }

    /// Sends records without a watermark. The row ids are the caller's.
    async fn append_once(&self, records: Vec<(RowId, Record)>) -> Result<PublishOutcome, Error> {
        let session = self.append_session().await?;
        let (reply, result) = oneshot::channel();
        let deadline = Instant::now() + self.inner.options.delivery_timeout;
        self.inner.sessions.enqueue(&session, SessionBatch::from_append(records, deadline, reply));
        let ended = |_| PublishOutcome::Unknown(BrokerFailure::unknown("the session that appends ended"));
        Ok(result.await.unwrap_or_else(ended))
    }

    /// The live session that appends. One caller opens it; concurrent callers wait for it and share its failure.
    async fn append_session(&self) -> Result<ProducerSessionId, Error> {
        let requested = Instant::now();
        let mut append = Arc::clone(&self.inner.append_session).lock_owned().await;
        if let Some(session) = append.session()
            && self.inner.sessions.is_live(session)
        {
            return Ok(session.clone());
        }
        append.failure_since(requested)?;
        self.inner.watcher.ready().await?;
        let inner = Arc::clone(&self.inner);
        // The call records its result also when this caller is dropped.
        run_blocking("kafka-open-append", move || inner.sessions.open_append(&mut append)).await
    }
}

/// The result of an append of `count` records.
fn append_result(published: PublishOutcome, count: usize) -> Result<Vec<Position>, Error> {
    let first_refusal = |refused: Vec<(RowId, Error)>| {
        let first = refused.into_iter().next().map(|(_, error)| error);
        first.unwrap_or_else(|| Error::Unreachable("the append was aborted".into()))
    };
    match published {
        PublishOutcome::Committed(rows) => Ok(rows.into_iter().map(|(_, position)| position).collect()),
        PublishOutcome::RowsRefused(refused) => Err(first_refusal(refused)),
        // Of a record that is neither sent nor refused, it may be unknown whether the broker has it.
        PublishOutcome::Partial { refused, .. } if refused.len() < count => {
            Err(Error::Unknown("only some of the records could be appended".into()))
        }
        PublishOutcome::Partial { refused, .. } => Err(first_refusal(refused)),
        PublishOutcome::Aborted { cause: failure, .. }
        | PublishOutcome::Unknown(failure)
        | PublishOutcome::SessionLost(failure) => Err(failure.error),
    }
}
