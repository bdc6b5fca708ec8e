//! KafkaClient: the broker's port as one process has it: its producer sessions, fences and watermark reads.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::{Batch, Broker, BrokerFailure, Position, PublishOutcome, Record};
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use tokio::time::{Instant, sleep};

use crate::cluster::kafka::at_least_once::AtLeastOnceSession;
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::kafka::refusals::RECORD_BYTES_MAX;
use crate::cluster::kafka::session::ProducerSession;
use crate::cluster::network::Link;

/// Longest wait for undecided transactions; the same as for a reply.
const DECISION_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two checks of undecided transactions.
const DECISION_PAUSE: Duration = Duration::from_millis(40);

/// The clients of one process. They end with it.
pub struct KafkaClient {
    kafka: SimulatedKafka,
    link: Link,
    mode: DeliveryGuarantee,
    /// The part of the transactional ids that names the instance.
    prefix: String,
    state: Mutex<ClientState>,
}

#[derive(Default)]
struct ClientState {
    live: BTreeMap<Arc<str>, LiveSession>,
    /// The highest epoch that this process has initialised for each transactional id: sessions below it are fenced.
    initialised: BTreeMap<Arc<str>, u32>,
    initialising: BTreeMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>,
}

/// A session of either mode.
#[derive(Clone)]
enum LiveSession {
    Transactional(ProducerSession),
    AtLeastOnce(AtLeastOnceSession),
}

impl LiveSession {
    fn number(&self) -> u32 {
        match self {
            LiveSession::Transactional(session) => session.epoch(),
            LiveSession::AtLeastOnce(session) => session.number(),
        }
    }

    fn end(&self) {
        match self {
            LiveSession::Transactional(session) => session.end(),
            LiveSession::AtLeastOnce(session) => session.end(),
        }
    }

    async fn publish(&self, batch: Batch) -> PublishOutcome {
        match self {
            LiveSession::Transactional(session) => session.publish(batch).await,
            LiveSession::AtLeastOnce(session) => session.publish(batch).await,
        }
    }
}

/// A request that raises a producer's epoch, and returns it.
type EpochRequest = fn(&SimulatedKafka, &Arc<str>) -> u32;

/// The transactional id and the epoch in a session's id. An id without an epoch is older than all others.
fn parse_session_id(session: &ProducerSessionId) -> (Arc<str>, u32) {
    let (transactional_id, epoch) = session.0.rsplit_once('#').unwrap_or((&*session.0, "0"));
    (transactional_id.into(), epoch.parse().unwrap_or(0))
}

impl KafkaClient {
    /// The clients of a new process of this instance.
    pub fn new(kafka: SimulatedKafka, link: Link, mode: DeliveryGuarantee, prefix: &str) -> Self {
        Self { kafka, link, mode, prefix: prefix.to_owned(), state: Mutex::default() }
    }

    fn initialisation(&self, transactional_id: &Arc<str>) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.state.lock().initialising.entry(Arc::clone(transactional_id)).or_default())
    }

    fn is_fenced(&self, transactional_id: &str, epoch: u32) -> bool {
        self.state.lock().initialised.get(transactional_id).is_some_and(|initialised| *initialised > epoch)
    }

    /// Ends the live session of this transactional id.
    fn end_session(&self, transactional_id: &str) {
        if let Some(session) = self.state.lock().live.remove(transactional_id) {
            session.end();
        }
    }

    /// Raises the epoch of a transactional id by this request. The caller holds its lock.
    async fn raise_epoch(&self, transactional_id: &Arc<str>, request: EpochRequest) -> Result<u32, Error> {
        self.end_session(transactional_id);
        let (kafka, id) = (self.kafka.clone(), Arc::clone(transactional_id));
        let epoch = self.link.call("init", async move { request(&kafka, &id) }).await;
        let epoch = epoch.map_err(|error| Error::Unreachable(error.to_string()))?;
        let mut state = self.state.lock();
        let initialised = state.initialised.entry(Arc::clone(transactional_id)).or_default();
        *initialised = epoch.max(*initialised);
        Ok(epoch)
    }

    /// Repeats a read until no transaction that it waits for is undecided.
    async fn decided<T: Send + 'static>(
        &self,
        read: impl Fn(&SimulatedKafka) -> Result<T, ()> + Clone + Send + Sync + 'static,
    ) -> Result<T, Error> {
        let started = Instant::now();
        while started.elapsed() < DECISION_TIMEOUT {
            let (kafka, read) = (self.kafka.clone(), read.clone());
            let result = self.link.call("watermark", async move { read(&kafka) }).await;
            match result.map_err(|error| Error::Unreachable(error.to_string()))? {
                Ok(value) => return Ok(value),
                Err(()) => sleep(DECISION_PAUSE).await,
            }
        }
        Err(Error::Unreachable("a transaction stays open".into()))
    }
}

