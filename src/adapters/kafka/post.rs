//! A producer in the hands of its own thread: sending, waiting for what becomes of it, and no more. What follows is decided elsewhere.
//!
//! The wrapper's `flush`, which its `commit_transaction` calls first, polls in steps of 100 ms, and its `poll` always takes its whole
//! time. So deliveries are awaited here, in small steps, before anything is committed: then a commit takes below a millisecond.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Record;
use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::contact::Contact;
use crate::deliveries::Deliveries;
use crate::{error, headers};

/// Between two looks at deliveries: the first ones soon, because an idle commit takes two milliseconds.
const LOOK_FIRST: Duration = Duration::from_micros(50);
/// Later ones less often, because a broker that takes longer takes much longer.
const LOOK_LAST: Duration = Duration::from_micros(500);
/// When no broker is there, this much waiting is enough to know it.
pub(crate) const AWAY_PATIENCE: Duration = Duration::from_secs(1);
/// Most events of the client that one look takes.
const EVENTS_MAX: usize = 256;

/// A producer and its table of deliveries.
pub(crate) struct Post {
    pub(crate) producer: BaseProducer<Deliveries>,
}

/// How waiting for deliveries ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Each record is answered for, or the first was refused.
    Answered,
    /// Time is up, or nobody is there.
    InVain,
}

impl Post {
    /// A producer that knows its brokers already: asking for metadata first saves half a second of its first call.
    pub(crate) fn open(
        config: &ClientConfig,
        contact: &Arc<Contact>,
        topic: &str,
        within: Duration,
    ) -> Result<Self, Error> {
        let doing = "opening a producer";
        let producer = BaseProducer::from_config_and_context(config, Deliveries::new(Arc::clone(contact)))
            .map_err(|error| error::of(&error, doing))?;
        let post = Self { producer };
        match post.producer.client().fetch_metadata(Some(topic), within) {
            Ok(_) => contact.heard(),
            Err(error) => return Err(error::of(&error, doing)),
        }
        Ok(post)
    }

    /// Whether this client finds a broker to ask.
    pub(crate) fn reaches_a_broker(&self, topic: &str) -> bool {
        self.producer.client().fetch_metadata(Some(topic), AWAY_PATIENCE).is_ok()
    }

    pub(crate) fn deliveries(&self) -> &Deliveries {
        self.producer.context()
    }

    /// Serves what the client has to say, without waiting.
    pub(crate) fn look(&self) {
        for _ in 0..EVENTS_MAX {
            let before = self.producer.in_flight_count();
            self.producer.poll(Duration::ZERO);
            if self.producer.in_flight_count() == before {
                return;
            }
        }
    }

    /// Hands one record over; a full queue of the client is waited for.
    pub(crate) fn send(&self, record: &Record, line: usize, until: Instant) -> Result<(), KafkaError> {
        let mut base = BaseRecord::with_opaque_to(&record.topic, self.deliveries().sheet().number(line))
            .key(record.key.as_bytes())
            .payload(&*record.value)
            .timestamp(record.timestamp.millis());
        if !record.headers.is_empty() {
            base = base.headers(headers::encode(&record.headers));
        }
        self.hand_over(base, until)
    }

    /// Hands a watermark over.
    pub(crate) fn mark(
        &self,
        topic: &str,
        partition: u32,
        value: &str,
        line: usize,
        until: Instant,
    ) -> Result<(), KafkaError> {
        let key = partition.to_string();
        let number = self.deliveries().sheet().number(line);
        let base = BaseRecord::with_opaque_to(topic, number).partition(partition as i32).key(&key).payload(value);
        self.hand_over(base, until)
    }

    fn hand_over<K, P>(&self, mut record: BaseRecord<'_, K, P, usize>, until: Instant) -> Result<(), KafkaError>
    where
        K: rdkafka::message::ToBytes + ?Sized,
        P: rdkafka::message::ToBytes + ?Sized,
    {
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(Code::QueueFull), back)) if Instant::now() < until => {
                    record = back;
                    self.look();
                    std::thread::sleep(LOOK_LAST);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }

    /// Waits until all records of the round are answered for, or one was refused, or `until`.
    pub(crate) fn wait(&self, until: Instant) -> Waited {
        let (begun, mut pause) = (Instant::now(), LOOK_FIRST);
        loop {
            self.look();
            let (open, failed) = {
                let sheet = self.deliveries().sheet();
                (sheet.open(), sheet.failed())
            };
            if open == 0 || failed > 0 {
                return Waited::Answered;
            }
            let now = Instant::now();
            let nobody = self.deliveries().contact().is_away() && now - begun > AWAY_PATIENCE;
            if nobody || now >= until || self.producer.client().fatal_error().is_some() {
                return Waited::InVain;
            }
            std::thread::sleep(pause);
            pause = (pause + pause / 8).min(LOOK_LAST);
        }
    }
}
