//! One transaction of a lane: the records of some batches and a watermark for each, committed or aborted as one.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ports::Error;
use ports::outbox::RowId;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::Producer;

use crate::deliveries::Sheet;
use crate::error::{self, Blame, blame, never_left};
use crate::parcel::Parcel;
use crate::post::{Post, Waited};

/// How long reports may take that come without an abort: answers of a broker that is there.
const DRAIN_WITHIN: Duration = Duration::from_millis(100);
/// One call to abort. Long, because the library mixes up an abort that timed out at its first step; too long would be a stall.
const ABORT_STEP: Duration = Duration::from_millis(300);
/// Between two looks at reports.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// How long reports of purged records may take; they come from memory.
const PURGED_WITHIN: Duration = Duration::from_millis(500);

/// How many times as long as a delivery a commit may take. Three: with the defaults as long as a lease.
const RESUMED: u32 = 3;

/// What a transaction keeps to.
pub(crate) struct Terms<'a> {
    /// The watermarks' topic.
    pub(crate) watermarks: &'a str,
    /// Whose watermarks they are.
    pub(crate) installation: &'a str,
    /// Longest wait for deliveries, and for a commit's answer.
    pub(crate) deliver_within: Duration,
    /// Longest wait for an abort's answer.
    pub(crate) abort_within: Duration,
    /// Set when the session was ended from outside.
    pub(crate) over: &'a AtomicBool,
}

/// How a transaction ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// All of it is visible; where each record stands is in the table.
    Committed,
    /// Confirmed: nothing of it ever will be.
    Aborted(Aborted),
    /// Nobody knows, and the session is over.
    Unknown(String),
    /// Nothing of it is committed by this session, which is over.
    Lost(String),
}

/// Why a transaction was aborted. Parcels are named by their place.
#[derive(Debug, Default)]
pub(crate) struct Aborted {
    /// Records that can never be taken.
    pub(crate) refused: Vec<(usize, RowId, Error)>,
    /// Those of them that were alone in their request and too large.
    pub(crate) too_large: Vec<(usize, RowId)>,
    /// Parcels with a record that was refused in company: which one it was is not known.
    pub(crate) suspects: Vec<usize>,
    /// Parcels whose lease ran out.
    pub(crate) late: Vec<usize>,
    /// The broker's failure, when no record is to blame.
    pub(crate) cause: Option<Error>,
    /// Whether anything may have reached the broker.
    pub(crate) reached: bool,
    /// When it began, if nobody acknowledged its records in time.
    pub(crate) in_vain: Option<Instant>,
}

/// Carries parcels out in one transaction.
pub(crate) fn carry_out(post: &Post, parcels: &[Parcel], terms: &Terms<'_>) -> Ended {
    if let Err(error) = post.producer.begin_transaction() {
        return Ended::Lost(format!("beginning a transaction: {error}"));
    }
    let begun = Instant::now();
    post.deliveries().sheet().begin(parcels.iter().map(Parcel::lines).sum());
    let lease = parcels.iter().map(|parcel| parcel.until).min().unwrap_or_else(Instant::now);
    let until = lease.min(begun + terms.deliver_within);
    let handed = hand_over(post, parcels, terms, until);
    let waited = if handed.is_ok() { post.wait(until) } else { Waited::Answered };
    let mut why = judge(&post.deliveries().sheet(), parcels);
    match handed {
        Err(NotHandedOver::Refused(refused)) => why.refused.extend(refused),
        Err(NotHandedOver::Failed(error)) if why.is_empty() => {
            why.cause = Some(error::of(&error, "handing records over"));
        }
        _ => {}
    }
    if let Some((code, said)) = post.producer.client().fatal_error() {
        return Ended::Lost(format!("{code:?}: {said}"));
    }
    if terms.over.load(Ordering::Relaxed) {
        return Ended::Lost("the session was ended".into());
    }
    let now = Instant::now();
    why.late = (0..).zip(parcels).filter(|(_, parcel)| parcel.is_late(now)).map(|(at, _)| at).collect();
    why.in_vain = (waited == Waited::InVain).then_some(begun);
    if waited == Waited::InVain && why.is_empty() {
        why.cause = Some(Error::Unreachable("no broker acknowledged the records in time".into()));
    }
    // A commit is resumed for longer than deliveries may take: a broker that comes back answers it, and whoever gives it up has to find out.
    let resumed = lease.min(now + terms.deliver_within * RESUMED);
    if why.is_empty() { commit(post, resumed.max(now + PURGED_WITHIN)) } else { abort(post, terms, why) }
}

impl Aborted {
    /// Whether a record is to blame, or may be.
    pub(crate) fn blames_records(&self) -> bool {
        !self.refused.is_empty() || !self.suspects.is_empty()
    }

    /// Whether nobody is to blame but the client or the way to the broker.
    pub(crate) fn is_the_clients(&self) -> bool {
        self.cause.is_some() && !self.blames_records() && self.late.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.suspects.is_empty() && self.late.is_empty() && self.cause.is_none()
    }
}

/// Why not all records were given to the client.
enum NotHandedOver {
    /// The client itself refused these.
    Refused(Vec<(usize, RowId, Error)>),
    /// It takes no more: a delivery has failed already, or it cannot go on.
    Failed(KafkaError),
}

