//! The sessions of this process, at most one live session for each slot. A slot's transactional id outlives its sessions; the id of a
//! session is never used again.
pub(crate) mod append_session;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ports::Error;
use ports::broker::{BrokerFailure, PublishOutcome};
use ports::partitions::ProducerSessionId;

use crate::connection::blocking_call::client_stopped;
use crate::connection::broker_contact::BrokerContact;
use crate::connection::shared_failure::SharedFailure;
use crate::options::{DeliveryGuarantee, Options};
use crate::producer::refused_sizes::RefusedSizes;
use crate::producer::sender::RecordSender;
use crate::producer::session::dead_sessions::DeadSessions;
use crate::producer::session::{SessionProducer, SessionThread};
use crate::producer::session_batch::SessionBatch;
use crate::producer::session_id::{self, SessionIdParts, WatermarkPartition};
use crate::producer::transaction;
use crate::producer::transactional_producer::{StepError, TransactionalProducer};
use crate::producer::unavailable_partitions::UnavailablePartitions;
use crate::protocol::settings::ConnectionSettings;
use crate::topics::watermark_cache::registration_key;
use append_session::{APPEND_SLOTS, AppendSession};

/// How many transactional ids are fenced at a time: each needs a producer of its own for a moment.
const FENCES_AT_A_TIME: usize = 32;
/// Pause before a fence is repeated that was itself fenced by another producer.
const FENCE_PAUSE: Duration = Duration::from_millis(50);

/// The live sessions of this process, and the dead ones that it knows.
pub(crate) struct SessionRegistry {
    options: Arc<Options>,
    settings: Arc<ConnectionSettings>,
    contact: Arc<BrokerContact>,
    live: Mutex<HashMap<ProducerSessionId, LiveSession>>,
    dead: DeadSessions,
    initialising: Mutex<HashMap<String, InitialisationLock>>,
    /// Sizes that the broker refused a moment ago, for all sessions.
    refused_sizes: Arc<Mutex<RefusedSizes>>,
    /// Topic partitions that took no records a moment ago, for all sessions.
    unavailable: UnavailablePartitions,
}

/// Held while a transactional id is initialised: two producers that do so at once fence each other. Holds the last failed fence.
type InitialisationLock = Arc<Mutex<SharedFailure>>;

struct LiveSession {
    transactional_id: String,
    queue: SyncSender<SessionBatch>,
    is_ended: Arc<AtomicBool>,
}

impl SessionRegistry {
    pub(crate) fn new(options: Arc<Options>, settings: Arc<ConnectionSettings>, contact: Arc<BrokerContact>) -> Self {
        let refused_sizes = Arc::new(Mutex::new(RefusedSizes::new(options.compression)));
        Self {
            options,
            settings,
            contact,
            live: Mutex::default(),
            dead: DeadSessions::default(),
            initialising: Mutex::default(),
            refused_sizes,
            unavailable: UnavailablePartitions::default(),
        }
    }

    /// Opens a session of this slot. Fences every earlier session with the same transactional id, in this process or another. Blocks.
    pub(crate) fn open(&self, slot: &str) -> Result<ProducerSessionId, Error> {
        self.try_open(slot).map_err(StepError::into_cause)
    }

    /// Opens the session that appends, after the last one has ended. Where the broker has accepted the abort of the last transaction and cannot
    /// complete it, the session gets the next slot: at once if this process began the transaction, else with the next call. Blocks.
    pub(crate) fn open_append(&self, append: &mut AppendSession) -> Result<ProducerSessionId, Error> {
        if append.take_session().is_some_and(|ended| self.dead.is_fenced(&ended)) {
            append.use_next_slot();
        }
        let result = self.try_open(append.slot());
        if matches!(result, Err(StepError::AbortPending(_))) {
            append.use_next_slot();
        }
        let result = result.map_err(StepError::into_cause);
        append.record_opening(&result);
        result
    }

