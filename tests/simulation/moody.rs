//! A broker with opinions about single records: it refuses, breaks or kills as it is told, and remembers what it was handed.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::{Batch, Broker, Position, Published, Record};
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use tokio::time::Instant;

/// What a record meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// The broker refuses it, for now.
    RefuseForNow,
    /// The broker refuses it for ever.
    RefuseForEver,
    /// The whole batch is aborted after it reached the broker; no record is to blame.
    Break,
    /// Whoever hands it over dies.
    Kill,
}

/// One record, handed over.
#[derive(Clone, Debug)]
pub struct Handed {
    /// When.
    pub at: Instant,
    /// Whose.
    pub key: String,
    /// Its place in its key's line.
    pub sequence: u64,
}

type Picks = Box<dyn Fn(&Record) -> bool + Send>;

struct Rule {
    picks: Picks,
    mood: Mood,
    left: usize,
}

/// The hand on a [`Moody`] broker. Clones are the same.
#[derive(Clone, Default)]
pub struct Moods(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    handed: Mutex<Vec<Handed>>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Moods {
    /// The next `times` records that `picks` picks meet this.
    pub fn add(&self, times: usize, mood: Mood, picks: impl Fn(&Record) -> bool + Send + 'static) {
        self.0.rules.lock().push(Rule { picks: Box::new(picks), mood, left: times });
    }

    /// No mood any more.
    pub fn calm(&self) {
        self.0.rules.lock().clear();
    }

    /// Everything handed over so far, refused or not.
    pub fn handed(&self) -> Vec<Handed> {
        self.0.handed.lock().clone()
    }

    /// Most batches that were under way at once.
    pub fn most_in_flight(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    fn meet(&self, record: &Record) -> Option<Mood> {
        let mut rules = self.0.rules.lock();
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && (rule.picks)(record))?;
        rule.left -= 1;
        Some(rule.mood)
    }

    fn note(&self, batch: &Batch) {
        let at = Instant::now();
        let handed = batch.records.iter().map(|(_, record)| Handed {
            at,
            key: record.key.to_string(),
            sequence: header(record, "x-sequence").parse().expect("a sequence is a number"),
        });
        self.0.handed.lock().extend(handed);
    }
}

/// A header's text; empty where it is missing.
pub fn header(record: &Record, name: &str) -> String {
    let found = record.headers.iter().find(|(header, _)| &**header == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// The broker. Its lanes begin at `first_lane`, so that two services share one real broker and no lane.
pub struct Moody {
    real: Arc<dyn Broker>,
    moods: Moods,
    first_lane: u32,
}

impl Moody {
    /// Around this one.
    pub fn around(real: Arc<dyn Broker>, moods: Moods, first_lane: u32) -> Self {
        Self { real, moods, first_lane }
    }
}

impl Moody {
    /// As real brokers do it: a caller that gives up stops nothing. Whatever it is told, the batch may still arrive.
    async fn hand_on(&self, lane: &ProducerSessionId, batch: Batch) -> Published {
        let (real, lane) = (Arc::clone(&self.real), lane.clone());
        let sent = tokio::task::spawn_local(async move { real.publish(&lane, batch).await });
        match sent.await {
            Ok(published) => published,
            Err(died) => match died.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Published::Unknown("the broker's task was stopped".into()),
            },
        }
    }
}

/// Counted down however the call ends.
struct Running(Moods);

impl Running {
    fn begin(moods: &Moods) -> Self {
        let now = moods.0.running.fetch_add(1, SeqCst) + 1;
        moods.0.most.fetch_max(now, SeqCst);
        Self(moods.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, SeqCst);
    }
}

#[async_trait]
impl Broker for Moody {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.real.open_session(self.first_lane + slot).await
    }

    async fn publish(&self, lane: &ProducerSessionId, batch: Batch) -> Published {
        let _running = Running::begin(&self.moods);
        self.moods.note(&batch);
        let mut refused = Vec::new();
        for (row, record) in &batch.records {
            match self.moods.meet(record) {
                None => {}
                Some(Mood::RefuseForNow) => {
                    refused.push((*row, Error::Unreachable(format!("mood: not row {row} now"))))
                }
                Some(Mood::RefuseForEver) => refused.push((*row, Error::Rejected(format!("mood: never row {row}")))),
                Some(Mood::Break) => {
                    let cause = Some(Error::Unreachable("mood: the batch was aborted".into()));
                    return Published::Aborted { refused: Vec::new(), cause, reached: true };
                }
                Some(Mood::Kill) => panic!("mood: row {row} kills"),
            }
        }
        if refused.is_empty() {
            return self.hand_on(lane, batch).await;
        }
        Published::Aborted { refused, cause: None, reached: true }
    }

    async fn watermark(&self, partition: PartitionNo) -> Result<Option<Token>, Error> {
        self.real.watermark(partition).await
    }

    async fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error> {
        self.real.fence(lane).await
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        self.real.append(records).await
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        self.real.sweep(limit).await
    }

    fn record_bytes_max(&self) -> usize {
        self.real.record_bytes_max()
    }
}
