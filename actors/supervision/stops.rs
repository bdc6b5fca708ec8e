//! How a supervisor stops its children: in reverse start order, each drained within its own limit, then killed.
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::exit::{Exit, Reason};
use crate::order::{Farewell, Life, Order};
use crate::root::LeftOver;
use crate::snapshot::State;
use crate::spec::{FOREVER, Shutdown};
use crate::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn stop_all(&mut self, farewell: &Farewell) {
        let stopped = if self.stops_at_once { self.stop_at_once(farewell).await } else { Vec::new() };
        for at in (0..self.kids.len()).rev().filter(|at| !stopped.contains(at)) {
            self.stop_one(at, farewell).await;
        }
        self.stopped_all();
    }

    /// Asks all that run to drain before it waits for any. Answers whom it stopped.
    async fn stop_at_once(&mut self, farewell: &Farewell) -> Vec<usize> {
        let asked_at = Instant::now();
        let patient = (0..self.kids.len()).filter(|at| self.kids[*at].up && self.patience(*at).is_some());
        let asked: Vec<usize> = patient.collect();
        for at in &asked {
            self.is_up_to_stop(*at, &farewell.why, farewell.last);
            self.ask_to_drain(*at, farewell);
        }
        for at in asked.iter().rev().copied() {
            let limit = self.patience(at).unwrap_or_default();
            let exit = self.drained(at, farewell, limit, asked_at).await;
            self.ended(at, exit, farewell.last);
        }
        asked
    }

    /// How long a child may take to drain; none: it is killed without a word.
    fn patience(&self, at: usize) -> Option<Duration> {
        match self.kids[at].shutdown {
            Shutdown::Brutal => None,
            Shutdown::Timeout(limit) => Some(limit),
            Shutdown::Infinity => Some(FOREVER),
        }
    }

    pub(crate) async fn kill_all(&mut self, why: &Reason, last: bool) {
        for at in (0..self.kids.len()).rev() {
            if self.is_up_to_stop(at, why, last) {
                let exit = self.kill(at, why, last).await;
                self.ended(at, exit, last);
            }
        }
        self.stopped_all();
    }

    fn stopped_all(&mut self) {
        self.live = false;
        self.stash.clear();
        for kid in &mut self.kids {
            kid.restart_at = None;
        }
    }

    /// Stops one child as its spec says, or sooner where somebody waits. `last`: it is not to come back, so its mailbox goes with it.
    pub(crate) async fn stop_one(&mut self, at: usize, farewell: &Farewell) {
        if !self.is_up_to_stop(at, &farewell.why, farewell.last) {
            return;
        }
        let exit = match self.patience(at) {
            None => self.kill(at, &farewell.why, farewell.last).await,
            Some(limit) => {
                self.ask_to_drain(at, farewell);
                self.drained(at, farewell, limit, Instant::now()).await
            }
        };
        self.ended(at, exit, farewell.last);
    }

    /// Announces the stop of a child that runs. One that does not is only kept from starting.
    fn is_up_to_stop(&mut self, at: usize, why: &Reason, last: bool) -> bool {
        if self.kids[at].up {
            self.bus.emit(self.about(at, "child_stopping", Level::INFO).because(why));
            return true;
        }
        let kid = &mut self.kids[at];
        kid.restart_at = None;
        if last {
            self.note_left(at, self.kids[at].held(), false);
            // An error says that it is gone already.
            let _ = self.kids[at].line.order(Order::Exit);
            self.seat(&self.kids[at].path, |seat| seat.state = State::Stopped);
        }
        false
    }

    async fn kill(&mut self, at: usize, why: &Reason, last: bool) -> Exit {
        // An error shows as a sign that does not come.
        let _ = self.kids[at].line.order(Order::Kill { why: why.clone(), last });
        self.exit_of(at).await
    }

    fn ask_to_drain(&self, at: usize, farewell: &Farewell) {
        // An error shows as a sign that does not come.
        let _ = self.kids[at].line.order(Order::Drain(farewell.clone()));
    }

    /// Waits for the end of a child that was asked to drain.
    async fn drained(&mut self, at: usize, farewell: &Farewell, limit: Duration, asked_at: Instant) -> Exit {
        let kid = &self.kids[at];
        let (token, generation, is_supervisor) = (kid.token, kid.generation, kid.is_supervisor());
        // A supervisor ends by itself at a shutdown's deadline or the farewell's, as soon as its children have.
        let until = |own: Instant, halt: Option<Instant>| match is_supervisor {
            true => own,
            false => [halt, farewell.by].into_iter().flatten().fold(own, Instant::min),
        };
        let left = limit.saturating_sub(asked_at.elapsed());
        match self.sign_of(token, generation, left, until).await {
            Some(Life::Exited(exit)) => exit,
            Some(Life::Started) => Exit::bare(Reason::ArbiterLost),
            None => {
                self.bus.emit(self.about(at, "shutdown_timeout", Level::WARN).millis("limit_ms", asked_at.elapsed()));
                let exit = self.kill(at, &Reason::ShutdownTimeout, farewell.last).await;
                // Where it was cut for somebody's sake, that is why it ended.
                match farewell.by {
                    Some(_) if !self.halting() => Exit { reason: farewell.why.clone(), ..exit },
                    Some(_) | None => exit,
                }
            }
        }
    }

    fn ended(&mut self, at: usize, exit: Exit, last: bool) {
        if last {
            self.note_left(at, exit.queued + exit.in_flight, exit.reason == Reason::ShutdownTimeout);
        }
        let state = if last { State::Stopped } else { State::Restarting };
        self.note_exit(at, &exit, "child_exited", state);
    }

    /// Remembers, for the report of a shutdown, what a child could not finish.
    pub(crate) fn note_left(&self, at: usize, queued_or_in_flight: usize, cut: bool) {
        if self.halting() && !self.kids[at].is_supervisor() && (cut || queued_or_in_flight > 0) {
            self.bus.leave_behind(LeftOver { path: self.kids[at].path.to_string(), queued_or_in_flight });
        }
    }
}
