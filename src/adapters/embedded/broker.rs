//! `Broker`: records and watermark are one transaction of the file, so a batch and the proof of it stand or fall together.
use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::broker::{Batch, Broker, Position, Published, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use rusqlite::{OptionalExtension, params};

use crate::engine::Work;
use crate::error::Answer;
use crate::log::{self, Chosen};
use crate::open::Embedded;
use crate::{lanes, sweep};

/// A batch, ready for the writer.
struct Parcel {
    lane: ProducerSessionId,
    partition: PartitionNo,
    token: Token,
    rows: Vec<RowId>,
    records: Vec<Chosen>,
    until: Timestamp,
}

#[async_trait]
impl Broker for Embedded {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        let base = format!("{}.{}.{slot}", self.inner.installation, self.inner.options.instance);
        self.write("lane_open", move |work| lanes::open(work, &base)).await
    }

    async fn publish(&self, lane: &ProducerSessionId, batch: Batch) -> Published {
        let until = self.inner.clock.now().after(batch.time_left);
        let refused = self.too_large(&batch.records);
        if !refused.is_empty() {
            return Published::Aborted { refused, cause: None, reached: true };
        }
        let parcel = match self.parcel(lane, batch, until).await {
            Ok(parcel) => parcel,
            // Making a topic failed: nothing of the batch was written.
            Err(cause) => return aborted(cause),
        };
        match self.write("publish", move |work| publish(work, &parcel)).await {
            Ok(published) => published,
            Err(Error::Unknown(said)) => Published::Unknown(said),
            Err(cause) => aborted(cause),
        }
    }

    async fn watermark(&self, partition: PartitionNo) -> Result<Option<Token>, Error> {
        // Asked of the writer, so that it comes after every publish that was asked before it.
        self.write("watermark", move |work| watermark(work, partition)).await
    }

    async fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error> {
        let lane = lane.clone();
        self.write("lane_fence", move |work| lanes::fence(work, &lane)).await
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        let most = self.inner.options.record_bytes_max;
        if let Some(record) = records.iter().find(|record| record.value.len() > most) {
            return Err(too_large(record, most));
        }
        let mut chosen = Vec::with_capacity(records.len());
        for record in records {
            chosen.push(self.choose(record).await?);
        }
        self.write("append", move |work| log::append(work, &chosen)).await
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        self.sweep_log(limit).await
    }

    fn record_bytes_max(&self) -> usize {
        self.inner.options.record_bytes_max
    }
}

impl Embedded {
    /// Forgets at most `limit` records that are older than `log_retention` and that every living group has read; says how many.
    ///
    /// # Errors
    /// As any write.
    pub async fn sweep_log(&self, limit: u32) -> Result<u64, Error> {
        let oldest = self.before(self.inner.options.log_retention);
        self.write("log_sweep", move |work| sweep::log(work, oldest, limit)).await
    }

    fn too_large(&self, records: &[(RowId, Record)]) -> Vec<(RowId, Error)> {
        let most = self.inner.options.record_bytes_max;
        let large = records.iter().filter(|(_, record)| record.value.len() > most);
        large.map(|(row, record)| (*row, too_large(record, most))).collect()
    }

    async fn parcel(&self, lane: &ProducerSessionId, batch: Batch, until: Timestamp) -> Result<Parcel, Error> {
        let Batch { partition, token, records, .. } = batch;
        let mut rows = Vec::with_capacity(records.len());
        let mut chosen = Vec::with_capacity(records.len());
        for (row, record) in records {
            rows.push(row);
            chosen.push(self.choose(record).await?);
        }
        Ok(Parcel { lane: lane.clone(), partition, token, rows, records: chosen, until })
    }
}

fn too_large(record: &Record, most: usize) -> Error {
    Error::Rejected(format!("key {}: {} bytes; a record may have {most}", record.key, record.value.len()))
}

fn aborted(cause: Error) -> Published {
    Published::Aborted { refused: Vec::new(), cause: Some(cause), reached: false }
}

fn publish(work: &mut Work<'_>, parcel: &Parcel) -> Answer<Published> {
    if !lanes::lives(work, &parcel.lane)? {
        return Ok(Published::SessionLost(format!("{} is not the living session of its slot", parcel.lane)));
    }
    if work.now >= parcel.until {
        return Ok(aborted(Error::Unreachable("the lease's time was over before the batch's turn came".into())));
    }
    if let Some(stands) = watermark(work, parcel.partition)?.filter(|stands| *stands >= parcel.token) {
        // Written before, or overtaken: only the watermark may say which.
        return Ok(Published::Unknown(format!("token {} is not above the watermark {stands}", parcel.token)));
    }
    let positions = log::append(work, &parcel.records)?;
    let mut mark = work.sql.prepare_cached(
        "INSERT INTO relay_watermark (partition, token) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET token = excluded.token",
    )?;
    mark.execute(params![parcel.partition.0, parcel.token as i64])?;
    Ok(Published::Committed(parcel.rows.iter().copied().zip(positions).collect()))
}

fn watermark(work: &Work<'_>, partition: PartitionNo) -> Answer<Option<Token>> {
    let mut statement = work.sql.prepare_cached("SELECT token FROM relay_watermark WHERE partition = ?1")?;
    let token: Option<i64> = statement.query_row([partition.0], |row| row.get(0)).optional()?;
    Ok(token.map(|token| token as u64))
}
