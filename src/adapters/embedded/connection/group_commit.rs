//! The one writing connection and its group commit.
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::Timestamp;
use ports::Error;
use ports::clock::Clock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::broker::log_state::LogState;
use crate::error::{CommandResult, WriteError, commit_error, statement_error};
use crate::orders::owner_index::{self, UNINDEXED_MAX};
use crate::outbox::counts::CountChanges;

/// Commits must succeed for this long before `commits_recovered` is logged.
const RECOVERY_PERIOD: Duration = Duration::from_secs(5);

/// The transaction that a command runs in.
pub(crate) struct WriteContext<'a> {
    /// The connection, inside a transaction, and inside a savepoint if the command has one of its own.
    pub(crate) sql: &'a Connection,
    /// Now, by the store's clock.
    pub(crate) now: Timestamp,
    /// Changes of the running counts.
    pub(crate) counts: CountChanges,
    /// Topic partitions to which this command appended, each with its new end.
    pub(crate) ends: Vec<(u32, u64)>,
    /// For each partition a row id at and below which no row is ready: a scan for ready rows starts above it. The one writer draws ids in
    /// commit order, so no new row appears below; a command that makes an old row ready removes the entry.
    pub(crate) scan_starts: &'a mut HashMap<u32, i64>,
    /// Orders that this command added to the list of unindexed orders.
    pub(crate) unindexed_orders: u32,
    writing: bool,
}

impl WriteContext<'_> {
    /// A command without a savepoint of its own calls this before its first write: from here on only a disk error may stop it.
    pub(crate) fn begin_writing(&mut self) {
        self.writing = true;
    }
}

/// Whether a savepoint undoes the changes of a failing command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavepointMode {
    /// By a savepoint of its own: the command may fail after it has written.
    OwnSavepoint,
    /// No savepoint: the command checks every reason to refuse before it calls [`WriteContext::begin_writing`], so there is nothing to undo.
    /// A savepoint costs a tenth of an order's time in the writer. A failure after that call (a disk error) fails the whole group.
    NoSavepoint,
}

/// A command in the writer's queue.
pub(crate) trait WriterCommand: Send {
    /// How its changes are undone when it fails.
    fn savepoint_mode(&self) -> SavepointMode;
    /// Runs the command and keeps its result.
    fn run(&mut self, context: &mut WriteContext<'_>) -> CommandEffect;
    /// Sends the result to the caller, or the group's error where the group did not become durable.
    fn reply(self: Box<Self>, group: Result<(), &Error>);
}

/// The effect of a command on the transaction.
pub(crate) enum CommandEffect {
    /// Its changes become part of the transaction.
    Kept,
    /// Its changes are undone; the caller receives this error whatever happens to the group.
    Failed(Error),
}

/// A closure as a [`WriterCommand`].
pub(crate) struct ClosureCommand<T, F> {
    operation: &'static str,
    savepoint_mode: SavepointMode,
    command: Option<F>,
    value: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send> ClosureCommand<T, F> {
    /// The command, and the receiver of its result.
    pub(crate) fn new(
        operation: &'static str,
        savepoint_mode: SavepointMode,
        command: F,
    ) -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (reply, result) = oneshot::channel();
        (Self { operation, savepoint_mode, command: Some(command), value: None, reply }, result)
    }
}

impl<T: Send, F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send> WriterCommand for ClosureCommand<T, F> {
    fn savepoint_mode(&self) -> SavepointMode {
        self.savepoint_mode
    }

    fn run(&mut self, context: &mut WriteContext<'_>) -> CommandEffect {
        let Some(command) = self.command.take() else { return CommandEffect::Failed(not_run_error(self.operation)) };
        let value = match catch_unwind(AssertUnwindSafe(|| command(context))) {
            Ok(result) => result.map_err(|error| error.to_port_error(self.operation)),
            Err(_) => {
                Err(Error::Broken(format!("{}: a defect stopped the command; nothing was changed", self.operation)))
            }
        };
        let effect = value.as_ref().map_or_else(|error| CommandEffect::Failed(error.clone()), |_| CommandEffect::Kept);
        self.value = Some(value);
        effect
    }

