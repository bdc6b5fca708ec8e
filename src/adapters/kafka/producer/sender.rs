//! Sends records without transactions through one producer of librdkafka, on the session's thread.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Record;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::connection::broker_contact::BrokerContact;
use crate::connection::client_config;
use crate::connection::message::encode_headers;
use crate::error::map_err;
use crate::options::Options;
use crate::producer::delivery_reports::DeliveryContext;

/// Pause before a record is offered again to a client whose queue is full.
const QUEUE_PAUSE: Duration = Duration::from_micros(500);
/// How long to wait for the broker's answers while no broker is reachable.
pub(crate) const OUTAGE_WAIT: Duration = Duration::from_secs(1);
/// Most events of the client that one poll serves.
const EVENTS_MAX: usize = 256;

/// A producer and its delivery reports.
pub(crate) struct RecordSender {
    pub(crate) producer: BaseProducer<DeliveryContext>,
    /// The topics without which the relay cannot work.
    pub(crate) own_topics: Vec<String>,
}

impl RecordSender {
    /// Creates a producer and reads metadata, so that an unreachable broker is an error here.
    pub(crate) fn open(options: &Options, contact: &Arc<BrokerContact>) -> Result<Self, Error> {
        let (config, action) = (client_config::plain_producer(options), "opening a producer");
        let producer = BaseProducer::from_config_and_context(&config, DeliveryContext::new(Arc::clone(contact)))
            .map_err(|error| map_err(&error, action))?;
        let sender = Self { producer, own_topics: options.own_topics() };
        let topic = options.first_topic();
        match sender.producer.client().fetch_metadata(Some(&topic), options.connect_timeout) {
            Ok(_) => contact.record_response(),
            Err(error) => return Err(map_err(&error, action)),
        }
        Ok(sender)
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
    pub(crate) fn send(&self, record: &Record, index: usize, deadline: Instant) -> Result<(), KafkaError> {
        let mut base: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&record.topic, self.context().reports().number(index))
                .timestamp(record.timestamp.millis());
        (base.key, base.payload) = (record.key_bytes(), record.value_bytes());
        if !record.headers.is_empty() {
            base = base.headers(encode_headers(&record.headers));
        }
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
                    std::thread::sleep(QUEUE_PAUSE);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }
}
