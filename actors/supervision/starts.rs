//! How a supervisor starts a child and waits for a child's sign of life.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::exit::{Exit, Reason};
use crate::order::{Farewell, Life, Order};
use crate::snapshot::State;
use crate::spec::FOREVER;
use crate::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn start_one(&mut self, at: usize) {
        if let Err(exit) = self.try_start(at).await {
            let event = if self.halting() { "child_exited" } else { "child_start_failed" };
            self.on_exit(at, exit, event).await;
        }
    }

    async fn try_start(&mut self, at: usize) -> Result<(), Exit> {
        let asked_at = Instant::now();
        let kid = &mut self.kids[at];
        kid.generation += 1;
        kid.restart_at = None;
        let (token, generation, limit) = (kid.token, kid.generation, kid.start_timeout);
        if !kid.line.order(Order::Start { generation }) {
            return Err(Exit::bare(Reason::ArbiterLost));
        }
        // A shutdown of the whole tree ends the wait: what is not up yet need not come up.
        let until = |own: Instant, halt: Option<Instant>| if halt.is_some() { Instant::now() } else { own };
        match self.sign_of(token, generation, limit, until).await {
            Some(Life::Started) => {}
            Some(Life::Exited(exit)) => return Err(exit),
            None => return Err(self.cut_start(at).await),
        }
        let now = Instant::now();
        let kid = &mut self.kids[at];
        (kid.up, kid.up_at) = (true, now);
        let (attempt, downtime, first) = (kid.fails, now - kid.down_at, generation == 1);
        let path = kid.path.clone();
        self.seat(&path, |seat| {
            (seat.state, seat.generation) = (State::Running, generation);
            seat.restarts += u64::from(!first);
        });
        let event = match first {
            true => self.about(at, "child_started", Level::INFO).millis("startup_ms", now - asked_at),
            false => self
                .about(at, "child_restarted", Level::INFO)
                .number("attempt", attempt.into())
                .millis("downtime_ms", downtime),
        };
        self.bus.emit(event);
        Ok(())
    }

    /// Ends a start that takes too long, or that a shutdown overtook.
    async fn cut_start(&mut self, at: usize) -> Exit {
        let why = if self.halting() { Reason::Shutdown } else { Reason::StartTimeout };
        let kid = &self.kids[at];
        let order = match kid.is_supervisor() {
            // Some of its children are up, and these are to drain.
            true => Order::Drain(Farewell::unhurried(why, self.halting())),
            false => Order::Kill { why, last: self.halting() },
        };
        // An error shows as a sign that does not come.
        let _ = kid.line.order(order);
        self.exit_of(at).await
    }

    /// Waits for the end of a child that was killed. One that says nothing sits on a thread that is blocked or gone.
    pub(crate) async fn exit_of(&mut self, at: usize) -> Exit {
        let kid = &self.kids[at];
        let limit = if kid.is_supervisor() { FOREVER } else { self.bus.options().kill_wait };
        let (token, generation) = (kid.token, kid.generation);
        loop {
            match self.sign_of(token, generation, limit, |own, _| own).await {
                Some(Life::Exited(exit)) => return exit,
                Some(Life::Started) => {}
                None => return Exit { reason: Reason::ArbiterLost, queued: self.kids[at].held(), in_flight: 0 },
            }
        }
    }

    /// Waits for a sign of life of one incarnation and keeps what others say for later. None when `limit` is over, or the instant
    /// that `until` makes of it and of a shutdown's deadline.
    pub(crate) async fn sign_of(
        &mut self,
        token: u64,
        generation: u64,
        limit: Duration,
        until: impl Fn(Instant, Option<Instant>) -> Instant,
    ) -> Option<Life> {
        let own = Instant::now() + limit;
        if let Some(known) = self.stash.iter().position(|sign| (sign.token, sign.generation) == (token, generation)) {
            return self.stash.remove(known).map(|sign| sign.life);
        }
        loop {
            let halt = *self.halt.borrow_and_update();
            // Each branch takes nothing from its source unless it wins. The bus holds the other end of `halt` and we hold that of
            // `signs`: neither can close.
            tokio::select! {
                biased;
                sign = self.signs.recv() => {
                    let sign = sign?;
                    if (sign.token, sign.generation) == (token, generation) {
                        return Some(sign.life);
                    }
                    self.stash.push_back(sign);
                }
                _ = self.halt.changed() => {}
                () = tokio::time::sleep_until(until(own, halt)) => return None,
            }
        }
    }

    /// Whether the whole tree is being shut down.
    pub(crate) fn halting(&self) -> bool {
        self.halt.borrow().is_some()
    }
}
