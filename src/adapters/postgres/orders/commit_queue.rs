//! The queue of commits that wait for a committer, and the choice of the next group.
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use domain::{OrderId, Subject};
use parking_lot::Mutex;
use ports::Error;
use ports::orders::{Commit, CommitOutcome};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::connection::statement_error::StatementError;
use crate::orders::group_spacing::GroupSpacing;
use crate::store::options::Options;

/// Time between two attempts to lock orders that another transaction has locked. A commit that waits for a lock is delayed by 25 ms at
/// most, and 40 small transactions a second cost the server little.
const LOCKED_RETRY_INTERVAL: Duration = Duration::from_millis(25);

/// A commit and the caller that waits for its result.
pub(crate) struct QueuedCommit {
    pub(crate) commit: Commit,
    reply: oneshot::Sender<Result<CommitOutcome, Error>>,
    /// Groups that this commit was returned from because its key was contended.
    pub(crate) requeues: u32,
    /// When a group first found the commit's order locked by another transaction.
    locked_since: Option<Instant>,
}

impl QueuedCommit {
    /// Sends the result to the caller.
    pub(crate) fn reply(self, result: Result<CommitOutcome, Error>) {
        // Fails if the caller has gone.
        let _ = self.reply.send(result);
    }
}

/// Commits that wait for a committer. Bounded by [`Options::queue_max`].
pub(crate) struct CommitQueue {
    state: Mutex<QueueState>,
    added: Notify,
    drained: Notify,
    limit: usize,
}

#[derive(Default)]
struct QueueState {
    commits: VecDeque<QueuedCommit>,
    /// Commits whose order another transaction has locked. They are repeated together, at `locked_retry`.
    locked: Vec<QueuedCommit>,
    locked_retry: Option<Instant>,
    /// Commits of groups that are being committed.
    in_progress: usize,
    spacing: GroupSpacing,
    is_closed: bool,
}

/// The next step of a free committer.
enum NextStep {
    Start(Vec<QueuedCommit>),
    WaitForCommit,
    WaitUntil(Instant),
}

impl CommitQueue {
    pub(crate) fn new(options: &Options) -> Self {
        Self { state: Mutex::default(), added: Notify::new(), drained: Notify::new(), limit: options.queue_max.max(1) }
    }

    /// Adds a commit. The receiver gets its result; dropping the receiver does not stop the commit.
    pub(crate) fn push(&self, commit: Commit) -> Result<oneshot::Receiver<Result<CommitOutcome, Error>>, Error> {
        let (reply, result) = oneshot::channel();
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::Unreachable("the store is closed".into()));
        }
        if state.waiting() >= self.limit {
            return Err(Error::Overloaded(format!("{} commits are waiting already", self.limit)));
        }
        state.commits.push_back(QueuedCommit { commit, reply, requeues: 0, locked_since: None });
        drop(state);
        self.added.notify_one();
        Ok(result)
    }

    /// The queue's length as a share of its limit.
    pub(crate) fn saturation(&self) -> f64 {
        self.state.lock().waiting() as f64 / self.limit as f64
    }

    /// Refuses commits from now on; queued ones are still committed.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Waits until the queue is empty and no group is being committed.
    pub(crate) async fn drained(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            // Registers before the check: a notification between the check and the wait would be lost.
            drained.as_mut().enable();
            if self.state.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Waits for the next group, and counts it as in progress until [`CommitQueue::finish`].
    pub(crate) async fn next_group(&self, options: &Options) -> Vec<QueuedCommit> {
        loop {
            let step = self.state.lock().next_step(options, Instant::now());
            match step {
                NextStep::Start(group) => return group,
                NextStep::WaitForCommit => self.added.notified().await,
                // Ends early when a commit is added, which may fill the group.
                NextStep::WaitUntil(start) => drop(timeout_at(start, self.added.notified()).await),
            }
        }
    }

    /// Puts commits back at the front, in their order.
    pub(crate) fn put_back(&self, commits: Vec<QueuedCommit>) {
        let mut state = self.state.lock();
        commits.into_iter().rev().for_each(|commit| state.commits.push_front(commit));
        drop(state);
        self.added.notify_one();
    }

    /// Takes commits back whose order is locked by another transaction: a later group tries them again. After `timeout` they fail.
    pub(crate) fn requeue_locked(&self, commits: Vec<QueuedCommit>, timeout: Duration) {
        let now = Instant::now();
        let is_over = |queued: &mut QueuedCommit| now - *queued.locked_since.get_or_insert(now) >= timeout;
        let mut commits = commits;
        for queued in commits.extract_if(.., is_over) {
            let error = StatementError::LockTimeout("another transaction keeps the order locked".into());
            queued.reply(Err(error.into_port()));
        }
        if commits.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.locked.append(&mut commits);
        state.locked_retry.get_or_insert(now + LOCKED_RETRY_INTERVAL);
        drop(state);
        // Another committer waits without an end, because it has seen no locked order.
        self.added.notify_one();
    }

    /// Ends a group of `size` commits that took this long.
    pub(crate) fn finish(&self, size: usize, took: Duration) {
        let mut state = self.state.lock();
        state.spacing.record_end(took);
        state.in_progress -= size;
        if state.is_drained() {
            self.drained.notify_waiters();
        }
    }
}

