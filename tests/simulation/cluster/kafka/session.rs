//! ProducerSession: one transactional producer of a process. Each transaction takes the batches that were queued during the last one. A
//! session that cannot continue finishes all its batches and ends.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use ports::broker::{Batch, BrokerFailure, Position, PublishOutcome};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, Token};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::kafka::broker::{BatchRecords, EndResult, ProduceResult, ProducerIdentity, SimulatedKafka};
use crate::cluster::kafka::log::TransactionStatus;
use crate::cluster::network::Link;

/// How long a transaction waits for batches that its first one announces.
const LINGER: Duration = Duration::from_millis(1);
/// How often an abort without a reply is requested.
const ABORTS_MAX: u32 = 3;

/// The session. Clones share it.
#[derive(Clone)]
pub struct ProducerSession(Arc<Shared>);

struct Shared {
    kafka: SimulatedKafka,
    link: Link,
    transactional_id: Arc<str>,
    epoch: u32,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    queue: Vec<QueuedBatch>,
    is_running: bool,
    is_ended: bool,
    transaction: u64,
    /// The last token committed for each partition.
    committed: BTreeMap<PartitionNo, Token>,
}

struct QueuedBatch {
    content: BatchRecords,
    deadline: Instant,
    reply: oneshot::Sender<PublishOutcome>,
}

impl QueuedBatch {
    fn finish(self, published: PublishOutcome) {
        // The caller may have given up.
        let _ = self.reply.send(published);
    }
}

/// Why the session has ended, for the batches of its last transaction.
#[derive(Clone, Copy)]
enum SessionEnded {
    Unknown,
    Lost,
}

/// How an attempt to publish a group ended: the batches to send again, or the end of the session.
type Attempt = Result<Vec<QueuedBatch>, SessionEnded>;

fn failed(reason: &str) -> BrokerFailure {
    Error::Unreachable(reason.into()).into()
}

impl ProducerSession {
    /// A session of a producer that has initialised its transactional id with this epoch.
    pub fn new(kafka: SimulatedKafka, link: Link, transactional_id: Arc<str>, epoch: u32) -> Self {
        Self(Arc::new(Shared { kafka, link, transactional_id, epoch, state: Mutex::default() }))
    }

    /// The epoch with which the producer began.
    pub fn epoch(&self) -> u32 {
        self.0.epoch
    }

    /// Ends the session: it commits nothing that it has not requested yet.
    pub fn end(&self) {
        self.0.state.lock().is_ended = true;
    }

    /// Queues a batch and waits for its result.
    pub async fn publish(&self, batch: Batch) -> PublishOutcome {
        let lost = || PublishOutcome::SessionLost(BrokerFailure::unknown("the session is over"));
        let (reply, published) = oneshot::channel();
        let starts = {
            let mut state = self.0.state.lock();
            if state.is_ended {
                return lost();
            }
            let deadline = Instant::now() + batch.time_left;
            let content = BatchRecords { partition: batch.partition, token: batch.token, records: batch.records };
            state.queue.push(QueuedBatch { content, deadline, reply });
            !std::mem::replace(&mut state.is_running, true)
        };
        if starts {
            // A task of the instance: it ends with its process, and stands still with it.
            drop(tokio::task::spawn_local(self.clone().run(batch.expected_batches > 0)));
        }
        published.await.unwrap_or_else(|_| lost())
    }

    async fn run(self, lingers: bool) {
        if lingers {
            sleep(LINGER).await;
        }
        loop {
            let mut group = {
                let mut state = self.0.state.lock();
                if state.queue.is_empty() {
                    state.is_running = false;
                    return;
                }
                std::mem::take(&mut state.queue)
            };
            while !group.is_empty() {
                let admitted = self.admit(group);
                group = match self.publish_once(admitted).await {
                    Ok(again) => again,
                    Err(_) => return self.0.state.lock().queue.clear(),
                };
            }
        }
    }

    /// Finishes the batches that need no transaction, and returns the others.
    fn admit(&self, batches: Vec<QueuedBatch>) -> Vec<QueuedBatch> {
        let (now, mut admitted) = (Instant::now(), Vec::new());
        for batch in batches {
            let last = self.0.state.lock().committed.get(&batch.content.partition).copied();
            if batch.deadline <= now {
                let cause = failed("the lease has expired");
                batch.finish(PublishOutcome::Aborted { cause, reached: false });
            } else if last.is_some_and(|last| last >= batch.content.token) {
                batch.finish(PublishOutcome::Unknown(BrokerFailure::unknown("the token is not above the watermark")));
            } else {
                admitted.push(batch);
            }
        }
        admitted
    }

    /// Runs one transaction. Returns the batches that did not cause its abort.
    async fn publish_once(&self, batches: Vec<QueuedBatch>) -> Attempt {
        if batches.is_empty() {
            return Ok(batches);
        }
        let identity = {
            let mut state = self.0.state.lock();
            state.transaction += 1;
            let transaction = state.transaction;
            ProducerIdentity {
                transactional_id: Arc::clone(&self.0.transactional_id),
                epoch: self.0.epoch,
                transaction,
            }
        };
        match self.produce(&identity, &batches).await {
            Ok(ProduceResult::Written(positions)) => self.commit(&identity, batches, positions).await,
            Ok(ProduceResult::Refused(refused)) => self.abort_refused(&identity, batches, refused).await,
            Ok(ProduceResult::Fenced | ProduceResult::NotReady(_)) => {
                Err(self.end_with_batches(batches, SessionEnded::Lost))
            }
            Err(Error::Unknown(_)) => {
                if let Err(ended) = self.abort(&identity).await {
                    return Err(self.end_with_batches(batches, ended));
                }
                finish_aborted(batches, true)
            }
            Err(_) => finish_aborted(batches, false),
        }
    }

