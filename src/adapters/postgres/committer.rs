//! Group commit: whoever is free takes what queued up meanwhile and commits it in one transaction. A lone commit goes at once.
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::Error;
use ports::orders::{Commit, Committed};
use tokio::sync::{Notify, oneshot};

use crate::error::Trouble;
use crate::find_out;
use crate::group::{self, Outcome, Verdict};
use crate::options::Options;
use crate::store::Core;

/// Times a group that lost against another transaction is tried again, and a commit that must wait for another is put back.
const TRIES_MAX: u32 = 5;

/// A commit that waits for its answer.
pub(crate) struct Job {
    pub(crate) commit: Commit,
    reply: oneshot::Sender<Result<Committed, Error>>,
    tries: u32,
}

impl Job {
    fn answer(self, answer: Result<Committed, Error>) {
        // A caller that has gone away no longer wants to know.
        let _ = self.reply.send(answer);
    }
}

/// Commits that wait for a committer.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    emptied: Notify,
    limit: usize,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    under_way: usize,
    shut: bool,
}

impl Queue {
    pub(crate) fn new(options: &Options) -> Self {
        Self { waiting: Mutex::default(), arrived: Notify::new(), emptied: Notify::new(), limit: options.queue.max(1) }
    }

    /// Puts a commit into the queue; its answer arrives where the receiver is. Dropping that stops nothing.
    pub(crate) fn push(&self, commit: Commit) -> Result<oneshot::Receiver<Result<Committed, Error>>, Error> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.shut {
            return Err(Error::Unreachable("the store is closed".into()));
        }
        if waiting.jobs.len() >= self.limit {
            return Err(Error::Overloaded(format!("{} commits wait already", self.limit)));
        }
        waiting.jobs.push_back(Job { commit, reply, tries: 0 });
        drop(waiting);
        self.arrived.notify_one();
        Ok(answer)
    }

    /// How full the queue is.
    pub(crate) fn fill(&self) -> f64 {
        self.waiting.lock().jobs.len() as f64 / self.limit as f64
    }

    /// Takes no more.
    pub(crate) fn shut(&self) {
        self.waiting.lock().shut = true;
    }

    /// Waits until nothing waits and nothing is under way.
    pub(crate) async fn drained(&self) {
        loop {
            let mut told = std::pin::pin!(self.emptied.notified());
            // Listening begins before the look, or the last answer in between would be missed.
            told.as_mut().enable();
            if self.waiting.lock().is_over() {
                return;
            }
            told.await;
        }
    }

    async fn group(&self, options: &Options) -> Vec<Job> {
        loop {
            let jobs = self.waiting.lock().take(options);
            if !jobs.is_empty() {
                return jobs;
            }
            self.arrived.notified().await;
        }
    }

    fn put_back(&self, jobs: Vec<Job>) {
        let mut waiting = self.waiting.lock();
        jobs.into_iter().rev().for_each(|job| waiting.jobs.push_front(job));
        drop(waiting);
        self.arrived.notify_one();
    }

    fn done(&self, jobs: usize) {
        let mut waiting = self.waiting.lock();
        waiting.under_way -= jobs;
        if waiting.is_over() {
            self.emptied.notify_waiters();
        }
    }
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.jobs.is_empty() && self.under_way == 0
    }

    /// The next group: no order and no mark twice, because one statement cannot tell apart who came first.
    fn take(&mut self, options: &Options) -> Vec<Job> {
        let (mut jobs, mut left, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        let mut seen = group::Seen::default();
        while let Some(job) = self.jobs.pop_front() {
            let size = group::bytes(&job.commit);
            let room =
                jobs.len() < options.group_max.max(1) && (jobs.is_empty() || bytes + size <= options.group_bytes_max);
            if !room {
                self.jobs.push_front(job);
                break;
            }
            if seen.adds(&job.commit) {
                bytes += size;
                jobs.push(job);
            } else {
                left.push_back(job);
            }
        }
        while let Some(job) = left.pop_back() {
            self.jobs.push_front(job);
        }
        self.under_way += jobs.len();
        jobs
    }
}

/// Commits groups for as long as the store is open.
pub(crate) async fn run(core: Arc<Core>, queue: Arc<Queue>) {
    loop {
        let jobs = queue.group(&core.options).await;
        let count = jobs.len();
        commit(&core, &queue, jobs).await;
        queue.done(count);
    }
}

/// Commits one group and answers all of it.
async fn commit(core: &Core, queue: &Queue, mut jobs: Vec<Job>) {
    // Whoever locks rows locks them in this order, so that two groups never wait for each other.
    jobs.sort_by_key(|job| job.commit.order.id);
    let mut tries = 0;
    let outcome = loop {
        let commits: Vec<&Commit> = jobs.iter().map(|job| &job.commit).collect();
        match group::commit(core, &commits).await {
            Outcome::Failed(Trouble::Again(_)) if tries < TRIES_MAX => tries += 1,
            other => break other,
        }
    };
    match outcome {
        Outcome::Done(verdicts) => answer(queue, jobs, verdicts),
        Outcome::Failed(Trouble::Said(Error::Rejected(_) | Error::Broken(_))) if jobs.len() > 1 => {
            // One of them cannot be written: alone each meets its own fate.
            for job in jobs {
                Box::pin(commit(core, queue, vec![job])).await;
            }
        }
        Outcome::Failed(trouble) => {
            let error = trouble.told();
            jobs.into_iter().for_each(|job| job.answer(Err(error.clone())));
        }
        Outcome::Unknown { xid, error } => {
            let commits: Vec<&Commit> = jobs.iter().map(|job| &job.commit).collect();
            let found = find_out::find_out(core, xid, &commits, &error).await;
            jobs.into_iter().zip(found).for_each(|(job, answer)| job.answer(answer));
        }
    }
}

fn answer(queue: &Queue, jobs: Vec<Job>, verdicts: Vec<Verdict>) {
    let mut again = Vec::new();
    for (mut job, verdict) in jobs.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Told(committed) => job.answer(Ok(committed)),
            Verdict::NotYet if job.tries < TRIES_MAX => {
                job.tries += 1;
                again.push(job);
            }
            Verdict::NotYet => job.answer(Err(Error::Unreachable("its mark is fought over".into()))),
        }
    }
    if !again.is_empty() {
        queue.put_back(again);
    }
}
