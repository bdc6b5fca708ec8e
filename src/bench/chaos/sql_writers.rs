//! Writers of other services on PostgreSQL: transactions that commit, roll back, undo a savepoint, or last longer than a lease. No fault hits
//! PostgreSQL, so each outcome is known.
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use domain::EventId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::progress::{EVENT_KEYS, EVENT_TYPE, Progress, WrittenEvent};
use super::tasks::finish_all;
use crate::error::Error;
use crate::program::{SqlSession, ThrowawayData};

/// Duration of a long transaction in seconds: longer than a lease of the instances.
const LONG_SECONDS: u32 = 6;
/// Pause of a writer between two transactions: the orders get most of the time of the machine.
const PAUSE: Duration = Duration::from_millis(20);

/// Writers that run until their time is over; none on a store that is not PostgreSQL.
pub(super) struct SqlWriters(Vec<JoinHandle<Result<(), Error>>>);

impl SqlWriters {
    /// Starts this number of them, each with a session of its own.
    ///
    /// # Errors
    /// PostgreSQL cannot be reached.
    pub(super) async fn start<D: ThrowawayData>(
        data: &D,
        (count, seed): (usize, u64),
        topic: &str,
        progress: &Rc<RefCell<Progress>>,
        end: Instant,
    ) -> Result<Self, Error> {
        let mut writers = Vec::new();
        for number in 0..count {
            let Some(session) = data.sql_session().await? else { break };
            let writer = SqlWriter {
                session,
                topic: topic.to_owned(),
                name: format!("sql-{number}"),
                rng: StdRng::seed_from_u64(seed.wrapping_sub(1 + number as u64)),
                next_number: 0,
                progress: Rc::clone(progress),
            };
            writers.push(actix_rt::spawn(writer.run(end)));
        }
        Ok(Self(writers))
    }

    /// Waits for each writer's last transaction; returns the number of those that do not end within the time.
    ///
    /// # Errors
    /// Returns the first error of a statement; the other writers are not waited for.
    pub(super) async fn finish(self, limit: Duration) -> Result<usize, Error> {
        finish_all(self.0, limit).await
    }
}

/// The kind of transaction that a writer executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionScript {
    Commit,
    Rollback,
    /// The event of another key, after a savepoint, is undone; the transaction commits.
    UndoneSavepoint,
    /// Events of three keys in one call.
    Batch,
    Long,
}

impl TransactionScript {
    /// Few are long: the other writers and HTTP requests of the same key wait for each of them.
    fn from_draw(draw: u32) -> Self {
        match draw % 64 {
            0 => Self::Long,
            1..=8 => Self::Rollback,
            9..=20 => Self::UndoneSavepoint,
            21..=32 => Self::Batch,
            _ => Self::Commit,
        }
    }

    /// The number of events that the transaction writes, also those that it undoes.
    fn written(self) -> usize {
        match self {
            Self::Commit | Self::Long | Self::Rollback => 1,
            Self::UndoneSavepoint => 2,
            Self::Batch => 3,
        }
    }

    /// The number of those events, from the first on, that the transaction commits.
    fn committed(self) -> usize {
        match self {
            Self::Rollback => 0,
            Self::Commit | Self::Long | Self::UndoneSavepoint => 1,
            Self::Batch => 3,
        }
    }

    /// The statements that write these events with the functions of this schema.
    fn script(self, functions: &str, topic: &str, events: &[(String, WrittenEvent)]) -> String {
        let one = |at: usize| {
            let call =
                |(id, event): &(String, WrittenEvent)| format!("SELECT {functions}.{}", publish(topic, id, event));
            events.get(at).map(call).unwrap_or_default()
        };
        let (first, second) = (one(0), one(1));
        match self {
            Self::Commit => format!("BEGIN; {first}; COMMIT"),
            Self::Rollback => format!("BEGIN; {first}; ROLLBACK"),
            Self::UndoneSavepoint => format!("BEGIN; {first}; SAVEPOINT s; {second}; ROLLBACK TO s; COMMIT"),
            Self::Batch => format!("BEGIN; SELECT {functions}.{}; COMMIT", publish_all(topic, events)),
            Self::Long => format!("BEGIN; {first}; SELECT pg_sleep({LONG_SECONDS}); COMMIT"),
        }
    }
}