fn hand_over(post: &Post, parcels: &[Parcel], terms: &Terms<'_>, until: Instant) -> Result<(), NotHandedOver> {
    let (mut line, mut refused) = (0, Vec::new());
    for (at, parcel) in parcels.iter().enumerate() {
        for (row, record) in &parcel.records {
            match post.send(record, line, until) {
                Ok(()) => {}
                Err(error) if error.rdkafka_error_code().is_some_and(|code| blame(code) == Blame::Record) => {
                    refused.push((at, *row, error::of(&error, &format!("sending key {}", record.key))));
                }
                Err(error) => return Err(NotHandedOver::Failed(error)),
            }
            line += 1;
            if parcel.suspect && waits_in_vain(post, line, until) {
                return Ok(());
            }
        }
        if let Some((partition, token)) = parcel.mark {
            let value = format!("{token} {}", terms.installation);
            post.mark(terms.watermarks, partition.0, &value, line, until).map_err(NotHandedOver::Failed)?;
            line += 1;
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(NotHandedOver::Refused(refused)) }
}

/// Waits for one record by itself; whether the rest need not be sent.
fn waits_in_vain(post: &Post, lines: usize, until: Instant) -> bool {
    while Instant::now() < until {
        post.look();
        let sheet = post.deliveries().sheet();
        if sheet.failed() > 0 {
            return true;
        }
        if (0..lines).rev().all(|line| sheet.outcome(line).is_some()) {
            return false;
        }
        drop(sheet);
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// What the deliveries so far say.
fn judge(sheet: &Sheet, parcels: &[Parcel]) -> Aborted {
    let mut why = Aborted::default();
    let (mut blamed, mut neighbours, mut line) = (Vec::new(), false, 0);
    for (at, parcel) in parcels.iter().enumerate() {
        for number in 0..parcel.lines() {
            let Some(Err(code)) = sheet.outcome(line + number) else { continue };
            match (blame(code), parcel.records.get(number)) {
                (Blame::Record, Some((row, record))) => blamed.push((at, *row, &record.key, code)),
                (Blame::Neighbour, _) => neighbours = true,
                // A watermark is never to blame: its topic does not take it.
                (Blame::Record, None) | (Blame::Broker, _) => {
                    let said = format!("sending: {code}");
                    why.cause.get_or_insert_with(|| error::of_code(code, said));
                }
            }
        }
        line += parcel.lines();
    }
    // Alone in its request, or named by a broker that tells its neighbours apart.
    let known = blamed.len() == 1 || neighbours;
    for (at, row, key, code) in blamed {
        if known || parcels[at].suspect {
            why.refused.push((at, row, error::of_code(code, format!("sending key {key}: {code}"))));
            if code == Code::MessageSizeTooLarge {
                why.too_large.push((at, row));
            }
        } else if !why.suspects.contains(&at) {
            why.suspects.push(at);
        }
    }
    if !why.refused.is_empty() || !why.suspects.is_empty() {
        why.cause = None;
    }
    why
}

/// Commits, or says that nobody knows. A call that ran out of time is never resumed: the library gives its name back when a resumed one
/// runs out of time at its first step, then takes the broker's late answer for an abort's, and ends the process by an assertion.
fn commit(post: &Post, until: Instant) -> Ended {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match post.producer.commit_transaction(left) {
            Ok(()) => return Ended::Committed,
            Err(KafkaError::Transaction(error)) if error.is_fatal() => {
                return Ended::Lost(format!("committing: {error}"));
            }
            // Nothing has been asked of the broker yet.
            Err(KafkaError::Transaction(error))
                if error.is_retriable() && error.code() != Code::OperationTimedOut && Instant::now() < until =>
            {
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) => return Ended::Unknown(format!("committing: {error}")),
        }
    }
}

fn abort(post: &Post, terms: &Terms<'_>, mut why: Aborted) -> Ended {
    let until = Instant::now() + terms.abort_within;
    // The library waits until the reports of purged records are taken, which only this thread can do, and not while it waits: so those
    // that come by themselves are taken first.
    take_reports(post, DRAIN_WITHIN);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match post.producer.abort_transaction(ABORT_STEP.min(left)) {
            Ok(()) => break,
            // It timed out, and goes on where it was.
            Err(KafkaError::Transaction(error)) if error.is_retriable() && !left.is_zero() => post.look(),
            Err(KafkaError::Transaction(error)) if error.is_fatal() => {
                return Ended::Lost(format!("aborting: {error}"));
            }
            // The broker is away: whether it will abort is not known before it is back.
            Err(error) => return Ended::Unknown(format!("aborting: {error}")),
        }
    }
    take_reports(post, PURGED_WITHIN);
    let sheet = post.deliveries().sheet();
    // A line without an outcome was never handed over, because an earlier one was refused.
    why.reached = sheet
        .outcomes()
        .iter()
        .flatten()
        .any(|outcome| outcome.is_ok() || outcome.is_err_and(|code| !never_left(code)));
    Ended::Aborted(why)
}

fn take_reports(post: &Post, within: Duration) {
    let until = Instant::now() + within;
    while post.producer.in_flight_count() > 0 && Instant::now() < until {
        post.look();
        std::thread::sleep(LOOK_EVERY);
    }
}
