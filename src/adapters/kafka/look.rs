//! A thread that reads topics when it is asked. Questions about watermarks that queue up are answered with one read.
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::Token;
use ports::source::Delivery;
use ports::topics::TopicView;
use tokio::sync::oneshot;

use crate::contact::Contact;
use crate::message::delivery;
use crate::open::gone;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::reader::{Offsets, Reader, Settled, Then};
use crate::renewal::Trust;
use crate::watermarks;

/// Questions that may wait: all partitions of an outbox, and some.
const ASKS: usize = 4096;
/// How often an idle thread listens to its clients.
const LISTEN_EVERY: Duration = Duration::from_millis(500);
/// Longest read for an operator.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait for a transaction that is open: another application's may be for long, and then the end is before it.
const SETTLE_WITHIN: Duration = Duration::from_millis(500);
/// Most bytes of values one read returns.
const READ_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most records of one read.
const READ_MAX: u32 = 10_000;

type Answer<T> = oneshot::Sender<Result<T, Error>>;

/// A question.
pub(crate) enum Ask {
    Watermark { partition: u32, answer: Answer<Option<Token>> },
    List { answer: Answer<Vec<TopicView>> },
    Read { topic: String, partition: u32, offset: u64, limit: u32, answer: Answer<Vec<Delivery>> },
}

/// A hand on the thread, which ends when this is dropped.
pub(crate) struct Look {
    asks: SyncSender<Ask>,
}

impl Look {
    pub(crate) fn start(options: Arc<Options>, contact: Arc<Contact>, name: &str) -> Result<Self, OpenError> {
        let (asks, asked) = sync_channel(ASKS);
        let reader = Reader::new(&options, &contact).map_err(|error| OpenError::Options(error.to_string()))?;
        let work = Work { options, contact, reader, trust: Trust::default() };
        std::thread::Builder::new().name(name.into()).spawn(move || work.run(&asked))?;
        Ok(Self { asks })
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask<T>(&self, ask: impl FnOnce(Answer<T>) -> Ask) -> Result<T, Error> {
        let (answer, told) = oneshot::channel();
        let sent = self.asks.try_send(ask(answer));
        sent.map_err(|_| Error::Overloaded("too many questions about topics wait".into()))?;
        told.await.unwrap_or_else(|_| Err(gone()))
    }
}

struct Work {
    options: Arc<Options>,
    contact: Arc<Contact>,
    reader: Reader,
    trust: Trust,
}

impl Work {
    fn run(mut self, asked: &Receiver<Ask>) {
        loop {
            match asked.recv_timeout(LISTEN_EVERY) {
                Ok(first) => self.answer(std::iter::once(first).chain(asked.try_iter()).collect()),
                Err(RecvTimeoutError::Timeout) => self.reader.listen(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&mut self, asks: Vec<Ask>) {
        let mut partitions = Vec::new();
        for ask in asks {
            // Whoever asked may have gone: a look changes nothing.
            match ask {
                Ask::Watermark { partition, answer } => partitions.push((partition, answer)),
                Ask::List { answer } => {
                    let (begun, list) = (Instant::now(), self.list());
                    self.judge(begun, &list);
                    drop(answer.send(list));
                }
                Ask::Read { topic, partition, offset, limit, answer } => {
                    let (begun, read) = (Instant::now(), self.read(&topic, partition, offset, limit));
                    self.judge(begun, &read);
                    drop(answer.send(read));
                }
            }
        }
        if partitions.is_empty() {
            return;
        }
        let mut asked: Vec<u32> = partitions.iter().map(|(partition, _)| *partition).collect();
        asked.sort_unstable();
        asked.dedup();
        let begun = Instant::now();
        let mut read = watermarks::read(&self.reader, &self.options, &asked);
        if self.judge(begun, &read) {
            read = watermarks::read(&self.reader, &self.options, &asked);
        }
        for (partition, answer) in partitions {
            let told = read.as_ref().map(|found| found.get(&partition).copied().flatten()).map_err(Error::clone);
            drop(answer.send(told));
        }
    }

    /// A reader that reaches nobody for long is replaced: it may be what is wrong. Answers whether it was.
    fn judge<T>(&mut self, begun: Instant, answer: &Result<T, Error>) -> bool {
        // One that has lost its brokers knows no partition either; only whoever asks for what is not there is told so by a broker.
        let reached = matches!(answer, Ok(_) | Err(Error::Rejected(_)));
        let renewed = self.trust.renewed(reached, begun, || Reader::new(&self.options, &self.contact));
        renewed.map(|reader| self.reader = reader).is_some()
    }

    fn list(&self) -> Result<Vec<TopicView>, Error> {
        let ours = |name: &String| name.starts_with(&self.options.topic_prefix) && !name.starts_with("__");
        let topics: Vec<(String, u32)> = self.reader.topics()?.into_iter().filter(|(name, _)| ours(name)).collect();
        let each = |(name, size): &(String, u32)| (0..*size).map(|at| (name.clone(), at)).collect::<Vec<_>>();
        let names: Vec<(String, u32)> = topics.iter().flat_map(each).collect();
        let (firsts, ends) = (self.reader.firsts(&names)?, self.ends(&names)?);
        let place = |name: &(String, u32)| {
            let first = firsts.get(name).copied().unwrap_or(0);
            (first, ends.get(name).copied().unwrap_or(first))
        };
        let view = |(name, size): (String, u32)| {
            let partitions = (0..size).map(|at| place(&(name.clone(), at))).collect();
            TopicView { name, partitions }
        };
        Ok(topics.into_iter().map(view).collect())
    }

    /// A commit is answered before its markers stand in every partition: what was committed before this call is waited for, not long.
    fn ends(&self, names: &[(String, u32)]) -> Result<Offsets, Error> {
        self.reader.settled_ends(names, SETTLE_WITHIN).map(Settled::ends)
    }

    fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<Delivery>, Error> {
        let topics = self.reader.topics()?;
        match topics.get(topic) {
            Some(size) if partition < *size => {}
            Some(size) => {
                return Err(Error::Rejected(format!("topic {topic} has {size} partitions, none is {partition}")));
            }
            None => {
                let ours = topics
                    .keys()
                    .filter(|name| name.starts_with(&self.options.topic_prefix) && !name.starts_with("__"));
                let names: Vec<&str> = ours.map(String::as_str).collect();
                return Err(Error::Rejected(format!("there is no topic {topic}; there are: {}", names.join(", "))));
            }
        }
        let name = [(topic.to_owned(), partition)];
        let first = self.reader.firsts(&name)?.get(&name[0]).copied().unwrap_or(0);
        let end = self.ends(&name)?.get(&name[0]).copied().unwrap_or(0);
        let (from, limit) = (offset.max(first), limit.min(READ_MAX) as usize);
        if from >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let (shared, mut bytes, mut found): (Arc<str>, usize, Vec<Delivery>) = (topic.into(), 0, Vec::new());
        self.reader.read(topic, &[(partition, from)], Instant::now() + READ_WITHIN, |message| {
            let delivery = delivery(message, &shared);
            bytes += delivery.record.value.len();
            found.push(delivery);
            if found.len() >= limit || bytes >= READ_BYTES_MAX { Then::Stop } else { Then::GoOn }
        })?;
        Ok(found)
    }
}
