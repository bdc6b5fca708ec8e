//! Acknowledgements on their way to the group's coordinator: one commit at a time, and what is asked for meanwhile goes with the next.
//!
//! The library tells the outcome of a commit only to a caller that blocks, so a thread of its own does; the member's thread goes on.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ports::Error;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::oneshot;

use crate::error;
use crate::member::{Call, Place};
use crate::turns::Turns;

/// Longest wait for a commit's answer.
const COMMIT_WITHIN: Duration = Duration::from_secs(10);

/// An acknowledgement somebody waits for.
pub(crate) struct Acknowledging {
    /// The last offset of each partition.
    pub(crate) offsets: BTreeMap<Place, u64>,
    /// What was asked for and is not ours any more.
    pub(crate) lost: Option<Error>,
    /// Whom to tell.
    pub(crate) answer: oneshot::Sender<Result<(), Error>>,
}

/// A member's acknowledgements.
pub(crate) struct Commits {
    waiting: Vec<Acknowledging>,
    under_way: Option<(Instant, Vec<Acknowledging>)>,
    thread: Sender<TopicPartitionList>,
}

impl Commits {
    /// Starts the thread that commits; it ends with this.
    pub(crate) fn start(consumer: Arc<BaseConsumer<Turns>>, calls: Sender<Call>) -> std::io::Result<Self> {
        let (thread, lists) = channel::<TopicPartitionList>();
        let work = move || {
            for list in lists {
                // The member may have ended: then nobody waits for the answer.
                drop(calls.send(Call::Committed(consumer.commit(&list, CommitMode::Sync))));
            }
        };
        std::thread::Builder::new().name("kafka-commits".into()).spawn(work)?;
        Ok(Self { waiting: Vec::new(), under_way: None, thread })
    }

    /// One more to be acknowledged.
    pub(crate) fn add(&mut self, one: Acknowledging) {
        self.waiting.push(one);
        self.go_on();
    }

    /// The commit under way was answered: what is acknowledged now.
    pub(crate) fn answered(&mut self, result: &KafkaResult<()>) -> BTreeMap<Place, u64> {
        let Some((_, batch)) = self.under_way.take() else { return BTreeMap::new() };
        let done = result.as_ref().map(|()| largest(&batch)).map_err(|error| error::of(error, "acknowledging"));
        for one in batch {
            finish(one, done.as_ref().map(drop).map_err(Error::clone));
        }
        self.go_on();
        done.unwrap_or_default()
    }

    /// Nobody waits for ever.
    pub(crate) fn give_up_overdue(&mut self) {
        if self.under_way.as_ref().is_some_and(|(until, _)| *until < Instant::now())
            && let Some((_, batch)) = self.under_way.take()
        {
            let error = Error::Unknown("no broker answered an acknowledgement".into());
            batch.into_iter().for_each(|one| finish(one, Err(error.clone())));
        }
    }

    fn go_on(&mut self) {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.waiting);
        let offsets = largest(&batch);
        if offsets.is_empty() {
            return batch.into_iter().for_each(|one| finish(one, Ok(())));
        }
        let list = list(&offsets).map_err(|error| error::of(&error, "acknowledging"));
        match list.and_then(|list| self.thread.send(list).map_err(|_| crate::open::gone())) {
            Ok(()) => self.under_way = Some((Instant::now() + COMMIT_WITHIN, batch)),
            Err(error) => batch.into_iter().for_each(|one| finish(one, Err(error.clone()))),
        }
    }
}

fn largest(batch: &[Acknowledging]) -> BTreeMap<Place, u64> {
    let mut offsets: BTreeMap<Place, u64> = BTreeMap::new();
    for (place, offset) in batch.iter().flat_map(|one| &one.offsets) {
        let slot = offsets.entry(place.clone()).or_insert(*offset);
        *slot = (*slot).max(*offset);
    }
    offsets
}

/// A group's offset is the one it goes on with.
fn list(offsets: &BTreeMap<Place, u64>) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for ((topic, partition), offset) in offsets {
        list.add_partition_offset(topic, *partition as i32, Offset::Offset(*offset as i64 + 1))?;
    }
    Ok(list)
}

fn finish(one: Acknowledging, done: Result<(), Error>) {
    let told = match (done, one.lost) {
        (Ok(()), Some(lost)) => Err(lost),
        (done, _) => done,
    };
    // Whoever asked may have gone: what was committed stands.
    drop(one.answer.send(told));
}
