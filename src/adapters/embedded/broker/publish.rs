//! `Broker`: records and watermark are written in one transaction, so both are committed or neither is.
use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::broker::{Batch, Broker, BrokerFailure, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use rusqlite::{OptionalExtension, params};

use crate::broker::log::{self, PreparedRecord};
use crate::broker::sessions;
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::outbox::sweep;
use crate::store::Embedded;

/// A batch whose records are prepared for the writer.
struct OutgoingBatch {
    session: ProducerSessionId,
    partition: PartitionNo,
    token: Token,
    rows: Vec<RowId>,
    records: Vec<PreparedRecord>,
    /// The time at which the partition's lease expires: a batch that is still queued then is not written.
    deadline: Timestamp,
}

#[async_trait]
impl Broker for Embedded {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        let base = format!("{}.{}.{slot}", self.inner.installation, self.inner.options.instance);
        self.write("producer_session_open", move |context| sessions::open(context, &base)).await
    }

    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let deadline = self.inner.clock.now().plus(batch.time_left);
        let refused = self.too_large(&batch.records);
        if !refused.is_empty() {
            return PublishOutcome::RowsRefused(refused);
        }
        let outgoing = match self.prepare_batch(session, batch, deadline).await {
            Ok(outgoing) => outgoing,
            // The topic could not be created; no record was written.
            Err(cause) => return aborted(cause),
        };
        match self.write("publish", move |context| publish(context, &outgoing)).await {
            Ok(published) => published,
            Err(Error::Unknown(message)) => PublishOutcome::Unknown(BrokerFailure::unknown(message)),
            Err(cause) => aborted(cause),
        }
    }

    async fn watermark(
        &self,
        partition: PartitionNo,
        _fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        // Read on the writer, so that it follows every publish that was queued before it.
        self.write("watermark", move |context| watermark(context, partition)).await
    }

    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        let session = session.clone();
        self.write("producer_session_fence", move |context| sessions::fence(context, &session)).await
    }

    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        self.write("producer_sessions_fence", |context| {
            sessions::fence_all(context)?;
            watermarks(context)
        })
        .await
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        let limit = self.inner.options.record_bytes_max;
        if let Some(record) = records.iter().find(|record| record.value.len() > limit) {
            return Err(too_large(record, limit));
        }
        let mut prepared = Vec::with_capacity(records.len());
        for record in records {
            prepared.push(self.prepare(record).await?);
        }
        self.write("append", move |context| log::append(context, &prepared)).await
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        self.sweep_log(limit).await
    }

    fn record_bytes_max(&self) -> usize {
        self.inner.options.record_bytes_max
    }
}

impl Embedded {
    /// Deletes at most `limit` records that are older than `log_retention` and that every group has acknowledged that is joined or was
    /// active within the retention. Returns their number.
    ///
    /// # Errors
    /// The errors of any write: a full queue, a full disk, a closed store.
    pub async fn sweep_log(&self, limit: u32) -> Result<u64, Error> {
        let oldest = self.millis_ago(self.inner.options.log_retention);
        let joined = self.inner.joined_groups.clone();
        self.write("log_sweep", move |context| sweep::log(context, &joined, oldest, limit)).await
    }

    fn too_large(&self, records: &[(RowId, Record)]) -> Vec<(RowId, Error)> {
        let limit = self.inner.options.record_bytes_max;
        let large = records.iter().filter(|(_, record)| record.value.len() > limit);
        large.map(|(row, record)| (*row, too_large(record, limit))).collect()
    }

    async fn prepare_batch(
        &self,
        session: &ProducerSessionId,
        batch: Batch,
        deadline: Timestamp,
    ) -> Result<OutgoingBatch, Error> {
        let Batch { partition, token, records, .. } = batch;
        let mut rows = Vec::with_capacity(records.len());
        let mut prepared = Vec::with_capacity(records.len());
        for (row, record) in records {
            rows.push(row);
            prepared.push(self.prepare(record).await?);
        }
        Ok(OutgoingBatch { session: session.clone(), partition, token, rows, records: prepared, deadline })
    }
}

fn too_large(record: &Record, limit: usize) -> Error {
    Error::Rejected(format!("key {}: {} bytes; a record may have {limit}", record.key, record.value.len()))
}

fn aborted(cause: Error) -> PublishOutcome {
    PublishOutcome::Aborted { cause: cause.into(), reached: false }
}

fn publish(context: &mut WriteContext<'_>, outgoing: &OutgoingBatch) -> CommandResult<PublishOutcome> {
    if !sessions::is_open(context, &outgoing.session)? {
        let reason = format!("{} is not the open session of its slot", outgoing.session);
        return Ok(PublishOutcome::SessionLost(BrokerFailure::unknown(reason)));
    }
    if context.now >= outgoing.deadline {
        return Ok(aborted(Error::Unreachable("the lease expired before the batch could be written".into())));
    }
    if let Some(last) = watermark(context, outgoing.partition)?.filter(|last| *last >= outgoing.token) {
        // Published before, or a later batch was: resolution by the watermark decides.
        let reason = format!("token {} is not above the watermark {last}", outgoing.token);
        return Ok(PublishOutcome::Unknown(BrokerFailure::unknown(reason)));
    }
    let positions = log::append(context, &outgoing.records)?;
    let mut set_watermark = context.sql.prepare_cached(
        "INSERT INTO relay_watermark (partition, token) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET token = excluded.token",
    )?;
    set_watermark.execute(params![outgoing.partition.0, outgoing.token as i64])?;
    Ok(PublishOutcome::Committed(outgoing.rows.iter().copied().zip(positions).collect()))
}

fn watermark(context: &WriteContext<'_>, partition: PartitionNo) -> CommandResult<Option<Token>> {
    let mut statement = context.sql.prepare_cached("SELECT token FROM relay_watermark WHERE partition = ?1")?;
    let token: Option<i64> = statement.query_row([partition.0], |row| row.get(0)).optional()?;
    Ok(token.map(|token| token as u64))
}

fn watermarks(context: &WriteContext<'_>) -> CommandResult<BTreeMap<PartitionNo, Token>> {
    let mut statement = context.sql.prepare_cached("SELECT partition, token FROM relay_watermark")?;
    let rows = statement.query_map([], |row| Ok((PartitionNo(row.get(0)?), row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
