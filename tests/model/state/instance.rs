//! An instance: a process with transactional producers and one worker for each partition that it owns.
use crate::configuration::{Configuration, PARTITIONS_MAX, PRODUCERS_MAX};
use crate::state::event_set::EventSet;
use crate::state::statement::ScanStart;

/// State of a transactional producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProducerStatus {
    /// No session: it must be initialised.
    #[default]
    Closed,
    /// A session without a transaction.
    Idle,
    /// A transaction is open.
    InTransaction,
    /// The commit was requested, and no reply has arrived.
    Committing,
}

/// A transactional producer and its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Producer {
    pub status: ProducerStatus,
    /// Epoch that its session received.
    pub epoch: u8,
    /// Whether a batch of its transaction must not be sent, so that the transaction is aborted.
    pub must_abort: bool,
}

/// Stage of a worker's batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchStage {
    /// The worker has no batch.
    #[default]
    Absent,
    /// A claim waits at the store; its reply will arrive.
    Claiming,
    /// Claimed, and not part of a transaction.
    Claimed,
    /// Its records and its watermark are part of the producer's transaction.
    Sent,
    /// Committed on the broker, not settled.
    Committed,
}

/// The batch of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    pub stage: BatchStage,
    pub token: u8,
    /// Rows that the worker sends.
    pub rows: EventSet,
    /// Rows that the broker acknowledged; only without transactions.
    pub acknowledged: EventSet,
    /// A row that the broker refused: it must be excluded before the rest is sent again.
    pub refused: Option<u8>,
    /// Rows that failed and are excluded only by the settlement; only where that rule is broken.
    pub failed: EventSet,
    /// Number of the producer of the claim's session.
    pub producer: u8,
    pub is_trial: bool,
}

/// How far a worker's acquisition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No lease, or no knowledge of its state: the next step is an acquisition.
    #[default]
    NotAcquired,
    /// Acquired with an open batch, whose transactional id is not fenced yet.
    Acquired,
    /// The former id is fenced.
    Fenced,
    /// The watermark is read before the fence; only where that rule is broken.
    WatermarkReadUnfenced,
    /// The watermark is read.
    WatermarkRead,
    /// No batch is open; the counter was not compared with the watermarks of all ids yet.
    CounterUnchecked,
    /// The worker may claim and settle.
    Ready,
}

/// The knowledge of a partition's worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    pub phase: Phase,
    pub epoch: u8,
    /// The counter after the worker's latest statement.
    pub counter: u8,
    /// Transactional id of the batch that a former claimer left open.
    pub former_id: Option<u8>,
    /// Token of that batch.
    pub open_token: u8,
    /// Watermark read for it.
    pub watermark: u8,
    /// Remembered in the process only.
    pub scan: ScanStart,
    /// After a panic the producer still has it, until its session is fenced.
    pub batch: Batch,
}

/// A process with its producers and workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instance {
    pub is_alive: bool,
    /// Timeline of the store at its latest session.
    pub timeline: u8,
    /// The producer that the next transaction uses.
    pub next_producer: u8,
    pub producers: [Producer; PRODUCERS_MAX],
    pub workers: [Worker; PARTITIONS_MAX],
}

impl Instance {
    /// Removes the worker's knowledge: the next step is an acquisition.
    pub fn remove(&mut self, partition: usize) {
        self.workers[partition] = Worker::default();
    }

    /// Ends a producer session. All its claims, unsent ones too, go to resolution under a higher epoch.
    pub fn end_session(&mut self, producer: usize, keeps_unsent_claims: bool) {
        self.producers[producer] = Producer::default();
        for partition in 0..PARTITIONS_MAX {
            let worker = &mut self.workers[partition];
            let is_open = match worker.batch.stage {
                BatchStage::Sent | BatchStage::Claiming => true,
                BatchStage::Claimed => !keeps_unsent_claims,
                BatchStage::Absent | BatchStage::Committed => false,
            };
            if is_open && worker.batch.producer as usize == producer {
                worker.batch = Batch::default();
                worker.phase = if worker.phase == Phase::Ready { Phase::NotAcquired } else { worker.phase };
            }
        }
    }

    /// Whether a worker of this instance holds a batch, and whether one of them is a trial.
    pub fn work(&self) -> (bool, bool) {
        let mut open = self.workers.iter().filter(|worker| worker.batch.stage != BatchStage::Absent).peekable();
        (open.peek().is_some(), open.any(|worker| worker.batch.is_trial))
    }

    /// Partitions whose batch is in this stage under this producer.
    pub fn batches(
        &self,
        config: &Configuration,
        producer: usize,
        stage: BatchStage,
    ) -> impl Iterator<Item = usize> + use<> {
        let workers = self.workers;
        (0..config.partitions).filter(move |partition| {
            let batch = &workers[*partition].batch;
            batch.stage == stage && batch.producer as usize == producer
        })
    }
}

/// The transactional id of an instance's producer.
pub fn transactional_id(instance: usize, producer: usize) -> usize {
    instance * PRODUCERS_MAX + producer
}