    async fn produce(&self, identity: &ProducerIdentity, batches: &[QueuedBatch]) -> Result<ProduceResult, Error> {
        loop {
            let contents: Vec<BatchRecords> = batches.iter().map(|batch| batch.content.clone()).collect();
            let (kafka, identity) = (self.0.kafka.clone(), identity.clone());
            let result = self.0.link.call("produce", async move { kafka.produce(&identity, &contents) }).await?;
            match result {
                // The markers of the last transaction come first.
                ProduceResult::NotReady(until) => sleep_until(until).await,
                result => return Ok(result),
            }
        }
    }

    async fn commit(
        &self,
        identity: &ProducerIdentity,
        batches: Vec<QueuedBatch>,
        positions: Vec<Vec<(RowId, Position)>>,
    ) -> Attempt {
        let now = Instant::now();
        let overdue: BTreeSet<PartitionNo> =
            batches.iter().filter(|batch| batch.deadline <= now).map(|batch| batch.content.partition).collect();
        if !overdue.is_empty() {
            if let Err(ended) = self.abort(identity).await {
                return Err(self.end_with_batches(batches, ended));
            }
            let (expired, again) = batches.into_iter().partition(|batch| overdue.contains(&batch.content.partition));
            finish_aborted(expired, true)?;
            return Ok(again);
        }
        if self.0.state.lock().is_ended {
            return Err(self.end_with_batches(batches, SessionEnded::Lost));
        }
        match self.request_end(identity, TransactionStatus::Committed).await {
            Ok(EndResult::Decided) => {
                for (batch, positions) in batches.into_iter().zip(positions) {
                    self.0.state.lock().committed.insert(batch.content.partition, batch.content.token);
                    batch.finish(PublishOutcome::Committed(positions));
                }
                Ok(Vec::new())
            }
            Ok(EndResult::Fenced) => Err(self.end_with_batches(batches, SessionEnded::Lost)),
            Err(_) => Err(self.end_with_batches(batches, SessionEnded::Unknown)),
        }
    }

    /// Aborts because of refused records. The batches without any are sent again.
    async fn abort_refused(
        &self,
        identity: &ProducerIdentity,
        batches: Vec<QueuedBatch>,
        refused: Vec<(usize, RowId, Error)>,
    ) -> Attempt {
        if let Err(ended) = self.abort(identity).await {
            return Err(self.end_with_batches(batches, ended));
        }
        let mut again = Vec::new();
        for (at, batch) in batches.into_iter().enumerate() {
            let of_batch = refused.iter().filter(|(index, ..)| *index == at);
            let rows: Vec<(RowId, Error)> = of_batch.map(|(_, row, error)| (*row, error.clone())).collect();
            if rows.is_empty() {
                again.push(batch);
            } else {
                batch.finish(PublishOutcome::RowsRefused(rows));
            }
        }
        Ok(again)
    }

    /// Requests the abort until it is confirmed.
    async fn abort(&self, identity: &ProducerIdentity) -> Result<(), SessionEnded> {
        for _ in 0..ABORTS_MAX {
            match self.request_end(identity, TransactionStatus::Aborted).await {
                Ok(EndResult::Decided) => return Ok(()),
                Ok(EndResult::Fenced) => return Err(SessionEnded::Lost),
                Err(_) => {}
            }
        }
        Err(SessionEnded::Unknown)
    }

    async fn request_end(&self, identity: &ProducerIdentity, status: TransactionStatus) -> Result<EndResult, Error> {
        let (kafka, identity) = (self.0.kafka.clone(), identity.clone());
        let name = if status == TransactionStatus::Committed { "commit_transaction" } else { "abort_transaction" };
        self.0.link.call(name, async move { kafka.end_transaction(&identity, status) }).await
    }

    /// Ends the session with these batches, all of which report one failure.
    fn end_with_batches(&self, batches: Vec<QueuedBatch>, ended: SessionEnded) -> SessionEnded {
        self.end();
        let failure = BrokerFailure::unknown("the session is over");
        let published = match ended {
            SessionEnded::Unknown => PublishOutcome::Unknown(failure),
            SessionEnded::Lost => PublishOutcome::SessionLost(failure),
        };
        batches.into_iter().for_each(|batch| batch.finish(published.clone()));
        ended
    }
}

/// Finishes the batches of a transaction that was aborted without a fault of theirs.
fn finish_aborted(batches: Vec<QueuedBatch>, reached: bool) -> Attempt {
    let cause = failed("the broker did not take the records");
    let aborted = PublishOutcome::Aborted { cause, reached };
    batches.into_iter().for_each(|batch| batch.finish(aborted.clone()));
    Ok(Vec::new())
}
