//! What a supervisor does when a child has ended by itself: restart it and those who share its fate, let it go, or give up.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::event::Event;
use crate::exit::{Exit, Reason};
use crate::order::Farewell;
use crate::snapshot::State;
use crate::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn on_exit(&mut self, at: usize, exit: Exit, event: &'static str) {
        if self.halting() {
            self.note_left(at, exit.queued + exit.in_flight, false);
            return self.note_exit(at, &exit, event, State::Stopped);
        }
        if !self.kids[at].restart.wanted_after(&exit.reason) {
            self.note_exit(at, &exit, event, State::Stopped);
            return self.let_go(at, &exit.reason).await;
        }
        self.note_exit(at, &exit, event, State::Restarting);
        if self.intensity.exceeded_by(Instant::now()) {
            return self.give_up(at, &exit.reason).await;
        }
        let delay = self.next_delay(at);
        let due = Instant::now() + delay;
        let group = self.take_down_with(at).await;
        self.schedule(at, &exit.reason, (due, delay), group);
    }

    /// Records an end in events and table.
    pub(crate) fn note_exit(&mut self, at: usize, exit: &Exit, event: &'static str, state: State) {
        let now = Instant::now();
        let kid = &mut self.kids[at];
        let uptime = if kid.up { now - kid.up_at } else { Duration::ZERO };
        (kid.up, kid.uptime, kid.down_at) = (false, uptime, now);
        let (path, generation, attempt) = (kid.path.clone(), kid.generation, kid.fails);
        self.seat(&path, |seat| {
            (seat.state, seat.generation) = (state, generation);
            seat.last_exit = Some(exit.reason.to_string());
        });
        let level = if event == "child_start_failed" { Level::ERROR } else { level_of(&exit.reason) };
        let mut told = self.about(at, event, level).because(&exit.reason).millis("uptime_ms", uptime);
        if event == "child_start_failed" {
            told = told.number("attempt", u64::from(attempt) + 1);
        }
        told = told.number("mailbox_len", exit.queued as u64).number("in_flight_lost", exit.in_flight as u64);
        self.bus.emit(self.with_window(told));
    }

    fn with_window(&self, event: Event) -> Event {
        event
            .number("restarts_in_window", self.intensity.count() as u64)
            .number("max_restarts", self.intensity.max as u64)
            .millis("window_ms", self.intensity.window)
    }

    /// A child that is not restarted is forgotten: its mailbox closes, its row stays and says why.
    async fn let_go(&mut self, at: usize, why: &Reason) {
        self.bus.emit(self.about(at, "child_terminated", Level::INFO).because(why));
        let kid = self.kids.remove(at);
        self.seat(&kid.path, |seat| (seat.state, seat.taken, seat.line) = (State::Stopped, false, None));
        if self.auto_shutdown && kid.significant {
            self.stop_all(&Farewell::unhurried(Reason::Shutdown, false)).await;
            self.report(Reason::Shutdown);
        }
    }

    async fn give_up(&mut self, at: usize, why: &Reason) {
        let exceeded = self.about(at, "intensity_exceeded", Level::ERROR).because(why);
        self.bus.emit(self.with_window(exceeded));
        let detail = format!(
            "{} restarts in {:?}, last {}: {why}",
            self.intensity.count(),
            self.intensity.window,
            self.kids[at].path
        );
        let sibling = Reason::Sibling { failed: self.kids[at].id.clone() };
        self.stop_all(&Farewell::unhurried(sibling, false)).await;
        self.intensity.clear();
        self.report(Reason::Escalated { detail });
    }

    fn next_delay(&mut self, at: usize) -> Duration {
        let chance = (self.bus.options().random)();
        let kid = &mut self.kids[at];
        if kid.uptime > self.backoff.reset_after {
            kid.fails = 0;
        }
        kid.fails += 1;
        self.backoff.delay(kid.fails, chance)
    }

    /// Stops, in reverse order, those who share the fate of the child at `at`, and gives the tokens of those to come back with it.
    async fn take_down_with(&mut self, at: usize) -> Vec<u64> {
        let sibling = Reason::Sibling { failed: self.kids[at].id.clone() };
        let failed = self.kids[at].token;
        let strategy = self.strategy;
        let others: Vec<usize> = (0..self.kids.len()).rev().filter(|other| strategy.takes_down(at, *other)).collect();
        let mut group = Vec::new();
        for other in &others {
            let gone = self.kids[*other].restart == crate::Restart::Temporary;
            let by = self.grace.map(|grace| Instant::now() + grace);
            self.stop_one(*other, &Farewell { why: sibling.clone(), last: gone, by }).await;
            if !gone {
                group.push(self.kids[*other].token);
            }
        }
        // Temporary ones do not come back. Still from behind, so that no index before them moves.
        for other in others {
            if !group.contains(&self.kids[other].token) {
                self.let_go(other, &sibling).await;
            }
        }
        group.push(failed);
        group
    }

    fn schedule(&mut self, at: usize, why: &Reason, (due, delay): (Instant, Duration), group: Vec<u64>) {
        let failed = group.last().copied();
        // The child may have moved when a temporary sibling before it went.
        let at = self.kids.iter().position(|kid| Some(kid.token) == failed).unwrap_or(at);
        if !self.live {
            return;
        }
        for kid in self.kids.iter_mut().filter(|kid| group.contains(&kid.token)) {
            kid.restart_at = Some(due);
        }
        let attempt = self.kids[at].fails;
        // Twice may be chance; the third time in a row somebody should look.
        let level = if attempt >= 3 { Level::WARN } else { Level::INFO };
        let event = self.about(at, "restart_scheduled", level).because(why).number("attempt", attempt.into());
        let event = event.millis("delay_ms", delay).number("group", group.len() as u64 - 1);
        self.bus.emit(self.with_window(event));
    }
}

fn level_of(reason: &Reason) -> Level {
    match reason {
        Reason::Panic { .. } | Reason::Escalated { .. } | Reason::ArbiterLost => Level::ERROR,
        Reason::Killed { .. } | Reason::ShutdownTimeout | Reason::StartTimeout | Reason::Sibling { .. } => Level::WARN,
        Reason::Normal | Reason::Shutdown => Level::INFO,
    }
}
