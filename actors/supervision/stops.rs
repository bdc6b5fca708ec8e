//! How a supervisor stops its children: in reverse start order, each drained within its own limit, then killed.

use tokio::time::Instant;
use tracing::Level;

use crate::exit::{Exit, Reason};
use crate::order::{Life, Order};
use crate::root::LeftOver;
use crate::snapshot::State;
use crate::spec::{FOREVER, Shutdown};
use crate::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn stop_all(&mut self, why: &Reason, last: bool) {
        for at in (0..self.kids.len()).rev() {
            self.stop_one(at, why, last).await;
        }
        self.stopped_all();
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

    /// Stops one child as its spec says. `last`: it is not to come back, so its mailbox goes with it.
    pub(crate) async fn stop_one(&mut self, at: usize, why: &Reason, last: bool) {
        if !self.is_up_to_stop(at, why, last) {
            return;
        }
        let limit = match self.kids[at].shutdown {
            Shutdown::Brutal => None,
            Shutdown::Timeout(limit) => Some(limit),
            Shutdown::Infinity => Some(FOREVER),
        };
        let exit = match limit {
            None => self.kill(at, why, last).await,
            Some(limit) => self.drain(at, why, last, limit).await,
        };
        self.ended(at, exit, last);
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

    async fn drain(&mut self, at: usize, why: &Reason, last: bool, limit: std::time::Duration) -> Exit {
        let kid = &self.kids[at];
        let (token, generation, is_supervisor) = (kid.token, kid.generation, kid.is_supervisor());
        // An error shows as a sign that does not come.
        let _ = kid.line.order(Order::Drain { why: why.clone(), last });
        // A supervisor ends by itself at a shutdown's deadline, as soon as its children have.
        let until = |own: Instant, halt: Option<Instant>| match halt {
            Some(halt) if !is_supervisor => own.min(halt),
            Some(_) | None => own,
        };
        let asked_at = Instant::now();
        match self.sign_of(token, generation, limit, until).await {
            Some(Life::Exited(exit)) => exit,
            Some(Life::Started) => Exit::bare(Reason::ArbiterLost),
            None => {
                self.bus.emit(self.about(at, "shutdown_timeout", Level::WARN).millis("limit_ms", asked_at.elapsed()));
                self.kill(at, &Reason::ShutdownTimeout, last).await
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