    fn reply(self: Box<Self>, group: Result<(), &Error>) {
        let value = match (self.value, group) {
            (Some(Err(own)), _) => Err(own),
            (_, Err(error)) => Err(error.clone()),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(not_run_error(self.operation)),
        };
        // The caller may have dropped its receiver.
        let _ = self.reply.send(value);
    }
}

/// The writing connection and its state between commands.
pub(crate) struct WritingConnection {
    pub(crate) sql: Connection,
    clock: Arc<dyn Clock>,
    log_state: Arc<LogState>,
    scan_starts: HashMap<u32, i64>,
    /// Number of orders that are not yet in the index by owner.
    unindexed_orders: u32,
    /// When a commit last failed; `None` after [`RECOVERY_PERIOD`] without a failure.
    last_failure_at: Option<Instant>,
}

impl WritingConnection {
    /// Wraps a connection that [`settings::for_writing`](crate::connection::settings::for_writing) has configured.
    pub(crate) fn new(sql: Connection, clock: Arc<dyn Clock>, log_state: Arc<LogState>, unindexed_orders: u32) -> Self {
        Self { sql, clock, log_state, scan_starts: HashMap::new(), unindexed_orders, last_failure_at: None }
    }

    /// Runs all commands in as few transactions as possible and replies to each.
    pub(crate) fn run(&mut self, mut commands: VecDeque<Box<dyn WriterCommand>>) {
        while !commands.is_empty() {
            self.run_transaction(&mut commands);
        }
        if self.unindexed_orders >= UNINDEXED_MAX {
            self.index_owners();
        }
    }

    /// Adds unindexed orders to the index by owner. Queries read those orders too, so nothing is missing after a failure; a later call repeats it.
    fn index_owners(&mut self) {
        let added = self
            .statement("BEGIN IMMEDIATE")
            .and_then(|()| owner_index::add_unindexed(&self.sql))
            .and_then(|()| self.statement("COMMIT"));
        match added {
            Ok(()) => self.unindexed_orders = 0,
            Err(error) => {
                tracing::debug!(event = "owner_index_update_failed", %error, "new orders are not yet in the index by owner; the next commits retry");
                // Half of them: the next attempt follows after some more orders, not after each commit.
                self.unindexed_orders /= 2;
                if !self.sql.is_autocommit() {
                    // A rollback that fails shows as an error of the next BEGIN.
                    let _ = self.sql.execute_batch("ROLLBACK");
                }
            }
        }
    }

    /// Runs one transaction over the commands at the front. Commands that have not run when it is rolled back stay for the next one.
    fn run_transaction(&mut self, commands: &mut VecDeque<Box<dyn WriterCommand>>) {
        if let Err(error) = self.statement("BEGIN IMMEDIATE") {
            let error = statement_error(&error, "begin");
            commands.drain(..).for_each(|command| command.reply(Err(&error)));
            return;
        }
        let mut group = CommitGroup::default();
        while let Some(command) = commands.pop_front() {
            if !self.run_command(command, &mut group) {
                break;
            }
        }
        let outcome = self.end_transaction(&group);
        self.log_commit_state(outcome.as_ref().err());
        if outcome.is_err() {
            // The remembered scan starts may depend on changes that were rolled back.
            self.scan_starts.clear();
        } else {
            self.log_state.advance(&group.ends);
            self.unindexed_orders += group.unindexed_orders;
        }
        group.commands.into_iter().for_each(|command| command.reply(outcome.as_ref().copied()));
    }