#[async_trait]
impl Broker for KafkaClient {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        let transactional_id: Arc<str> = format!("{}-{slot}", self.prefix).into();
        let initialisation = self.initialisation(&transactional_id);
        let _held = initialisation.lock().await;
        let epoch = self.raise_epoch(&transactional_id, SimulatedKafka::init_producer).await?;
        let (kafka, link) = (self.kafka.clone(), self.link.clone());
        let session = match self.mode {
            DeliveryGuarantee::ExactlyOnce => {
                let id = Arc::clone(&transactional_id);
                LiveSession::Transactional(ProducerSession::new(kafka, link, id, epoch))
            }
            DeliveryGuarantee::AtLeastOnce => LiveSession::AtLeastOnce(AtLeastOnceSession::new(kafka, link, epoch)),
        };
        self.state.lock().live.insert(Arc::clone(&transactional_id), session);
        Ok(ProducerSessionId(format!("{transactional_id}#{epoch}").into()))
    }

    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let (transactional_id, epoch) = parse_session_id(session);
        let live = self.state.lock().live.get(&transactional_id).filter(|live| live.number() == epoch).cloned();
        match live {
            Some(live) => live.publish(batch).await,
            None => PublishOutcome::SessionLost(BrokerFailure::unknown(format!("{session} is not live"))),
        }
    }

    async fn watermark(
        &self,
        partition: PartitionNo,
        fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        let awaited = fenced.map(|session| SimulatedKafka::watermark_partition(&parse_session_id(session).0));
        self.decided(move |kafka| kafka.watermark(partition, awaited)).await
    }

    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        let (transactional_id, epoch) = parse_session_id(session);
        let initialisation = self.initialisation(&transactional_id);
        let _held = initialisation.lock().await;
        if self.mode == DeliveryGuarantee::AtLeastOnce {
            self.end_session(&transactional_id);
        } else if !self.is_fenced(&transactional_id, epoch) {
            self.raise_epoch(&transactional_id, SimulatedKafka::fence_producer).await?;
        }
        Ok(())
    }

    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        let mut fenced: BTreeSet<Arc<str>> = BTreeSet::new();
        loop {
            let kafka = self.kafka.clone();
            let ids = self.link.call("list", async move { kafka.transactional_ids() }).await;
            let ids = ids.map_err(|error| Error::Unreachable(error.to_string()))?;
            let unfenced: Vec<Arc<str>> = ids.difference(&fenced).cloned().collect();
            if unfenced.is_empty() {
                return self.decided(SimulatedKafka::all_watermarks).await;
            }
            for id in unfenced {
                let initialisation = self.initialisation(&id);
                let _held = initialisation.lock().await;
                self.raise_epoch(&id, SimulatedKafka::fence_producer).await?;
                fenced.insert(id);
            }
        }
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        if records.iter().any(|record| record.value.len() > RECORD_BYTES_MAX) {
            return Err(Error::Rejected("a record is too large".into()));
        }
        let kafka = self.kafka.clone();
        self.link.call("append", async move { records.into_iter().map(|record| kafka.append(record)).collect() }).await
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }
}
