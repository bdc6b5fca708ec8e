//! Reserves dead letters, appends them to their topic and confirms them, in a task that a cancelled request does not interrupt.
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use ports::Error;
use ports::broker::{Broker, Record};
use ports::clock::Clock;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger};

use super::dead_letter::DeadLetter;
use crate::error::QueryError;

/// Time after which an unconfirmed reservation expires; longer than any append that may still succeed.
pub const RESERVATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Starts a task that runs to its end, also when the future that started it is dropped.
pub type SpawnTask = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// Replays dead letters to one topic.
#[derive(Clone)]
pub(super) struct Replayer {
    pub(super) topic: Arc<str>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) redrives: Arc<dyn RedriveLedger>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawn: SpawnTask,
}

impl Replayer {
    /// Replays the dead letters that can be reserved, all of them or none; returns their number. Cancel-safe: a replay that has begun ends
    /// with its confirmation, because a record that was appended without it is appended again after [`RESERVATION_TIMEOUT`].
    pub(super) async fn replay(&self, dead_letters: Vec<DeadLetter>, audit: &Audit) -> Result<u64, QueryError> {
        let (result, received) = oneshot::channel();
        let (replay, audit) = (self.clone(), audit.clone());
        (self.spawn)(Box::pin(async move {
            // A cancelled request receives no result.
            let _ = result.send(replay.reserve_append_confirm(&dead_letters, &audit).await);
        }));
        received.await.unwrap_or_else(|_| Err(QueryError::Unknown("the replay ended without a result".into())))
    }

    /// Replays the dead letters that can be reserved, all of them or none; returns their number.
    async fn reserve_append_confirm(self, dead_letters: &[DeadLetter], audit: &Audit) -> Result<u64, QueryError> {
        let ids: Vec<DeadLetterId> = dead_letters.iter().map(DeadLetter::id).collect();
        let reserved = self.redrives.reserve(&ids, RESERVATION_TIMEOUT, audit).await?;
        let (ids, records) = self.replay_records(dead_letters, &reserved, &audit.operator);
        if ids.is_empty() {
            return Ok(0);
        }
        match self.broker.append(records).await {
            Ok(_) => {
                let sent = ids.len() as u64;
                // The reservations stay until they expire, as after an append of unknown outcome.
                let unrecorded =
                    |error| QueryError::from(error).after(format!("{} without a record of it", sent_back(sent)));
                self.redrives.confirm(&ids).await.map_err(unrecorded)?;
                Ok(sent)
            }
            // The records may have been appended, so the reservations stay until they expire.
            Err(Error::Unknown(detail)) => Err(QueryError::Unknown(detail)),
            Err(error) => {
                self.redrives.release(&ids).await?;
                Err(error.into())
            }
        }
    }

    fn replay_records(
        &self,
        dead_letters: &[DeadLetter],
        reserved: &[bool],
        operator: &str,
    ) -> (Vec<DeadLetterId>, Vec<Record>) {
        let now = self.clock.now();
        let reserved = dead_letters.iter().zip(reserved).filter(|(_, reserved)| **reserved);
        reserved
            .map(|(dead_letter, _)| (dead_letter.id(), dead_letter.redrive_record(&self.topic, operator, now)))
            .unzip()
    }
}

/// What was done, for the message of a failure that follows.
pub fn sent_back(dead_letters: u64) -> String {
    format!("dead letters sent back: {dead_letters}")
}