    /// Runs one command, in its own savepoint where it needs one; returns whether the transaction is still open.
    fn run_command(&mut self, mut command: Box<dyn WriterCommand>, group: &mut CommitGroup) -> bool {
        let mut context = WriteContext {
            sql: &self.sql,
            now: self.clock.now(),
            counts: CountChanges::default(),
            ends: Vec::new(),
            scan_starts: &mut self.scan_starts,
            unindexed_orders: 0,
            writing: false,
        };
        let own_savepoint = command.savepoint_mode() == SavepointMode::OwnSavepoint;
        let opened = if own_savepoint { statement(&self.sql, "SAVEPOINT one") } else { Ok(()) };
        let effect = match opened {
            Ok(()) => command.run(&mut context),
            Err(error) => CommandEffect::Failed(statement_error(&error, "savepoint")),
        };
        let WriteContext { counts, ends, unindexed_orders, writing, .. } = context;
        group.commands.push(command);
        let kept = matches!(effect, CommandEffect::Kept);
        // On a full disk SQLite may have rolled back the whole transaction by itself.
        if self.sql.is_autocommit() {
            group.failure = Some(rollback_error(effect));
            return false;
        }
        if !own_savepoint && !kept && writing {
            group.failure = Some(rollback_error(effect));
            return false;
        }
        let closed = match (own_savepoint, kept) {
            (true, true) => statement(&self.sql, "RELEASE one"),
            (true, false) => self.roll_back_savepoint(),
            (false, _) => Ok(()),
        };
        match closed {
            Ok(()) if kept => {
                group.counts.merge(counts);
                group.ends.extend(ends);
                group.unindexed_orders += unindexed_orders;
            }
            Ok(()) => self.scan_starts.clear(),
            Err(error) => group.failure = Some(statement_error(&error, "savepoint")),
        }
        group.failure.is_none()
    }

    /// Logs when commits begin and cease to fail, not each failure: on a full disk a small commit may fit between large ones.
    fn log_commit_state(&mut self, error: Option<&Error>) {
        let now = Instant::now();
        match (error, self.last_failure_at) {
            (Some(error), last) => {
                if last.is_none() {
                    tracing::error!(event = "commits_failing", %error, "commits to the data folder fail: {error}");
                }
                self.last_failure_at = Some(now);
            }
            (None, Some(last)) if now - last >= RECOVERY_PERIOD => {
                tracing::info!(event = "commits_recovered", "commits succeed again");
                self.last_failure_at = None;
            }
            (None, _) => {}
        }
    }

    fn roll_back_savepoint(&self) -> rusqlite::Result<()> {
        statement(&self.sql, "ROLLBACK TO one")?;
        statement(&self.sql, "RELEASE one")
    }

    fn end_transaction(&self, group: &CommitGroup) -> Result<(), Error> {
        let written = match &group.failure {
            Some(error) => Err(error.clone()),
            None => group.counts.write(&self.sql).map_err(|error: WriteError| error.to_port_error("count")),
        };
        let ended = match written {
            Ok(()) => self.statement("COMMIT").map_err(|error| commit_error(&error)),
            Err(error) => Err(error),
        };
        if ended.is_err() && !self.sql.is_autocommit() {
            // A rollback that fails shows as an error of the next BEGIN.
            let _ = self.sql.execute_batch("ROLLBACK");
        }
        ended
    }

    fn statement(&self, text: &'static str) -> rusqlite::Result<()> {
        statement(&self.sql, text)
    }
}

/// The commands of one transaction and the sum of their changes.
#[derive(Default)]
struct CommitGroup {
    commands: Vec<Box<dyn WriterCommand>>,
    counts: CountChanges,
    ends: Vec<(u32, u64)>,
    unindexed_orders: u32,
    /// The reason for which the whole transaction is rolled back.
    failure: Option<Error>,
}

/// The error for the other commands of a transaction that one command's failure rolled back: nothing was changed.
fn rollback_error(effect: CommandEffect) -> Error {
    match effect {
        CommandEffect::Failed(Error::Full(message)) => Error::Full(message),
        CommandEffect::Failed(error) => {
            Error::Unreachable(format!("another command of the commit group failed: {error}"))
        }
        CommandEffect::Kept => Error::Unreachable("the transaction was rolled back".into()),
    }
}

fn not_run_error(operation: &str) -> Error {
    Error::Broken(format!("{operation}: the command never ran"))
}

fn statement(sql: &Connection, text: &'static str) -> rusqlite::Result<()> {
    sql.prepare_cached(text)?.execute([]).map(|_| ())
}
