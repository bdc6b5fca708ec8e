//! A lane session: one producer on one thread, which takes all that queued up while its last transaction ran. A session that cannot go
//! on says so to everybody and ends; nothing of it is ever sent by another.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Published;
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, Token};
use rdkafka::producer::Producer;

use crate::options::{Guarantee, Options};
use crate::parcel::Parcel;
use crate::post::{AWAY_PATIENCE, Post};
use crate::sizes::Sizes;
use crate::transaction::{self, Aborted, Ended, Terms};
use crate::waves;

/// How often an idle lane listens to its client.
const LISTEN_EVERY: Duration = Duration::from_millis(200);
/// How long it listens.
const LISTEN_FOR: Duration = Duration::from_millis(1);

/// A refusal that comes within this time is a broker in motion (a topic just made, a leader that moved), not one that is away.
const HICCUP: Duration = Duration::from_millis(500);
/// Pause before the transaction goes again.
const HICCUP_PAUSE: Duration = Duration::from_millis(100);
/// How often it goes again before the relay hears of it: a second, within which a new topic has its leaders.
const HICCUPS_MAX: u32 = 10;

/// A session's thread.
pub(crate) struct Lane {
    pub(crate) post: Post,
    pub(crate) options: Arc<Options>,
    pub(crate) watermarks: String,
    pub(crate) over: Arc<AtomicBool>,
    /// The last token committed for each partition: one that is not above it was published before.
    pub(crate) committed: HashMap<PartitionNo, Token>,
    /// The broker refused a record: its sequence numbers then lack those of that request, which the client only finds out in the next
    /// transaction on that partition. It purges that one, and begins anew after its abort.
    pub(crate) skips: bool,
    /// How often in a row the broker refused a transaction at once.
    pub(crate) hiccups: u32,
    /// Which sizes the broker refuses.
    pub(crate) sizes: Sizes,
    /// Since when nobody acknowledged a record.
    pub(crate) vain_since: Option<Instant>,
    /// Taken from the queue, and too much for the transaction at hand.
    pub(crate) held: Option<Parcel>,
}

/// Why a session ended.
struct Over(String);

impl Lane {
    /// Works until the session is over or nobody can hand anything over any more.
    pub(crate) fn run(mut self, queue: &Receiver<Parcel>) {
        let why = loop {
            let first = match self.held.take() {
                Some(held) => Ok(held),
                None => queue.recv_timeout(LISTEN_EVERY),
            };
            match first {
                Ok(first) if self.over.load(Ordering::Relaxed) => {
                    self.held = Some(first);
                    break "the session was ended".into();
                }
                Ok(first) => {
                    let set = self.gather(first, queue);
                    if let Err(Over(why)) = self.carry(set) {
                        break why;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.post.producer.poll(LISTEN_FOR),
                Err(RecvTimeoutError::Disconnected) => break "the session was ended".into(),
            }
            if let Some((code, said)) = self.post.producer.client().fatal_error() {
                break format!("{code:?}: {said}");
            }
        };
        self.over.store(true, Ordering::Relaxed);
        for parcel in self.held.take().into_iter().chain(queue.try_iter()) {
            parcel.answer(Published::SessionLost(why.clone()));
        }
    }

    /// A group commit: what queued up while the last transaction ran, within bounds.
    fn gather(&mut self, first: Parcel, queue: &Receiver<Parcel>) -> Vec<Parcel> {
        let (mut records, mut bytes) = (first.records.len(), first.bytes);
        let mut set = vec![first];
        while let Ok(next) = queue.try_recv() {
            records += next.records.len();
            bytes += next.bytes;
            if records > self.options.transaction_records || bytes > self.options.transaction_bytes {
                self.held = Some(next);
                break;
            }
            set.push(next);
        }
        set
    }

    /// Carries a set out and answers each of it. Those that are not to blame for an abort go again under their own tokens.
    fn carry(&mut self, set: Vec<Parcel>) -> Result<(), Over> {
        let mut left = set;
        loop {
            left = self.admit(left);
            // A suspect is tried alone, so that nobody else waits for its verdict.
            let suspect = left.iter().position(|parcel| parcel.suspect).map(|at| left.swap_remove(at));
            let (going, waiting) = match suspect {
                Some(suspect) => (vec![suspect], left),
                None => (left, Vec::new()),
            };
            if going.is_empty() {
                return Ok(());
            }
            left = match self.go(going) {
                Ok(again) => waiting.into_iter().chain(again).collect(),
                Err(Over(why)) => {
                    answer_all(waiting, &Published::SessionLost(why.clone()));
                    return Err(Over(why));
                }
            };
        }
    }

    /// One transaction, or one round of waves; returns what goes again.
    fn go(&mut self, going: Vec<Parcel>) -> Result<Vec<Parcel>, Over> {
        if self.options.guarantee == Guarantee::AtLeastOnce {
            return waves::carry_out(&self.post, going, self.options.deliver_within, &self.over)
                .map(|()| Vec::new())
                .map_err(Over);
        }
        let terms = Terms {
            watermarks: &self.watermarks,
            installation: &self.options.installation,
            deliver_within: self.options.deliver_within,
            abort_within: self.options.connect_within,
            over: &self.over,
        };
        let begun = Instant::now();
        match transaction::carry_out(&self.post, &going, &terms) {
            Ended::Committed => {
                self.hiccups = 0;
                self.vain_since = None;
                self.committed(going);
                Ok(Vec::new())
            }
            Ended::Aborted(why) => {
                let hiccup = why.is_the_clients() && begun.elapsed() < HICCUP && self.hiccups < HICCUPS_MAX;
                self.hiccups = if hiccup { self.hiccups + 1 } else { 0 };
                if hiccup {
                    std::thread::sleep(HICCUP_PAUSE);
                }
                let again = hiccup || (self.skips && why.is_the_clients());
                self.skips = !again && (self.skips || why.blames_records());
                self.learn(&going, &why);
                if self.is_cut_off(&why) {
                    return Err(given_up(going, why));
                }
                Ok(if again { going } else { aborted(going, why) })
            }
            Ended::Unknown(why) => {
                answer_all(going, &Published::Unknown(why.clone()));
                Err(Over(why))
            }
            Ended::Lost(why) => {
                answer_all(going, &Published::SessionLost(why.clone()));
                Err(Over(why))
            }
        }
    }

    fn committed(&mut self, parcels: Vec<Parcel>) {
        self.post.deliveries().contact().heard();
        let sheet = self.post.deliveries().sheet();
        let mut first = 0;
        for parcel in parcels {
            let positions = parcel.positions(&sheet, first);
            first += parcel.lines();
            self.committed.extend(parcel.mark);
            parcel.answer(Published::Committed(positions));
        }
    }

    /// Answers what need not be tried, and returns the rest.
    fn admit(&self, parcels: Vec<Parcel>) -> Vec<Parcel> {
        let now = Instant::now();
        let mut admitted = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let stale = parcel.mark.and_then(|(partition, token)| {
                self.committed.get(&partition).filter(|last| **last >= token).map(|last| (token, *last))
            });
            let mut refused = too_large(&parcel, self.options.record_bytes_max);
            if refused.is_empty() {
                refused = self.known_too_large(&parcel, now);
            }
            if parcel.is_late(now) {
                parcel.answer(late(false));
            } else if let Some((token, last)) = stale {
                // Written before, or overtaken: only the watermark may say which.
                parcel.answer(Published::Unknown(format!("token {token} is not above the watermark {last}")));
            } else if !refused.is_empty() {
                parcel.answer(Published::Aborted { refused, cause: None, reached: true });
            } else {
                admitted.push(parcel);
            }
        }
        admitted
    }
}

impl Lane {
    /// Whether others were answered by a broker while this session sent in vain, and its own client reaches none: then that is what is
    /// wrong, and neither an outage nor one broker of several whose partitions have no leader yet.
    fn is_cut_off(&mut self, why: &Aborted) -> bool {
        self.vain_since = why.in_vain.map(|begun| self.vain_since.unwrap_or(begun));
        let Some(since) = self.vain_since else { return false };
        let topic = self.options.topic(&self.options.events);
        self.post.deliveries().contact().heard_since(since + AWAY_PATIENCE) && !self.post.reaches_a_broker(&topic)
    }

