//! What operators ask of the dead letters: look, and send back. The one door for HTTP and command line.
//!
//! A letter stays where it is when it is sent back; the store remembers that it was, so it goes once however often and by however many
//! it is asked for. Memory and broker share no transaction: who dies between the two leaves letters in hand, which may be taken up after
//! [`RESERVATION_TIMEOUT`] and may then arrive twice, under one event id.
mod dead_letter;
mod position;
mod scan;

use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::broker::{Broker, Record};
use ports::clock::Clock;
use ports::operators::Audit;
use ports::redrives::{DeadLetterId, RedriveLedger};
use ports::source::Delivery;
use ports::topics::TopicReader;

pub use dead_letter::{DeadLetter, DeadLetterFilter, DeadLetterOrigin};
pub use position::{DeadLetterCursor, DeadLetterPosition};

use crate::error::QueryError;
use scan::Walk;

/// Most letters of one page.
pub const DEAD_LETTERS_MAX: u32 = 500;
/// Most bytes of values of one page; one letter always comes.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// A letter in hand is free again after this: longer than any append that still may succeed.
pub const RESERVATION_TIMEOUT: Duration = Duration::from_secs(120);

/// The operators' door to the dead letters.
pub struct DeadLetters {
    topic: Arc<str>,
    dead: Arc<str>,
    topics: Arc<dyn TopicReader>,
    broker: Arc<dyn Broker>,
    redrives: Arc<dyn RedriveLedger>,
    clock: Arc<dyn Clock>,
}

/// Letters, by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterPage {
    /// In the order of partition and offset.
    pub dead_letters: Vec<DeadLetter>,
    /// Behind which place to go on, where there may be more.
    pub next: Option<DeadLetterCursor>,
}

/// What a redrive did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Letters that the filter lets through and that did not go back before.
    pub matched: u64,
    /// Those that went back now.
    pub redriven: u64,
    /// Behind which place to go on, where there may be more.
    pub next: Option<DeadLetterCursor>,
}

