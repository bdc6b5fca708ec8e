//! Reading partitions by name, outside any group: how far they go, and what stands in them. Committed records only.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};

use crate::contact::{Contact, Ears};
use crate::options::Options;
use crate::{client, error};

/// A bulk question is one request to each broker.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at a transaction that is open.
const SETTLE_EVERY: Duration = Duration::from_millis(3);
/// How long new leaders may take: a second where a broker has time, more where it has none.
const LEADERS_WITHIN: Duration = Duration::from_secs(5);
/// Between two questions to them.
const LEADERS_EVERY: Duration = Duration::from_millis(10);
/// One question who they are.
const LEADERS_TOLD: Duration = Duration::from_secs(1);
/// One wait for messages.
const POLL: Duration = Duration::from_millis(20);

/// Offsets of topic partitions.
pub(crate) type Offsets = BTreeMap<(String, u32), u64>;

/// Two clients: one sees what is committed, the other one also what is still open.
pub(crate) struct Reader {
    committed: BaseConsumer<Ears>,
    everything: BaseConsumer<Ears>,
    contact: Arc<Contact>,
}

/// Where partitions end.
pub(crate) enum Settled {
    /// Nothing below is undecided.
    All(Offsets),
    /// A transaction was still open when the time was up.
    Not {
        /// What is decided.
        ends: Offsets,
        /// A partition on which it is open.
        open: (String, u32),
    },
}

impl Settled {
    /// As far as it is decided.
    pub(crate) fn ends(self) -> Offsets {
        match self {
            Settled::All(ends) | Settled::Not { ends, .. } => ends,
        }
    }
}

/// What a reader of messages wants next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    Stop,
}

impl Reader {
    pub(crate) fn new(options: &Options, contact: &Arc<Contact>) -> KafkaResult<Self> {
        let ears = Ears(Arc::clone(contact));
        Ok(Self {
            committed: BaseConsumer::from_config_and_context(&client::reading(options), ears.clone())?,
            everything: BaseConsumer::from_config_and_context(&client::measuring(options), ears)?,
            contact: Arc::clone(contact),
        })
    }

    /// Hears what the clients have to say by themselves.
    pub(crate) fn listen(&self) {
        while self.committed.poll(Duration::ZERO).is_some() {}
        while self.everything.poll(Duration::ZERO).is_some() {}
    }

    /// The first offsets still kept.
    pub(crate) fn firsts(&self, of: &[(String, u32)]) -> Result<Offsets, Error> {
        self.offsets(&self.committed, of, Offset::Beginning)
    }

    /// The last stable offsets: nothing below them is undecided.
    fn stable_ends(&self, of: &[(String, u32)]) -> Result<Offsets, Error> {
        self.offsets(&self.committed, of, Offset::End)
    }

    /// Where the partitions end, once nothing that had begun when this was called is undecided: both ends are asked after it, the high
    /// one first.
    pub(crate) fn settled_ends(&self, of: &[(String, u32)], within: Duration) -> Result<Settled, Error> {
        let until = Instant::now() + within;
        let high = self.high_ends(of)?;
        loop {
            let ends = self.stable_ends(of)?;
            match of.iter().find(|name| ends.get(*name) < high.get(*name)) {
                None => return Ok(Settled::All(ends)),
                Some(open) if Instant::now() > until => return Ok(Settled::Not { ends, open: open.clone() }),
                Some(_) => std::thread::sleep(SETTLE_EVERY),
            }
        }
    }

    /// Where the partitions end, open transactions included.
    fn high_ends(&self, of: &[(String, u32)]) -> Result<Offsets, Error> {
        self.offsets(&self.everything, of, Offset::End)
    }

    /// Asks until all partitions answer: a topic that was just made is known before its brokers lead it.
    fn offsets(&self, client: &BaseConsumer<Ears>, of: &[(String, u32)], which: Offset) -> Result<Offsets, Error> {
        let until = Instant::now() + LEADERS_WITHIN;
        loop {
            match self.offsets_once(client, of, which) {
                Ok(offsets) if offsets.len() == of.len() => return Ok(offsets),
                Err(error) if Instant::now() > until || !passes(&error) || self.contact.is_away() => return Err(error),
                Ok(_) if Instant::now() > until => {
                    return Err(Error::Unreachable("some partitions did not tell how far they go".into()));
                }
                Ok(_) => {}
                // The client asks the leaders it knew, and may learn of new ones once a minute. What this brings shows in the next try.
                Err(_) => drop(of.first().map(|(topic, _)| client.fetch_metadata(Some(topic), LEADERS_TOLD))),
            }
            std::thread::sleep(LEADERS_EVERY);
        }
    }

