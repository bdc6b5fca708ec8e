//! The one connection that writes, and the group commit on it.
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::Timestamp;
use ports::Error;
use ports::clock::Clock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::book::Book;
use crate::counts::Counts;
use crate::error::{Answer, Trouble, of_commit, of_statement};
use crate::owners::{self, FRESH_MAX};

/// So long must commits succeed before the log says that they do again.
const CALM: Duration = Duration::from_secs(5);

/// What a command works with.
pub(crate) struct Work<'a> {
    /// The connection, inside a transaction and a savepoint.
    pub(crate) sql: &'a Connection,
    /// Now, by the store's clock.
    pub(crate) now: Timestamp,
    /// Changes of the running counts.
    pub(crate) counts: Counts,
    /// Ends of topic partitions that this command moved.
    pub(crate) ends: Vec<(u32, u64)>,
    /// Per partition a row id at and below which no row is ready: where a scan for ready rows may begin.
    /// Ids are drawn by the one writer in commit order, so nothing ready can appear below by itself; who makes an old row ready forgets the entry.
    pub(crate) lows: &'a mut HashMap<u32, i64>,
    /// Orders that this command listed under their owners.
    pub(crate) fresh: u32,
    begun: bool,
}

impl Work<'_> {
    /// From here on a tidy command writes, and nothing but the disk can stop it.
    pub(crate) fn begin_writing(&mut self) {
        self.begun = true;
    }
}

/// How a command that fails leaves things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    /// It may fail half way: it gets a savepoint of its own.
    Careless,
    /// Whatever can stand in its way it finds before it calls [`Work::begin_writing`]: it needs no savepoint, which costs a tenth of an
    /// order's time in the writer. What fails after that (the disk) takes its group with it.
    Tidy,
}

/// A command on its way through the writer.
pub(crate) trait Job: Send {
    /// How it fails.
    fn manners(&self) -> Manners;
    /// Does the work and keeps the answer.
    fn run(&mut self, work: &mut Work<'_>) -> Ran;
    /// Tells the caller; an error is the group's, in place of an answer that did not become durable.
    fn answer(self: Box<Self>, group: Result<(), &Error>);
}

/// What a command left behind.
pub(crate) enum Ran {
    /// Its changes stand.
    Kept,
    /// It failed: its changes must go, and its error stands whatever becomes of the group.
    Failed(Error),
}

/// A closure as a [`Job`].
pub(crate) struct Call<T, F> {
    doing: &'static str,
    manners: Manners,
    work: Option<F>,
    value: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: FnOnce(&mut Work<'_>) -> Answer<T> + Send> Call<T, F> {
    /// The job, and where its answer will arrive.
    pub(crate) fn new(doing: &'static str, manners: Manners, work: F) -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (reply, answer) = oneshot::channel();
        (Self { doing, manners, work: Some(work), value: None, reply }, answer)
    }
}

impl<T: Send, F: FnOnce(&mut Work<'_>) -> Answer<T> + Send> Job for Call<T, F> {
    fn manners(&self) -> Manners {
        self.manners
    }

    fn run(&mut self, work: &mut Work<'_>) -> Ran {
        let Some(command) = self.work.take() else { return Ran::Failed(never(self.doing)) };
        let value = match catch_unwind(AssertUnwindSafe(|| command(work))) {
            Ok(answer) => answer.map_err(|trouble| trouble.told(self.doing)),
            Err(_) => Err(Error::Broken(format!("{}: a defect stopped the command; nothing was changed", self.doing))),
        };
        let ran = value.as_ref().map_or_else(|error| Ran::Failed(error.clone()), |_| Ran::Kept);
        self.value = Some(value);
        ran
    }

    fn answer(self: Box<Self>, group: Result<(), &Error>) {
        let value = match (self.value, group) {
            (Some(Err(own)), _) => Err(own),
            (_, Err(error)) => Err(error.clone()),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(never(self.doing)),
        };
        // A caller that has gone away no longer wants to know.
        let _ = self.reply.send(value);
    }
}

/// The writing connection and what it keeps in mind between commands.
pub(crate) struct Engine {
    pub(crate) sql: Connection,
    clock: Arc<dyn Clock>,
    book: Arc<Book>,
    lows: HashMap<u32, i64>,
    /// How many orders wait to be filed under their owners.
    fresh: u32,
    /// When a commit last failed, until that is long ago.
    failed: Option<Instant>,
}

impl Engine {
    /// An engine on a connection that is ready.
    pub(crate) fn new(sql: Connection, clock: Arc<dyn Clock>, book: Arc<Book>, fresh: u32) -> Self {
        Self { sql, clock, book, lows: HashMap::new(), fresh, failed: None }
    }

    /// Runs all jobs in as few transactions as possible and answers each.
    pub(crate) fn run(&mut self, mut jobs: VecDeque<Box<dyn Job>>) {
        while !jobs.is_empty() {
            self.transaction(&mut jobs);
        }
        if self.fresh >= FRESH_MAX {
            self.file_owners();
        }
    }

    /// Nothing depends on it: what fails here is done another time.
    fn file_owners(&mut self) {
        let filed = self
            .statement("BEGIN IMMEDIATE")
            .and_then(|()| owners::file(&self.sql))
            .and_then(|()| self.statement("COMMIT"));
        match filed {
            Ok(()) => self.fresh = 0,
            Err(error) => {
                tracing::debug!(event = "owners_not_filed", %error, "the list of new orders grows on");
                self.fresh /= 2;
                if !self.sql.is_autocommit() {
                    // As after a failed commit: the next BEGIN will tell.
                    let _ = self.sql.execute_batch("ROLLBACK");
                }
            }
        }
    }

