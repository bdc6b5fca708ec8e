//! At least once: no transaction binds the records together, so one record of a key is in flight at a time, and a key stops at its first
//! failed record. What is durable is durable whatever became of the rest.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::{Published, Record};
use ports::outbox::RowId;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::{Producer, PurgeConfig};

use crate::error::{self, Blame, blame, never_left};
use crate::parcel::Parcel;
use crate::post::{AWAY_PATIENCE, Post};

/// Between two looks at deliveries.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// How long reports of purged records may take; they come from memory.
const PURGED_WITHIN: Duration = Duration::from_millis(500);

/// Sends parcels, wave after wave, and answers each.
///
/// # Errors
/// When the session cannot go on; all parcels have their answers.
pub(crate) fn carry_out(post: &Post, parcels: Vec<Parcel>, within: Duration, over: &AtomicBool) -> Result<(), String> {
    let lease = parcels.iter().map(|parcel| parcel.until).min().unwrap_or_else(Instant::now);
    let until = lease.min(Instant::now() + within);
    let records: Vec<&Record> = parcels.iter().flat_map(|parcel| &parcel.records).map(|(_, record)| record).collect();
    let mut round = Round::new(post, records, until);
    round.send_all(over);
    round.try_suspects_alone(over);
    let in_vain = !round.in_flight.is_empty();
    let failed = round.give_up();
    answer(post, parcels, &failed);
    if over.load(Ordering::Relaxed) {
        return Err("the session was ended".into());
    }
    if failed.values().any(|code| in_doubt(*code)) {
        // What is still on its way may yet arrive, after what would be sent next.
        return Err("records were given up while they were on their way".into());
    }
    if in_vain {
        // The client may be what is wrong; a new one costs a question for metadata.
        return Err("no broker acknowledged the records in time".into());
    }
    Ok(())
}

/// Records on their way, each known by its line.
struct Round<'a> {
    post: &'a Post,
    records: Vec<&'a Record>,
    waiting: HashMap<(&'a str, &'a str), VecDeque<usize>>,
    in_flight: Vec<usize>,
    failed: BTreeMap<usize, Code>,
    until: Instant,
}

impl<'a> Round<'a> {
    fn new(post: &'a Post, records: Vec<&'a Record>, until: Instant) -> Self {
        post.deliveries().sheet().begin(records.len());
        let mut waiting: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (line, record) in records.iter().enumerate() {
            waiting.entry((&*record.topic, &*record.key)).or_default().push_back(line);
        }
        Self { post, records, waiting, in_flight: Vec::new(), failed: BTreeMap::new(), until }
    }

    fn send_all(&mut self, over: &AtomicBool) {
        let mut heads: Vec<usize> = self.waiting.values_mut().filter_map(VecDeque::pop_front).collect();
        heads.sort_unstable();
        heads.into_iter().for_each(|line| self.send(line));
        self.wait(over);
    }

    fn send(&mut self, line: usize) {
        match self.post.send(self.records[line], line, self.until) {
            Ok(()) => self.in_flight.push(line),
            Err(error) => drop(self.failed.insert(line, error.rdkafka_error_code().unwrap_or(Code::Unknown))),
        }
    }

    /// Waits for what is in flight; each acknowledgement sends its key's next record.
    fn wait(&mut self, over: &AtomicBool) {
        let begun = Instant::now();
        while !self.in_flight.is_empty() {
            self.post.look();
            let now = Instant::now();
            let nobody = self.post.deliveries().contact().is_away() && now - begun > AWAY_PATIENCE;
            if nobody || now >= self.until || over.load(Ordering::Relaxed) {
                return;
            }
            let fresh = self.post.deliveries().sheet().fresh();
            if fresh.is_empty() {
                std::thread::sleep(LOOK_EVERY);
            }
            for line in fresh.into_iter().map(|line| line as usize) {
                self.in_flight.retain(|other| *other != line);
                self.answered(line);
            }
        }
    }

