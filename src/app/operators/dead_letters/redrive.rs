//! Reserves dead letters, appends them to their topic and confirms them, in a task that a cancelled request does not interrupt.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use ports::Error;
use ports::broker::{Broker, Position, Record};
use ports::clock::Clock;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use super::dead_letter::DeadLetter;
use super::refusals::{RefusedDeadLetter, RefusedDeadLetters};
use crate::error::QueryError;

/// Time after which an unconfirmed reservation expires; longer than any append that may still succeed.
pub const RESERVATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Starts a task that runs to its end, also when the future that started it is dropped.
pub type SpawnTask = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// The keys whose later dead letters a run does not send, because another redrive has reserved an earlier one of the key. Records without a key
/// have no order and are never held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldKeys(BTreeSet<Vec<u8>>);

impl HeldKeys {
    fn has_key_of(&self, dead_letter: &DeadLetter) -> bool {
        dead_letter.message.record.key_bytes().is_some_and(|key| self.0.contains(key))
    }

    fn insert_key_of(&mut self, dead_letter: &DeadLetter) {
        self.0.extend(dead_letter.message.record.key_bytes().map(<[u8]>::to_vec));
    }
}

/// Result of a redrive.
pub(super) struct RedrivenPage {
    /// Number of dead letters that were sent.
    pub(super) sent: u64,
    /// Number of dead letters that wait for another redrive: of themselves, or of an earlier one of their key.
    pub(super) held_back: u64,
    /// The keys of those that wait.
    pub(super) held_keys: HeldKeys,
    /// The dead letters that the broker refuses.
    pub(super) refusals: RefusedDeadLetters,
}

/// The state of a dead letter in the ledger, for a redrive that wants to reserve it.
#[derive(Clone, Copy)]
enum Reservation {
    /// The redrive holds it.
    Own,
    /// Another redrive holds it, or released it unsent just now.
    Other,
    /// Another redrive has sent it.
    Confirmed,
}

/// Division of dead letters into those that a redrive sends, releases and holds back.
struct RedriveSelection<'a> {
    to_send: Vec<&'a DeadLetter>,
    /// Reserved, but their keys are held.
    to_release: Vec<DeadLetterId>,
    held_back: u64,
    held_keys: HeldKeys,
}

/// Redrives dead letters to one topic.
#[derive(Clone)]
pub(super) struct Redriver {
    pub(super) topic: Arc<str>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) redrives: Arc<dyn RedriveLedger>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawn: SpawnTask,
}

impl Redriver {
    /// Redrives the dead letters that can be reserved and whose keys are not held, each in the order of its key. Those that the broker permanently
    /// refuses stay dead letters and stop no other. Cancel-safe: a redrive that has begun ends with its confirmation, because a record that was
    /// appended without it is appended again after [`RESERVATION_TIMEOUT`].
    pub(super) async fn redrive(
        &self,
        dead_letters: Vec<DeadLetter>,
        held_keys: HeldKeys,
        audit: &Audit,
    ) -> Result<RedrivenPage, QueryError> {
        let (result, received) = oneshot::channel();
        let (redriver, audit) = (self.clone(), audit.clone());
        (self.spawn)(Box::pin(async move {
            // A cancelled request receives no result.
            let _ = result.send(redriver.reserve_append_confirm(&dead_letters, held_keys, &audit).await);
        }));
        received.await.unwrap_or_else(|_| Err(QueryError::Unknown("the replay ended without a result".into())))
    }

    async fn reserve_append_confirm(
        self,
        dead_letters: &[DeadLetter],
        held_keys: HeldKeys,
        audit: &Audit,
    ) -> Result<RedrivenPage, QueryError> {
        let RedriveSelection { to_send, to_release, held_back, held_keys } =
            self.reserve(dead_letters, held_keys, audit).await?;
        if !to_release.is_empty() {
            // If this fails, the reservations expire. These dead letters are not sent.
            let _ = self.redrives.release(&to_release).await;
        }
        if to_send.is_empty() {
            return Ok(RedrivenPage { sent: 0, held_back, held_keys, refusals: RefusedDeadLetters::default() });
        }
        let now = self.clock.now();
        let record = |dead_letter: &&DeadLetter| dead_letter.redrive_record(&self.topic, &audit.operator, now);
        let records: Vec<Record> = to_send.iter().map(record).collect();
        let AppendReport { sent, unsent, refusals, failure } =
            AppendReport::from_results(&to_send, self.broker.append_individually(records).await);
        let sent_count = sent.len() as u64;
        if !unsent.is_empty() {
            // If this fails, the reservations expire. These dead letters were not sent.
            let _ = self.redrives.release(&unsent).await;
        }
        if !sent.is_empty() {
            // If this fails, the reservations stay until they expire, as after an append of unknown outcome.
            let unrecorded =
                |error| QueryError::from(error).after(format!("{} without a record of it", redriven_text(sent_count)));
            self.redrives.confirm(&sent).await.map_err(unrecorded)?;
        }
        match failure.map(QueryError::from) {
            None => Ok(RedrivenPage { sent: sent_count, held_back, held_keys, refusals }),
            Some(error) if sent_count == 0 => Err(error),
            Some(error) => Err(error.after(redriven_text(sent_count))),
        }
    }

