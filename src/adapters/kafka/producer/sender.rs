//! Sends records through one producer and waits for their delivery reports, on the session's thread.
//!
//! rdkafka's `flush`, which its `commit_transaction` calls first, polls in steps of 100 ms, and its `poll` always takes its whole timeout.
//! So the sender waits for the delivery reports in small steps before the session commits: then a commit takes less than a millisecond.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Record;
use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::connection::broker_contact::BrokerContact;
use crate::error::map_err;
use crate::message::encode_headers;
use crate::producer::delivery_reports::DeliveryContext;

/// First pause between two polls for delivery reports; short, because the commit of an idle session takes two milliseconds.
const POLL_PAUSE_MIN: Duration = Duration::from_micros(50);
/// Longest pause between two polls: a broker that takes longer takes much longer.
const POLL_PAUSE_MAX: Duration = Duration::from_micros(500);
/// How long to wait for delivery reports while no broker is reachable.
pub(crate) const OUTAGE_WAIT: Duration = Duration::from_secs(1);
/// Most events of the client that one poll serves.
const EVENTS_MAX: usize = 256;

/// A producer and its delivery reports.
pub(crate) struct RecordSender {
    pub(crate) producer: BaseProducer<DeliveryContext>,
}

/// How the wait for delivery reports ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryWait {
    /// Every record has its report, or one delivery failed.
    Reported,
    /// The deadline passed, or no broker is reachable.
    TimedOut,
}

impl RecordSender {
    /// Creates a producer and reads metadata: `init_transactions` on a connection that was never used waits half a second for a timer of
    /// librdkafka.
    pub(crate) fn open(
        config: &ClientConfig,
        contact: &Arc<BrokerContact>,
        topic: &str,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let action = "opening a producer";
        let producer = BaseProducer::from_config_and_context(config, DeliveryContext::new(Arc::clone(contact)))
            .map_err(|error| map_err(&error, action))?;
        let sender = Self { producer };
        match sender.producer.client().fetch_metadata(Some(topic), timeout) {
            Ok(_) => contact.record_response(),
            Err(error) => return Err(map_err(&error, action)),
        }
        Ok(sender)
    }

    /// Whether this client can read metadata from any broker.
    pub(crate) fn reaches_a_broker(&self, topic: &str) -> bool {
        self.producer.client().fetch_metadata(Some(topic), OUTAGE_WAIT).is_ok()
    }

    pub(crate) fn context(&self) -> &DeliveryContext {
        self.producer.context()
    }

    /// Serves the client's callbacks, delivery reports among them, without waiting.
    pub(crate) fn serve_events(&self) {
        for _ in 0..EVENTS_MAX {
            let before = self.producer.in_flight_count();
            self.producer.poll(Duration::ZERO);
            if self.producer.in_flight_count() == before {
                return;
            }
        }
    }

    /// Queues one record in the client; waits while the client's queue is full, until `deadline`.
    pub(crate) fn send(&self, record: &Record, slot: usize, deadline: Instant) -> Result<(), KafkaError> {
        let mut base = BaseRecord::with_opaque_to(&record.topic, self.context().reports().number(slot))
            .key(record.key.as_bytes())
            .payload(&*record.value)
            .timestamp(record.timestamp.millis());
        if !record.headers.is_empty() {
            base = base.headers(encode_headers(&record.headers));
        }
        self.enqueue(base, deadline)
    }

    /// Queues a watermark record in the client, for this topic partition, like [`RecordSender::send`].
    pub(crate) fn send_watermark(
        &self,
        (topic, partition): (&str, u32),
        key: &str,
        value: &str,
        slot: usize,
        deadline: Instant,
    ) -> Result<(), KafkaError> {
        let number = self.context().reports().number(slot);
        let base = BaseRecord::with_opaque_to(topic, number).partition(partition as i32).key(key).payload(value);
        self.enqueue(base, deadline)
    }

    fn enqueue<K, P>(&self, mut record: BaseRecord<'_, K, P, usize>, deadline: Instant) -> Result<(), KafkaError>
    where
        K: rdkafka::message::ToBytes + ?Sized,
        P: rdkafka::message::ToBytes + ?Sized,
    {
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(Code::QueueFull), returned)) if Instant::now() < deadline => {
                    record = returned;
                    self.serve_events();
                    std::thread::sleep(POLL_PAUSE_MAX);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }

    /// Waits until every record of the round has its report, one delivery failed, or `deadline` passed.
    pub(crate) fn wait_for_reports(&self, deadline: Instant) -> DeliveryWait {
        let (started, mut pause) = (Instant::now(), POLL_PAUSE_MIN);
        loop {
            self.serve_events();
            let (open, failed) = {
                let reports = self.context().reports();
                (reports.open(), reports.failed())
            };
            if open == 0 || failed > 0 {
                return DeliveryWait::Reported;
            }
            let now = Instant::now();
            let is_outage = self.context().contact().is_unreachable() && now - started > OUTAGE_WAIT;
            if is_outage || now >= deadline || self.producer.client().fatal_error().is_some() {
                return DeliveryWait::TimedOut;
            }
            std::thread::sleep(pause);
            pause = (pause + pause / 8).min(POLL_PAUSE_MAX);
        }
    }
}