    fn try_open(&self, slot: &str) -> Result<ProducerSessionId, StepError> {
        let transactional_id = self.options.transactional_id(&self.options.instance, slot);
        let initialisation = self.initialisation(&transactional_id);
        let _held = initialisation.lock();
        self.end_sessions(
            |_, live| live.transactional_id == transactional_id,
            "another session of its slot was opened",
        );
        let producer = match self.options.guarantee {
            DeliveryGuarantee::ExactlyOnce => {
                let mut producer = self.init_producer(&transactional_id)?;
                let partition =
                    self.watermark_partition(&mut producer, &transactional_id).map_err(StepError::Failed)?;
                if !APPEND_SLOTS.contains(&slot) {
                    self.register(&mut producer, &transactional_id, partition).map_err(StepError::Failed)?;
                }
                SessionProducer::Transactional(Box::new(producer), partition)
            }
            DeliveryGuarantee::AtLeastOnce => {
                let sender = RecordSender::open(&self.options, &self.contact).map_err(StepError::Failed)?;
                SessionProducer::AtLeastOnce(sender)
            }
        };
        let id = session_id::new(&transactional_id, producer.watermark_partition());
        let (queue, batches) = sync_channel(self.options.session_queue_max);
        let is_ended = Arc::new(AtomicBool::new(false));
        let thread = SessionThread::new(
            producer,
            Arc::clone(&self.contact),
            Arc::clone(&self.options),
            Arc::clone(&is_ended),
            Arc::clone(&self.refused_sizes),
            (id.clone(), self.dead.clone()),
        );
        std::thread::Builder::new().name(format!("kafka-session-{slot}")).spawn(move || thread.run(&batches)).map_err(
            |error| {
                let message = format!("cannot start the thread of producer session {slot}: {error}");
                StepError::Failed(Error::Overloaded(message))
            },
        )?;
        self.live.lock().insert(id.clone(), LiveSession { transactional_id, queue, is_ended });
        Ok(id)
    }

    /// Whether this is a live session of this process.
    pub(crate) fn is_live(&self, session: &ProducerSessionId) -> bool {
        self.live.lock().get(session).is_some_and(|live| !live.is_ended.load(Ordering::Relaxed))
    }

