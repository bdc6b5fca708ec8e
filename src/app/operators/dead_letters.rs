//! Operator actions on dead letters, shared by HTTP, console and command line: list, find, redrive (send to the event topic again).
//!
//! A redriven dead letter stays in its topic; the ledger in the store records the redrive, so that it happens once, however often it is
//! requested. Ledger and broker share no transaction: an instance that dies between them leaves a reservation, which expires after
//! [`RESERVATION_TIMEOUT`]. The record may then be appended twice, with the same event id. A cancelled request leaves none.
mod dead_letter;
mod position;
mod redrive;
mod refusals;
mod scan;

use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::{TopicReader, TopicView};
use ports::clock::Clock;
use ports::operators::redrives::{DeadLetterId, RedriveLedger};
use ports::operators::{Audit, RedriveMode};

pub(crate) use dead_letter::REDRIVEN_BY;
pub use dead_letter::{DeadLetter, DeadLetterFilter, DeadLetterOrigin};
pub use position::{DeadLetterCursor, DeadLetterPosition};
pub use redrive::{HeldKeys, RESERVATION_TIMEOUT, SpawnTask, redriven_text};
pub use refusals::{RefusedDeadLetter, RefusedDeadLetters};

use crate::error::QueryError;
use redrive::{RedrivenPage, Redriver, held_back_text};
use scan::Scan;

/// Limit of dead letters on a page.
pub const DEAD_LETTERS_MAX: u32 = 500;
/// Limit of value bytes on a page; a page has at least one dead letter whatever its size.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Lists and redrives the dead letters of one topic.
///
/// Where a method says no more, it fails only with [`QueryError::Unavailable`], [`QueryError::Unknown`], or, after a part of a redrive,
/// [`QueryError::PartlyDone`]. Cancellation: a dropped list or count has no effect; a redrive that has begun a page finishes that page.
#[derive(Clone)]
pub struct DeadLetters {
    topic: Arc<str>,
    dead_letter_topic: Arc<str>,
    topics: Arc<dyn TopicReader>,
    redrives: Arc<dyn RedriveLedger>,
    clock: Arc<dyn Clock>,
    redriver: Redriver,
    call_time_max: Duration,
}

/// At most [`DEAD_LETTERS_MAX`] dead letters and the cursor after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterPage {
    /// Dead letters by partition and offset.
    pub dead_letters: Vec<DeadLetter>,
    /// Cursor of the next page, if there may be more.
    pub next: Option<DeadLetterCursor>,
}

/// The latest dead letters of all partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestDeadLetters {
    /// By time, the newest first, those of all partitions together.
    pub dead_letters: Vec<DeadLetter>,
    /// Whether the topic keeps no others.
    pub is_complete: bool,
}

/// Result of a redrive, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedriveReport {
    /// Number of dead letters that match the filter and were not redriven before.
    pub matched: u64,
    /// Number of dead letters that were redriven now.
    pub redriven: u64,
    /// Number of dead letters that were held back: another redrive of one, or of an earlier one of its key, runs or was interrupted.
    pub held_back: u64,
    /// The dead letters that the broker refused. They match again in a further redrive.
    pub refusals: RefusedDeadLetters,
    /// Cursor from which to continue, if there may be more.
    pub next: Option<DeadLetterCursor>,
}

impl RedriveReport {
    /// The number that was held back, for documents: they leave it out where there is none.
    pub fn held_back_if_any(&self) -> Option<u64> {
        (self.held_back > 0).then_some(self.held_back)
    }

    /// Which dead letters that match were not sent, for operators; `None` if none was left behind.
    pub fn unsent_summary(&self) -> Option<String> {
        unsent_summary(self.held_back, &self.refusals)
    }

    /// The report of a run that has ended. A further run does not know the keys of dead letters that were held back, so it must begin at the
    /// start.
    #[must_use]
    pub fn ended(self) -> Self {
        Self { next: self.next.filter(|_| self.held_back == 0), ..self }
    }
}