    fn answered(&mut self, line: usize) {
        let outcome = self.post.deliveries().sheet().outcome(line);
        match outcome {
            Some(Ok(_)) => {
                self.post.deliveries().contact().heard();
                let key = (&*self.records[line].topic, &*self.records[line].key);
                if let Some(next) = self.waiting.get_mut(&key).and_then(VecDeque::pop_front) {
                    self.send(next);
                }
            }
            Some(Err(code)) => drop(self.failed.insert(line, code)),
            None => {}
        }
    }

    /// A request is refused as a whole where the broker does not say which record it means: each goes once more, by itself.
    fn try_suspects_alone(&mut self, over: &AtomicBool) {
        let suspects = self.failed.iter().filter(|(_, code)| blame(**code) != Blame::Broker);
        let suspects: Vec<usize> = suspects.map(|(line, _)| *line).collect();
        if suspects.len() < 2 {
            return;
        }
        // Whatever follows an innocent one goes with the worker's next call.
        self.waiting.clear();
        for line in suspects {
            self.failed.remove(&line);
            self.post.deliveries().sheet().reopen(line);
            self.send(line);
            self.wait(over);
        }
    }

    /// Takes back what is not answered for; returns all that failed.
    fn give_up(mut self) -> BTreeMap<usize, Code> {
        if self.in_flight.is_empty() {
            return self.failed;
        }
        self.post.producer.purge(PurgeConfig::default().queue().inflight());
        let until = Instant::now() + PURGED_WITHIN;
        while self.post.producer.in_flight_count() > 0 && Instant::now() < until {
            self.post.look();
        }
        let sheet = self.post.deliveries().sheet();
        for line in self.in_flight {
            match sheet.outcome(line) {
                Some(Ok(_)) => {}
                Some(Err(code)) => drop(self.failed.insert(line, code)),
                None => drop(self.failed.insert(line, Code::PurgeInflight)),
            }
        }
        self.failed
    }
}

fn in_doubt(code: Code) -> bool {
    matches!(code, Code::PurgeInflight | Code::MessageTimedOut)
}

/// Answers each parcel. A watermark takes no line here.
fn answer(post: &Post, parcels: Vec<Parcel>, failed: &BTreeMap<usize, Code>) {
    let sheet = post.deliveries().sheet();
    let mut first = 0;
    for parcel in parcels {
        let lines = first..first + parcel.records.len();
        let positions = parcel.positions(&sheet, first);
        let codes: Vec<(usize, Code)> = failed.range(lines.clone()).map(|(line, code)| (line - first, *code)).collect();
        first = lines.end;
        let published = verdict(&parcel, positions.len(), &codes);
        parcel.answer(match published {
            Verdict::All => Published::Committed(positions),
            Verdict::Some(refused) => Published::Partial { sent: positions, refused },
            Verdict::Unknown => Published::Unknown("no broker acknowledged the records in time".into()),
            Verdict::Nothing(cause) => Published::Aborted { refused: Vec::new(), cause: Some(cause), reached: false },
        });
    }
}

enum Verdict {
    All,
    Some(Vec<(RowId, Error)>),
    Unknown,
    Nothing(Error),
}

fn verdict(parcel: &Parcel, sent: usize, failed: &[(usize, Code)]) -> Verdict {
    let refusal = |(line, code): &(usize, Code)| {
        let (row, record) = &parcel.records[*line];
        let said = format!("sending key {}: {code}", record.key);
        (blame(*code) == Blame::Record).then(|| (*row, error::of_code(*code, said)))
    };
    let refused: Vec<(RowId, Error)> = failed.iter().filter_map(refusal).collect();
    if sent == parcel.records.len() {
        return Verdict::All;
    }
    if sent > 0 || !refused.is_empty() {
        return Verdict::Some(refused);
    }
    match failed.first() {
        Some((_, code)) if failed.iter().all(|(_, code)| never_left(*code)) => {
            Verdict::Nothing(error::of_code(*code, format!("sending: {code}")))
        }
        _ => Verdict::Unknown,
    }
}