    /// One transaction over the jobs in front. Those that have not run when it is lost stay for the next one.
    fn transaction(&mut self, jobs: &mut VecDeque<Box<dyn Job>>) {
        if let Err(error) = self.statement("BEGIN IMMEDIATE") {
            let error = of_statement(&error, "begin");
            jobs.drain(..).for_each(|job| job.answer(Err(&error)));
            return;
        }
        let mut group = Group::default();
        while let Some(job) = jobs.pop_front() {
            if !self.step(job, &mut group) {
                break;
            }
        }
        let outcome = self.end(&group);
        self.notice(outcome.as_ref().err());
        if outcome.is_err() {
            // What was believed about ready rows may rest on changes that are gone.
            self.lows.clear();
        } else {
            self.book.advance(&group.ends);
            self.fresh += group.fresh;
        }
        group.jobs.into_iter().for_each(|job| job.answer(outcome.as_ref().copied()));
    }

    /// Runs one job, a careless one in its own savepoint. Says whether the transaction still stands.
    fn step(&mut self, mut job: Box<dyn Job>, group: &mut Group) -> bool {
        let mut work = Work {
            sql: &self.sql,
            now: self.clock.now(),
            counts: Counts::default(),
            ends: Vec::new(),
            lows: &mut self.lows,
            fresh: 0,
            begun: false,
        };
        let careless = job.manners() == Manners::Careless;
        let opened = if careless { statement(&self.sql, "SAVEPOINT one") } else { Ok(()) };
        let ran = match opened {
            Ok(()) => job.run(&mut work),
            Err(error) => Ran::Failed(of_statement(&error, "savepoint")),
        };
        let Work { counts, ends, fresh, begun, .. } = work;
        group.jobs.push(job);
        let kept = matches!(ran, Ran::Kept);
        // Out of room or out of luck, SQLite may have rolled back everything by itself, the neighbours' work too.
        if self.sql.is_autocommit() {
            group.lost = Some(lost(ran));
            return false;
        }
        if !careless && !kept && begun {
            group.lost = Some(lost(ran));
            return false;
        }
        let closed = match (careless, kept) {
            (true, true) => statement(&self.sql, "RELEASE one"),
            (true, false) => self.rolled_back(),
            (false, _) => Ok(()),
        };
        match closed {
            Ok(()) if kept => {
                group.counts.absorb(counts);
                group.ends.extend(ends);
                group.fresh += fresh;
            }
            Ok(()) => self.lows.clear(),
            Err(error) => group.lost = Some(of_statement(&error, "savepoint")),
        }
        group.lost.is_none()
    }

    /// Logs when commits begin or cease to fail, not each of them: on a full disk a small one may fit between large ones.
    fn notice(&mut self, error: Option<&Error>) {
        let now = Instant::now();
        match (error, self.failed) {
            (Some(error), last) => {
                if last.is_none() {
                    tracing::error!(event = "commits_failing", %error, "commits began to fail");
                }
                self.failed = Some(now);
            }
            (None, Some(last)) if now - last >= CALM => {
                tracing::info!(event = "commits_recovered", "commits succeed again");
                self.failed = None;
            }
            (None, _) => {}
        }
    }

    fn rolled_back(&self) -> rusqlite::Result<()> {
        statement(&self.sql, "ROLLBACK TO one")?;
        statement(&self.sql, "RELEASE one")
    }

    fn end(&self, group: &Group) -> Result<(), Error> {
        let written = match &group.lost {
            Some(error) => Err(error.clone()),
            None => group.counts.write(&self.sql).map_err(|trouble: Trouble| trouble.told("count")),
        };
        let ended = match written {
            Ok(()) => self.statement("COMMIT").map_err(|error| of_commit(&error)),
            Err(error) => Err(error),
        };
        if ended.is_err() && !self.sql.is_autocommit() {
            // Nothing better can be done about a rollback that fails: the next BEGIN will tell.
            let _ = self.sql.execute_batch("ROLLBACK");
        }
        ended
    }

    fn statement(&self, text: &'static str) -> rusqlite::Result<()> {
        statement(&self.sql, text)
    }
}

/// What one transaction gathered.
#[derive(Default)]
struct Group {
    jobs: Vec<Box<dyn Job>>,
    counts: Counts,
    ends: Vec<(u32, u64)>,
    fresh: u32,
    lost: Option<Error>,
}

/// What the neighbours of a command hear whose failure took the whole transaction with it: nothing was changed.
fn lost(ran: Ran) -> Error {
    match ran {
        Ran::Failed(Error::Full(said)) => Error::Full(said),
        Ran::Failed(error) => Error::Unreachable(format!("a neighbour in the group failed: {error}")),
        Ran::Kept => Error::Unreachable("the transaction was rolled back".into()),
    }
}

fn never(doing: &str) -> Error {
    Error::Broken(format!("{doing}: the command never ran"))
}

fn statement(sql: &Connection, text: &'static str) -> rusqlite::Result<()> {
    sql.prepare_cached(text)?.execute([]).map(|_| ())
}