impl DeadLetters {
    /// Operator actions on the dead letters of `topic`; `spawn` runs their redrives.
    pub fn new(
        topic: &str,
        topics: Arc<dyn TopicReader>,
        broker: Arc<dyn Broker>,
        redrives: Arc<dyn RedriveLedger>,
        clock: Arc<dyn Clock>,
        spawn: SpawnTask,
    ) -> Self {
        let redriver =
            Redriver { topic: topic.into(), broker, redrives: Arc::clone(&redrives), clock: Arc::clone(&clock), spawn };
        let dead_letter_topic = outbox::topics::dead_letter_topic(topic).into();
        let (topic, call_time_max) = (Arc::clone(&redriver.topic), scan::CALL_TIME_MAX);
        Self { topic, dead_letter_topic, topics, redrives, clock, redriver, call_time_max }
    }

    /// The same actions on the dead letters of another topic.
    #[must_use]
    pub fn for_topic(self, topic: &str) -> Self {
        let dead_letter_topic = outbox::topics::dead_letter_topic(topic).into();
        Self { topic: topic.into(), dead_letter_topic, ..self }.redriving_to(topic)
    }

    /// Full name of the topic whose dead letters these are.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Redrives to this topic instead of the one that the dead letters come from.
    #[must_use]
    pub fn redriving_to(self, topic: &str) -> Self {
        Self { redriver: Redriver { topic: topic.into(), ..self.redriver }, ..self }
    }

    /// The same actions for requests with this timeout: a call ends, with a cursor, before a request would be dropped.
    #[must_use]
    pub fn with_request_timeout(self, request_timeout: Duration) -> Self {
        Self { call_time_max: scan::call_time_max(request_timeout), ..self }
    }

    /// Time after which a list, a count or a redrive ends with a cursor.
    pub fn call_time_max(&self) -> Duration {
        self.call_time_max
    }

    /// Lists dead letters after `filter.after`; `limit` is clamped to 1…[`DEAD_LETTERS_MAX`]. A short or empty page may have a next one.
    pub async fn list(&self, filter: &DeadLetterFilter, limit: u32) -> Result<DeadLetterPage, QueryError> {
        let mut scan = self.scan(filter.after).await?;
        let dead_letters = self.search(filter, limit.clamp(1, DEAD_LETTERS_MAX), &mut scan).await?;
        Ok(DeadLetterPage { dead_letters, next: scan.next() })
    }

    /// Lists the latest dead letters, the newest first, from the last `limit` offsets of each partition.
    pub async fn latest(&self, limit: u32) -> Result<LatestDeadLetters, QueryError> {
        let limit = limit.clamp(1, DEAD_LETTERS_MAX);
        let topics = self.topics.list().await?;
        let topic = topics.into_iter().find(|topic| *topic.name == *self.dead_letter_topic);
        let (mut found, mut is_complete) = (Vec::new(), true);
        for (partition, kept) in (0..).zip(topic.map(|topic| topic.partitions).unwrap_or_default()) {
            let from = kept.end.saturating_sub(limit.into()).max(kept.start);
            let (records, to_end) = self.records_between(partition, from, kept.end).await?;
            is_complete &= to_end && from == kept.start;
            found.extend(self.with_redrives(records).await?);
        }
        let sort_key = |dead_letter: &DeadLetter| {
            let position = &dead_letter.message.position;
            (dead_letter.message.record.timestamp, position.partition, position.offset)
        };
        found.sort_by_key(|dead_letter| std::cmp::Reverse(sort_key(dead_letter)));
        is_complete &= found.len() <= limit as usize;
        found.truncate(limit as usize);
        Ok(LatestDeadLetters { dead_letters: found, is_complete })
    }

    /// Reads the records of a partition between two offsets, and whether the byte limit of a page permitted all of them. Markers and
    /// expired records have offsets too, so only an empty page shows that none is left before `end`.
    async fn records_between(
        &self,
        partition: u32,
        from: u64,
        end: u64,
    ) -> Result<(Vec<ConsumerRecord>, bool), QueryError> {
        let (mut found, mut bytes, mut next) = (Vec::new(), 0, from);
        while next < end {
            if bytes >= PAGE_BYTES_MAX {
                return Ok((found, false));
            }
            let limit = u32::try_from(end - next).unwrap_or(u32::MAX);
            let page = self.topics.read(&self.dead_letter_topic, partition, next, limit).await?;
            let Some(last) = page.last() else { break };
            next = last.position.offset + 1;
            bytes += page.iter().map(|message| message.record.value.len()).sum::<usize>();
            found.extend(page);
        }
        Ok((found, true))
    }