    fn learn(&mut self, parcels: &[Parcel], why: &Aborted) {
        let now = Instant::now();
        let record = |(at, row): &(usize, RowId)| parcels[*at].records.iter().find(|(id, _)| id == row);
        for (_, record) in why.too_large.iter().filter_map(record) {
            self.sizes.learn(record, now);
        }
    }

    fn known_too_large(&self, parcel: &Parcel, now: Instant) -> Vec<(RowId, Error)> {
        let said = |(row, record): &(RowId, ports::broker::Record)| {
            let refused = self.sizes.refuses(record, now)?;
            let key = &record.key;
            Some((
                *row,
                Error::Rejected(format!("key {key}: the broker just refused {refused} bytes, and it has as many")),
            ))
        };
        parcel.records.iter().filter_map(said).collect()
    }
}

/// Records that are larger than we say we take.
pub(crate) fn too_large(parcel: &Parcel, most: usize) -> Vec<(RowId, Error)> {
    let large = parcel.records.iter().filter(|(_, record)| record.value.len() > most);
    let said = |record: &ports::broker::Record| {
        format!("key {}: {} bytes; a record may have {most}", record.key, record.value.len())
    };
    large.map(|(row, record)| (*row, Error::Rejected(said(record)))).collect()
}

fn late(reached: bool) -> Published {
    let cause = Some(Error::Unreachable("the lease's time was over before the batch could be committed".into()));
    Published::Aborted { refused: Vec::new(), cause, reached }
}

fn answer_all(parcels: Vec<Parcel>, published: &Published) {
    parcels.into_iter().for_each(|parcel| parcel.answer(published.clone()));
}

/// Answers everybody, each with what is known of it: the next session has a new client.
fn given_up(parcels: Vec<Parcel>, why: Aborted) -> Over {
    let (reached, said) = (why.reached, "no broker acknowledged the records in time, although brokers can be reached");
    let cause = Some(Error::Unreachable(said.into()));
    answer_all(aborted(parcels, why), &Published::Aborted { refused: Vec::new(), cause, reached });
    Over(said.into())
}

/// Answers whoever an abort is about; the others go again.
fn aborted(parcels: Vec<Parcel>, why: Aborted) -> Vec<Parcel> {
    let Aborted { mut refused, suspects, late: too_late, cause, reached, .. } = why;
    let mut again = Vec::new();
    for (at, mut parcel) in parcels.into_iter().enumerate() {
        let mine: Vec<(RowId, Error)> =
            refused.extract_if(.., |(of, _, _)| *of == at).map(|(_, row, error)| (row, error)).collect();
        if !mine.is_empty() {
            parcel.answer(Published::Aborted { refused: mine, cause: None, reached: true });
        } else if too_late.contains(&at) {
            parcel.answer(late(reached));
        } else if let Some(cause) = &cause {
            parcel.answer(Published::Aborted { refused: Vec::new(), cause: Some(cause.clone()), reached });
        } else {
            parcel.suspect |= suspects.contains(&at);
            again.push(parcel);
        }
    }
    again
}