impl DeadLetters {
    /// The dead letters of `topic`.
    pub fn new(
        topic: &str,
        topics: Arc<dyn TopicReader>,
        broker: Arc<dyn Broker>,
        redrives: Arc<dyn RedriveLedger>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            topic: topic.into(),
            dead: outbox::topics::dead_letter_topic(topic).into(),
            topics,
            broker,
            redrives,
            clock,
        }
    }

    /// Letters behind `filter.after`; `limit` is clamped to 1…[`DEAD_LETTERS_MAX`]. A page may be short, or empty, and yet have a next one.
    pub async fn list(&self, filter: &DeadLetterFilter, limit: u32) -> Result<DeadLetterPage, QueryError> {
        let mut walk = self.walk(filter.after).await?;
        let letters = self.search(filter, limit.clamp(1, DEAD_LETTERS_MAX), &mut walk).await?;
        Ok(DeadLetterPage { dead_letters: letters, next: walk.next() })
    }

    /// The letter at a place.
    pub async fn find(&self, place: DeadLetterPosition) -> Result<DeadLetter, QueryError> {
        let found = match self.topics.read(&self.dead, place.partition, place.offset, 1).await {
            // No such topic, or no such partition of it.
            Err(Error::Rejected(_)) => Vec::new(),
            found => found?,
        };
        let there = found.into_iter().filter(|delivery| delivery.position.offset == place.offset);
        self.with_memory(there.collect()).await?.pop().ok_or(QueryError::NotFound)
    }

    /// Sends one letter back. A conflict, when it went back before or is in another's hand.
    pub async fn redrive_one(
        &self,
        place: DeadLetterPosition,
        commit: bool,
        audit: &Audit,
    ) -> Result<DeadLetter, QueryError> {
        let letter = self.find(place).await?;
        if letter.is_redriven() {
            return Err(QueryError::Conflict("this letter was sent back before".into()));
        }
        if !commit {
            return Ok(letter);
        }
        if self.send_back(std::slice::from_ref(&letter), audit).await? == 0 {
            return Err(QueryError::Conflict(format!(
                "somebody else is sending this letter back, or died doing so; it can be taken up after {} s",
                RESERVATION_TIMEOUT.as_secs()
            )));
        }
        // The letter stands where it stood; only what is remembered of it has changed.
        self.with_memory(vec![letter.delivery]).await?.pop().ok_or(QueryError::NotFound)
    }

    /// How many letters match, and with `commit` sends the first `limit` of them back to their topic, each key's in their order.
    /// Repeating it sends only what did not go yet.
    pub async fn redrive(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<ReplayReport, QueryError> {
        let filter = DeadLetterFilter { redriven: Some(false), ..filter.clone() };
        let (mut sent, mut walk) = (ReplayReport::default(), self.walk(filter.after).await?);
        loop {
            let left = u64::from(limit).saturating_sub(sent.matched);
            if left == 0 || walk.is_over(self.clock.now()) {
                return Ok(ReplayReport { next: walk.next(), ..sent });
            }
            let page = u32::try_from(left).map_or(DEAD_LETTERS_MAX, |left| left.min(DEAD_LETTERS_MAX));
            let letters = self.search(&filter, page, &mut walk).await?;
            sent.matched += letters.len() as u64;
            if commit && !letters.is_empty() {
                sent.redriven += self.send_back(&letters, audit).await?;
            }
        }
    }

    /// Those of the letters that are nobody else's go back, all or none of them; says how many that were.
    async fn send_back(&self, letters: &[DeadLetter], audit: &Audit) -> Result<u64, QueryError> {
        let names: Vec<DeadLetterId> = letters.iter().map(DeadLetter::name).collect();
        let ours = self.redrives.reserve(&names, RESERVATION_TIMEOUT, audit).await?;
        let (names, records) = self.ours(letters, &ours, &audit.operator);
        if names.is_empty() {
            return Ok(0);
        }
        match self.broker.append(records).await {
            Ok(_) => {
                self.redrives.confirm(&names).await?;
                Ok(names.len() as u64)
            }
            // They may stand there: whoever takes them up later decides.
            Err(Error::Unknown(said)) => Err(QueryError::Unknown(said)),
            Err(error) => {
                self.redrives.release(&names).await?;
                Err(error.into())
            }
        }
    }

    fn ours(&self, letters: &[DeadLetter], ours: &[bool], who: &str) -> (Vec<DeadLetterId>, Vec<Record>) {
        let now = self.clock.now();
        let ours = letters.iter().zip(ours).filter(|(_, ours)| **ours);
        ours.map(|(letter, _)| (letter.name(), letter.back(&self.topic, who, now))).unzip()
    }

    /// The next letters that the filter lets through: so many, or as many as one page may hold, or as a call may look through.
    async fn search(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        walk: &mut Walk,
    ) -> Result<Vec<DeadLetter>, QueryError> {
        let (now, mut found, mut bytes) = (self.clock.now(), Vec::new(), 0);
        while let Some((partition, from)) = walk.here(self.clock.now()) {
            let page = self.topics.read(&self.dead, partition, from, DEAD_LETTERS_MAX).await?;
            for letter in self.with_memory(page).await? {
                if walk.takes(&letter.delivery) && filter.lets(&letter, now) {
                    bytes += letter.delivery.record.value.len();
                    found.push(letter);
                }
                if found.len() >= limit as usize || bytes >= BYTES_MAX {
                    return Ok(found);
                }
            }
            walk.skip_if_still_at(partition, from);
        }
        Ok(found)
    }

    async fn walk(&self, after: Option<DeadLetterCursor>) -> Result<Walk, QueryError> {
        let topics = self.topics.list().await?;
        let dead = topics.into_iter().find(|topic| *topic.name == *self.dead);
        Ok(Walk::behind(after, dead.map(|topic| topic.partitions).unwrap_or_default(), self.clock.now()))
    }

    async fn with_memory(&self, page: Vec<Delivery>) -> Result<Vec<DeadLetter>, QueryError> {
        let names: Vec<DeadLetterId> = page.iter().map(dead_letter::name).collect();
        let known = self.redrives.find(&names).await?;
        Ok(page.into_iter().zip(known).map(|(delivery, redrive)| DeadLetter { delivery, redrive }).collect())
    }
}