    async fn reserve<'a>(
        &self,
        dead_letters: &'a [DeadLetter],
        held_keys: HeldKeys,
        audit: &Audit,
    ) -> Result<RedriveSelection<'a>, QueryError> {
        let candidates: Vec<&DeadLetter> =
            dead_letters.iter().filter(|candidate| !held_keys.has_key_of(candidate)).collect();
        let reserved = match candidates.is_empty() {
            true => Vec::new(),
            false => self.redrives.reserve(&ids(&candidates), RESERVATION_TIMEOUT, audit).await?,
        };
        let refused = candidates.iter().zip(&reserved).filter(|(_, reserved)| !**reserved).map(|(refused, _)| *refused);
        let refused: Vec<&DeadLetter> = refused.collect();
        // Without the ledger's answer they count as not sent, which only holds keys back.
        let found =
            if refused.is_empty() { Vec::new() } else { self.redrives.find(&ids(&refused)).await.unwrap_or_default() };
        let is_sent = |entry: &Option<RedriveRecord>| entry.as_ref().is_some_and(|entry| entry.confirmed);
        let mut sent_elsewhere = found.iter().map(is_sent);
        let reservation = |reserved: bool| match reserved {
            true => Reservation::Own,
            false if sent_elsewhere.next() == Some(true) => Reservation::Confirmed,
            false => Reservation::Other,
        };
        let reservations: Vec<Reservation> = reserved.into_iter().map(reservation).collect();
        let skipped = (dead_letters.len() - candidates.len()) as u64;
        let selected = select(candidates.into_iter().zip(reservations), held_keys);
        Ok(RedriveSelection { held_back: selected.held_back + skipped, ..selected })
    }
}

/// Results of appending the records of dead letters.
#[derive(Default)]
struct AppendReport {
    sent: Vec<DeadLetterId>,
    /// Dead letters that were certainly not appended.
    unsent: Vec<DeadLetterId>,
    refusals: RefusedDeadLetters,
    /// The first failure that is no refusal of a record.
    failure: Option<Error>,
}

impl AppendReport {
    /// A record of unknown outcome may have been appended: it is neither sent nor unsent, and its reservation stays until it expires.
    fn from_results(dead_letters: &[&DeadLetter], results: Vec<Result<Position, Error>>) -> Self {
        let mut appended = Self::default();
        for (dead_letter, result) in dead_letters.iter().zip(results) {
            match result {
                Ok(_) => appended.sent.push(dead_letter.id()),
                Err(Error::Rejected(reason)) => {
                    appended.unsent.push(dead_letter.id());
                    appended.refusals.push(RefusedDeadLetter { position: dead_letter.position(), reason });
                }
                Err(error) => {
                    appended.unsent.extend((!error.outcome_unknown()).then(|| dead_letter.id()));
                    appended.failure.get_or_insert(error);
                }
            }
        }
        appended
    }
}

/// Selects the dead letters to send, in their order: none of a key after one that another redrive has reserved. That redrive, or a later one after
/// its death, sends the earlier dead letter, so a later one would overtake it.
fn select<'a>(
    candidates: impl Iterator<Item = (&'a DeadLetter, Reservation)>,
    held_keys: HeldKeys,
) -> RedriveSelection<'a> {
    let mut selected = RedriveSelection { to_send: Vec::new(), to_release: Vec::new(), held_back: 0, held_keys };
    for (dead_letter, reservation) in candidates {
        match reservation {
            Reservation::Confirmed => {}
            Reservation::Other => {
                selected.held_back += 1;
                selected.held_keys.insert_key_of(dead_letter);
            }
            Reservation::Own if selected.held_keys.has_key_of(dead_letter) => {
                selected.held_back += 1;
                selected.to_release.push(dead_letter.id());
            }
            Reservation::Own => selected.to_send.push(dead_letter),
        }
    }
    selected
}

fn ids(dead_letters: &[&DeadLetter]) -> Vec<DeadLetterId> {
    dead_letters.iter().map(|dead_letter| dead_letter.id()).collect()
}

/// Text of the number of dead letters that were sent, for the message of a failure that follows.
pub fn redriven_text(dead_letters: u64) -> String {
    format!("dead letters sent back: {dead_letters}")
}

/// Why this number of dead letters was held back, and what follows.
pub fn held_back_text(dead_letters: u64) -> String {
    format!(
        "{dead_letters} dead letters were held back, because another replay of one, or of an earlier one of its key, runs or was interrupted: \
         try again after {} s",
        RESERVATION_TIMEOUT.as_secs()
    )
}