    /// A question for a time may also name an end of the log: then it is one request for any number of partitions.
    fn offsets_once(&self, client: &BaseConsumer<Ears>, of: &[(String, u32)], which: Offset) -> Result<Offsets, Error> {
        if of.is_empty() {
            return Ok(Offsets::new());
        }
        let doing = "asking how far partitions go";
        let asked = list(of.iter().map(|(topic, partition)| (topic.as_str(), *partition, which)))?;
        let told = client.offsets_for_times(asked, ASK_WITHIN).map_err(|error| unsettled(&error, doing))?;
        self.contact.heard();
        let mut offsets = Offsets::new();
        for element in told.elements() {
            element.error().map_err(|error| unsettled(&error, doing))?;
            // One that was not answered still names the end it was asked for.
            let Offset::Offset(offset) = element.offset() else { continue };
            offsets.insert((element.topic().to_owned(), element.partition().unsigned_abs()), offset.unsigned_abs());
        }
        Ok(offsets)
    }

    /// Reads partitions of one topic, each from its offset to its last stable offset, until `take` has enough.
    pub(crate) fn read(
        &self,
        topic: &str,
        from: &[(u32, u64)],
        until: Instant,
        mut take: impl FnMut(&BorrowedMessage<'_>) -> Then,
    ) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let doing = format!("reading topic {topic}");
        let wanted = from.iter().map(|(partition, offset)| (topic, *partition, Offset::Offset(*offset as i64)));
        self.committed.assign(&list(wanted)?).map_err(|error| error::of(&error, &doing))?;
        let read = self.read_assigned(from.len(), until, &doing, &mut take);
        self.committed.unassign().map_err(|error| error::of(&error, &doing))?;
        read
    }

    fn read_assigned(
        &self,
        partitions: usize,
        until: Instant,
        doing: &str,
        take: &mut impl FnMut(&BorrowedMessage<'_>) -> Then,
    ) -> Result<(), Error> {
        let mut ended = std::collections::BTreeSet::new();
        while ended.len() < partitions {
            if Instant::now() > until {
                return Err(Error::Unreachable(format!("{doing}: not at its end in time")));
            }
            match self.committed.poll(POLL) {
                // One that was appended behind its end meanwhile was not asked for.
                Some(Ok(message)) if ended.contains(&message.partition()) => {}
                Some(Ok(message)) => match take(&message) {
                    Then::GoOn => {}
                    Then::Stop => return Ok(()),
                },
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                Some(Err(error)) => match error::of(&error, doing) {
                    // The client tries again by itself, until our time is up.
                    error if passes(&error) => {}
                    other => return Err(other),
                },
                None => {}
            }
        }
        Ok(())
    }

    /// Topics by name, with their numbers of partitions.
    pub(crate) fn topics(&self) -> Result<BTreeMap<String, u32>, Error> {
        let metadata = self.everything.fetch_metadata(None, ASK_WITHIN);
        let metadata = metadata.map_err(|error| error::of(&error, "asking for the topics"))?;
        self.contact.heard();
        let size =
            |topic: &rdkafka::metadata::MetadataTopic| (topic.name().to_owned(), topic.partitions().len() as u32);
        Ok(metadata.topics().iter().map(size).collect())
    }
}

/// The port's error. A partition that the client itself does not know may be one whose leader it has not learnt.
fn unsettled(error: &KafkaError, doing: &str) -> Error {
    match error.rdkafka_error_code() {
        Some(Code::UnknownPartition) => Error::Unreachable(format!("{doing}: {error}")),
        _ => error::of(error, doing),
    }
}

/// Whether trying again may help.
fn passes(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_) | Error::Unknown(_))
}

fn list<'a>(of: impl Iterator<Item = (&'a str, u32, Offset)>) -> Result<TopicPartitionList, Error> {
    let mut list = TopicPartitionList::new();
    for (topic, partition, offset) in of {
        let added = list.add_partition_offset(topic, partition as i32, offset);
        added.map_err(|error| error::of(&error, "naming partitions"))?;
    }
    Ok(list)
}