fn payload(event: &WrittenEvent) -> String {
    format!(r#"{{"writer": "{}", "number": {}}}"#, event.writer, event.number)
}

fn publish(topic: &str, id: &str, event: &WrittenEvent) -> String {
    let (key, payload) = (&event.key, payload(event));
    format!(
        "publish(topic => '{topic}', key => '{key}', type => '{EVENT_TYPE}', payload => '{payload}'::jsonb, event_id => '{id}')"
    )
}

fn publish_all(topic: &str, events: &[(String, WrittenEvent)]) -> String {
    let event = |(id, event): &(String, WrittenEvent)| {
        let (key, payload) = (&event.key, payload(event));
        format!(
            r#"{{"topic": "{topic}", "key": "{key}", "type": "{EVENT_TYPE}", "payload": {payload}, "eventId": "{id}"}}"#
        )
    };
    let events: Vec<String> = events.iter().map(event).collect();
    format!("publish_all('[{}]'::jsonb)", events.join(", "))
}

struct SqlWriter<S> {
    session: S,
    topic: String,
    name: String,
    rng: StdRng,
    next_number: u64,
    progress: Rc<RefCell<Progress>>,
}

impl<S: SqlSession> SqlWriter<S> {
    async fn run(mut self, end: Instant) -> Result<(), Error> {
        while Instant::now() < end {
            let kind = TransactionScript::from_draw(self.rng.random());
            let (written, committed) = (kind.written(), kind.committed());
            let mut events = self.new_events(written);
            let script = kind.script(self.session.functions(), &self.topic, &events);
            self.session.execute(&script).await?;
            let rolled_back = events.split_off(committed);
            self.record(events, rolled_back);
            sleep(PAUSE).await;
        }
        Ok(())
    }

    fn record(&self, committed: Vec<(String, WrittenEvent)>, rolled_back: Vec<(String, WrittenEvent)>) {
        let mut progress = self.progress.borrow_mut();
        progress.sql.extend(committed);
        progress.rolled_back.extend(rolled_back.into_iter().map(|(id, _)| id));
    }

    /// Events of as many different keys, which ascend in the order of [`EVENT_KEYS`].
    fn new_events(&mut self, count: usize) -> Vec<(String, WrittenEvent)> {
        let mut keys = rand::seq::index::sample(&mut self.rng, EVENT_KEYS.len(), count).into_vec();
        keys.sort_unstable();
        keys.into_iter().map(|key| self.new_event(EVENT_KEYS[key])).collect()
    }

    fn new_event(&mut self, key: &str) -> (String, WrittenEvent) {
        let number = self.next_number;
        self.next_number += 1;
        let event = WrittenEvent { key: key.to_owned(), writer: self.name.clone(), number };
        (EventId::from_bytes(self.rng.random()).to_string(), event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_writes_all_its_events_and_ends_its_transaction() {
        let kinds = [
            (TransactionScript::Commit, "; COMMIT"),
            (TransactionScript::Rollback, "; ROLLBACK"),
            (TransactionScript::UndoneSavepoint, "; ROLLBACK TO s; COMMIT"),
            (TransactionScript::Batch, "; COMMIT"),
            (TransactionScript::Long, "; SELECT pg_sleep(6); COMMIT"),
        ];
        for (kind, end) in kinds {
            let event = |number| WrittenEvent { key: format!("k{number}"), writer: "sql-0".into(), number };
            let events: Vec<_> =
                (0..kind.written() as u64).map(|number| (format!("id-{number}"), event(number))).collect();

            let script = kind.script("posthaste", "customers", &events);

            assert!(script.starts_with("BEGIN; SELECT posthaste.publish") && script.ends_with(end), "{script}");
            for (id, event) in &events {
                assert_eq!(script.matches(&format!("\"number\": {}}}", event.number)).count(), 1, "{script}");
                assert!(script.contains(id) && script.contains(&event.key), "{script}");
            }
        }
    }

    #[test]
    fn all_transaction_scripts_occur_in_64_draws() {
        let drawn: Vec<TransactionScript> = (0..64).map(TransactionScript::from_draw).collect();

        for kind in [
            TransactionScript::Commit,
            TransactionScript::Rollback,
            TransactionScript::UndoneSavepoint,
            TransactionScript::Batch,
            TransactionScript::Long,
        ] {
            assert!(drawn.contains(&kind), "{kind:?}");
        }
    }
}