    /// Reads the dead letter at a position.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] without one.
    pub async fn find(&self, position: DeadLetterPosition) -> Result<DeadLetter, QueryError> {
        let found = match self.topics.read(&self.dead_letter_topic, position.partition, position.offset, 1).await {
            // The topic or its partition does not exist.
            Err(Error::Rejected(_)) => Vec::new(),
            found => found?,
        };
        let at_offset = found.into_iter().filter(|message| message.position.offset == position.offset);
        self.with_redrives(at_offset.collect()).await?.pop().ok_or(QueryError::NotFound)
    }

    /// Redrives one dead letter; a dry run only checks that it can be.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] without one; [`QueryError::Conflict`] when it was redriven before, is reserved by another redrive, has no value, or
    /// is refused by the broker.
    pub async fn redrive_one(
        &self,
        position: DeadLetterPosition,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<DeadLetter, QueryError> {
        let dead_letter = self.find(position).await?;
        if dead_letter.is_redriven() {
            return Err(QueryError::Conflict("this dead letter was replayed before".into()));
        }
        if dead_letter.lacks_value() {
            return Err(QueryError::Conflict(
                "the broker refused the value of this dead letter, so there is nothing to replay; send the event again from its original position"
                    .into(),
            ));
        }
        if mode == RedriveMode::DryRun {
            return Ok(dead_letter);
        }
        let redriven = self.redriver.redrive(vec![dead_letter.clone()], HeldKeys::default(), audit).await?;
        if let Some(refused) = redriven.refusals.sentence() {
            return Err(QueryError::Conflict(refused));
        }
        if redriven.sent == 0 {
            return Err(QueryError::Conflict(format!(
                "another replay of this dead letter is running or was interrupted; try again after {} s",
                RESERVATION_TIMEOUT.as_secs()
            )));
        }
        // The record is unchanged; only its entry in the ledger is new.
        let with_entry =
            self.with_redrives(vec![dead_letter.message]).await.map_err(|error| error.after(redriven_text(1)))?;
        with_entry.into_iter().next().ok_or(QueryError::NotFound)
    }

    /// Counts the dead letters that match, have a value and were not redriven yet, at most `limit`.
    pub async fn count(&self, filter: &DeadLetterFilter, limit: u32) -> Result<RedriveReport, QueryError> {
        self.count_or_redrive(filter, limit, None).await
    }

    /// Counts the dead letters that match; [`RedriveMode::Execute`] redrives the first `limit` of them, each key's in order: the later ones of
    /// a key are held back where another redrive has reserved an earlier one. A repeated call redrives only those that were not redriven yet.
    pub async fn redrive(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<RedriveReport, QueryError> {
        let mut held_keys = HeldKeys::default();
        let redrive = (mode == RedriveMode::Execute).then_some((audit, &mut held_keys));
        let report = self.count_or_redrive(filter, limit, redrive).await?;
        Ok(report.ended())
    }

    /// As [`DeadLetters::redrive`], as one step of a run that continues at `next`: `held_keys` has the keys that earlier steps have held back.
    pub async fn redrive_step(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        held_keys: &mut HeldKeys,
        audit: &Audit,
    ) -> Result<RedriveReport, QueryError> {
        self.count_or_redrive(filter, limit, Some((audit, held_keys))).await
    }

    async fn count_or_redrive(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        mut redrive: Option<(&Audit, &mut HeldKeys)>,
    ) -> Result<RedriveReport, QueryError> {
        let filter = DeadLetterFilter { redriven: Some(false), ..filter.clone() };
        let (mut report, mut scan) = (RedriveReport::default(), self.scan(filter.after).await?);
        loop {
            let left = u64::from(limit).saturating_sub(report.matched);
            if left == 0 || scan.is_over(self.clock.now()) {
                return Ok(RedriveReport { next: scan.next(), ..report });
            }
            let page = u32::try_from(left).map_or(DEAD_LETTERS_MAX, |left| left.min(DEAD_LETTERS_MAX));
            let redrive = redrive.as_mut().map(|(audit, held_keys)| (*audit, &mut **held_keys));
            self.count_or_redrive_page(&filter, page, redrive, &mut scan, &mut report).await.map_err(|error| {
                if report.redriven > 0 { error.after(redriven_text(report.redriven)) } else { error }
            })?;
        }
    }

    async fn count_or_redrive_page(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        redrive: Option<(&Audit, &mut HeldKeys)>,
        scan: &mut Scan,
        report: &mut RedriveReport,
    ) -> Result<(), QueryError> {
        let mut dead_letters = self.search(filter, limit, scan).await?;
        dead_letters.retain(|dead_letter| !dead_letter.lacks_value());
        report.matched += dead_letters.len() as u64;
        if let Some((audit, keys)) = redrive.filter(|_| !dead_letters.is_empty()) {
            let RedrivenPage { sent, held_back, held_keys, refusals } =
                self.redriver.redrive(dead_letters, keys.clone(), audit).await?;
            report.redriven += sent;
            report.held_back += held_back;
            report.refusals.append(refusals);
            *keys = held_keys;
        }
        Ok(())
    }

    /// The topics of the broker.
    pub(super) async fn existing_topics(&self) -> Result<Vec<TopicView>, QueryError> {
        Ok(self.topics.list().await?)
    }

    /// Whether its topic keeps records, redriven ones included.
    pub(super) fn has_records(&self, existing: &[TopicView]) -> bool {
        let topic = existing.iter().find(|topic| *topic.name == *self.dead_letter_topic);
        topic.is_some_and(|topic| topic.partitions.iter().any(|kept| !kept.is_empty()))
    }

    /// Collects matching dead letters until `limit`, the byte limit of a page, the time limit of a call, or the end.
    async fn search(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        scan: &mut Scan,
    ) -> Result<Vec<DeadLetter>, QueryError> {
        let (now, mut found, mut bytes) = (self.clock.now(), Vec::new(), 0);
        while let Some((partition, from)) = scan.position(self.clock.now()) {
            let page = self.topics.read(&self.dead_letter_topic, partition, from, DEAD_LETTERS_MAX).await?;
            for dead_letter in self.with_redrives(page).await? {
                if scan.advance(&dead_letter.message) && filter.matches(&dead_letter, now) {
                    bytes += dead_letter.message.record.value.len();
                    found.push(dead_letter);
                }
                if found.len() >= limit as usize || bytes >= PAGE_BYTES_MAX {
                    return Ok(found);
                }
            }
            scan.skip_partition_if_still_at(partition, from);
        }
        Ok(found)
    }

    async fn scan(&self, after: Option<DeadLetterCursor>) -> Result<Scan, QueryError> {
        let topics = self.topics.list().await?;
        let topic = topics.into_iter().find(|topic| *topic.name == *self.dead_letter_topic);
        let partitions = topic.map(|topic| topic.partitions).unwrap_or_default();
        Ok(Scan::after(after, partitions, self.clock.now(), self.call_time_max))
    }

    async fn with_redrives(&self, page: Vec<ConsumerRecord>) -> Result<Vec<DeadLetter>, QueryError> {
        let ids: Vec<DeadLetterId> = page.iter().map(dead_letter::id).collect();
        let redrives = self.redrives.find(&ids).await?;
        Ok(page.into_iter().zip(redrives).map(|(message, redrive)| DeadLetter { message, redrive }).collect())
    }
}

/// Which dead letters of a redrive were not sent: the number of those held back, and the refused ones. `None` if there is none.
pub fn unsent_summary(held_back: u64, refusals: &RefusedDeadLetters) -> Option<String> {
    let held_back = (held_back > 0).then(|| held_back_text(held_back));
    let sentences: Vec<String> = held_back.into_iter().chain(refusals.sentence()).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}