impl QueueState {
    fn waiting(&self) -> usize {
        self.commits.len() + self.locked.len()
    }

    fn is_drained(&self) -> bool {
        self.waiting() == 0 && self.in_progress == 0
    }

    fn next_step(&mut self, options: &Options, now: Instant) -> NextStep {
        if self.locked_retry.is_some_and(|retry| retry <= now) {
            self.locked_retry = None;
            self.commits.extend(self.locked.drain(..));
        }
        if self.commits.is_empty() {
            return self.locked_retry.map_or(NextStep::WaitForCommit, NextStep::WaitUntil);
        }
        if let Some(start) = self.spacing.waits_until(self.commits.len(), now) {
            return NextStep::WaitUntil(start);
        }
        self.spacing.record_start(now, options.group_spacing_max);
        NextStep::Start(self.take_group(options))
    }

    /// The next group. No order and no idempotency record occurs in it twice, because one statement does not define which of two comes first.
    fn take_group(&mut self, options: &Options) -> Vec<QueuedCommit> {
        let (mut group, mut postponed, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        let mut keys = GroupKeys::default();
        while let Some(queued) = self.commits.pop_front() {
            let size = event_bytes(&queued.commit);
            let fits =
                group.len() < options.group_max.max(1) && (group.is_empty() || bytes + size <= options.group_bytes_max);
            if !fits {
                self.commits.push_front(queued);
                break;
            }
            if keys.insert(&queued.commit) {
                bytes += size;
                group.push(queued);
            } else {
                postponed.push_back(queued);
            }
        }
        while let Some(queued) = postponed.pop_back() {
            self.commits.push_front(queued);
        }
        self.in_progress += group.len();
        group
    }
}

fn event_bytes(commit: &Commit) -> usize {
    commit.events.iter().map(|event| event.payload.len()).sum()
}

/// The orders and idempotency records of a group.
#[derive(Default)]
struct GroupKeys {
    orders: HashSet<OrderId>,
    idempotency_records: HashSet<(Subject, Arc<str>)>,
}

impl GroupKeys {
    /// Adds a commit's keys; returns false and adds nothing if one of them is there already.
    fn insert(&mut self, commit: &Commit) -> bool {
        let record = commit.idempotency_record.as_ref().map(|record| (record.subject.clone(), record.key.clone()));
        let has_record = record.as_ref().is_some_and(|record| self.idempotency_records.contains(record));
        if has_record || self.orders.contains(&commit.order.id) {
            return false;
        }
        self.orders.insert(commit.order.id);
        self.idempotency_records.extend(record);
        true
    }
}