    /// Queues a batch for a session, or finishes it at once.
    pub(crate) fn enqueue(&self, session: &ProducerSessionId, batch: SessionBatch) {
        let mut sessions = self.live.lock();
        let queue = sessions.get(session).filter(|live| !live.is_ended.load(Ordering::Relaxed)).map(|live| &live.queue);
        let Some(queue) = queue else {
            if sessions.remove(session).is_some() {
                self.dead.insert_ended(session.clone());
            }
            drop(sessions);
            return batch.finish(PublishOutcome::SessionLost(BrokerFailure::unknown(format!(
                "{session} is not the live session of its slot"
            ))));
        };
        match queue.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(batch)) => {
                batch.finish(PublishOutcome::SessionLost(BrokerFailure::unknown(format!(
                    "the session {session} is over"
                ))));
            }
            Err(TrySendError::Full(batch)) => {
                let cause = Error::Overloaded(format!("the queue of {session} is full")).into();
                batch.finish(PublishOutcome::Aborted { cause, reached: false });
            }
        }
    }

    /// Ends a session, if it belongs to this process, and makes the broker abort the open transaction of its transactional id. One caller
    /// fences; concurrent callers wait for it and share its failure. Blocks.
    pub(crate) fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        let requested = Instant::now();
        if self.dead.is_fenced(session) {
            return Ok(());
        }
        let SessionIdParts { transactional_id, watermarks } = session_id::parse(session);
        let initialisation = self.initialisation(transactional_id);
        let mut last_failure = initialisation.lock();
        if self.dead.is_fenced(session) {
            return Ok(());
        }
        last_failure.since(requested)?;
        if watermarks == WatermarkPartition::None {
            // The slot may have a live session by now: without transactions, only this process can end one, and must not end a successor.
            self.end_sessions(|id, _| id == session, "it was fenced");
            return Ok(());
        }
        self.end_sessions(|_, live| live.transactional_id == transactional_id, "it was fenced");
        if let Err(error) = self.init_producer(transactional_id).map_err(StepError::into_cause) {
            last_failure.record(&error);
            return Err(error);
        }
        self.dead.insert_fenced(session.clone());
        Ok(())
    }

    /// Ends every session of these transactional ids, in this process or another, and makes the broker abort their open transactions. Blocks.
    pub(crate) fn fence_ids(&self, transactional_ids: &[String]) -> Result<(), Error> {
        call_in_parallel(transactional_ids, |id| self.fence_id(id))
    }

    /// Fences transactional ids and removes their registrations, as [`SessionRegistry::unregister_id`] does. Blocks.
    pub(crate) fn unregister_ids(&self, registrations: &[(String, BTreeSet<u32>)]) -> Result<(), Error> {
        call_in_parallel(registrations, |(id, partitions)| self.unregister_id(id, partitions))
    }

    fn fence_id(&self, transactional_id: &str) -> Result<(), Error> {
        self.fence_id_then(transactional_id, |_| Ok(()))
    }

    /// Fences this id as [`SessionRegistry::fence_ids`] does, and removes its registration from these partitions of the watermark topic. Each
    /// removal is a transaction of the id itself: it fails if the id's owner opens a session meanwhile, which registers the id again. Blocks.
    pub(crate) fn unregister_id(&self, transactional_id: &str, partitions: &BTreeSet<u32>) -> Result<(), Error> {
        self.fence_id_then(transactional_id, |producer| {
            let (topic, key) = (self.options.watermark_topic().into(), registration_key(transactional_id));
            self.load_watermark_topic(producer)?;
            partitions.iter().try_for_each(|partition| {
                transaction::commit_registration(producer, (&topic, *partition), (&key, None), &self.options)
            })
        })?;
        self.initialising.lock().remove(transactional_id);
        Ok(())
    }

    fn fence_id_then(
        &self,
        transactional_id: &str,
        then: impl FnOnce(&mut TransactionalProducer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let initialisation = self.initialisation(transactional_id);
        let _held = initialisation.lock();
        self.end_sessions(|_, live| live.transactional_id == transactional_id, "every session was fenced");
        then(&mut self.init_producer(transactional_id).map_err(StepError::into_cause)?)
    }

    /// Registers a transactional id in the watermark topic, in a transaction of its own: no batch is sent under an id that a fence of all ids
    /// would not find. Each session does, because another instance may have removed the registration when it fenced the session before.
    fn register(
        &self,
        producer: &mut TransactionalProducer,
        transactional_id: &str,
        partition: u32,
    ) -> Result<(), Error> {
        let (topic, key) = (self.options.watermark_topic().into(), registration_key(transactional_id));
        transaction::commit_registration(
            producer,
            (&topic, partition),
            (&key, Some(&self.options.installation)),
            &self.options,
        )
    }

    fn initialisation(&self, transactional_id: &str) -> InitialisationLock {
        Arc::clone(self.initialising.lock().entry(transactional_id.to_owned()).or_default())
    }

    fn end_sessions(&self, is_affected: impl Fn(&ProducerSessionId, &LiveSession) -> bool, reason: &str) {
        self.live.lock().retain(|id, session| {
            let ends = is_affected(id, session);
            if ends {
                session.is_ended.store(true, Ordering::Relaxed);
                self.dead.insert_ended(id.clone());
                tracing::debug!(event = "producer_session_ended", session = %id, reason, "a producer session was ended");
            }
            !ends
        });
    }

    fn load_watermark_topic(&self, producer: &mut TransactionalProducer) -> Result<(), Error> {
        let (topic, deadline) = (self.options.watermark_topic(), Instant::now() + self.options.connect_timeout);
        producer.cluster.load(std::iter::once(&*topic), deadline)?.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The partition of the watermark topic that belongs to a transactional id. Two ids may share one: then they only wait for each other.
    fn watermark_partition(&self, producer: &mut TransactionalProducer, transactional_id: &str) -> Result<u32, Error> {
        let topic = self.options.watermark_topic();
        self.load_watermark_topic(producer)?;
        let no_partitions = || Error::Unreachable(format!("the topic {topic} has no partitions yet"));
        let partitions = producer.cluster.partition_count(&topic).ok_or_else(no_partitions)?;
        Ok(outbox::partition::topic_partition(transactional_id.as_bytes(), partitions))
    }

    /// A new producer that has initialised the transactional id, and so fenced every earlier producer with it. Being fenced itself meanwhile
    /// is not a success: the other producer may be the one that was to be fenced, so the call is repeated with a new producer.
    fn init_producer(&self, transactional_id: &str) -> Result<TransactionalProducer, StepError> {
        let deadline = Instant::now() + self.options.delivery_timeout;
        loop {
            let (settings, unavailable) = (Arc::clone(&self.settings), self.unavailable.clone());
            match TransactionalProducer::initialise(settings, unavailable, &self.options, transactional_id, deadline) {
                Ok(producer) => {
                    self.contact.record_response();
                    self.dead.record_initialisation(transactional_id);
                    return Ok(producer);
                }
                Err(StepError::Fenced(_) | StepError::Unknown(_)) if Instant::now() < deadline => {
                    std::thread::sleep(FENCE_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Makes one call for each item, [`FENCES_AT_A_TIME`] at a time, until one fails.
fn call_in_parallel<T: Sync>(items: &[T], call: impl Fn(&T) -> Result<(), Error> + Sync) -> Result<(), Error> {
    for items in items.chunks(FENCES_AT_A_TIME) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| call(item))).collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(client_stopped())));
            results.collect::<Result<(), Error>>()
        })?;
    }
    Ok(())
}
