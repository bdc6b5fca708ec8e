//! The fault surface: what an operator, a drill or a test does to an actor, by its path.

use std::sync::atomic::Ordering::SeqCst;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::Bus;
use crate::event::Event;
use crate::exit::Reason;
use crate::order::{CellOrder, Line, Order};
use crate::snapshot::Seat;

/// No actor stands at that path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no actor at {0}")]
pub struct NoSuchActor(
    /// The path that was asked for.
    pub String,
);

/// Each of these names who wants it (`by`), is told by a `fault_injected` event, takes effect without waiting for a message, and does
/// nothing to an actor that is between two lives. None can interrupt a handler that blocks its thread.
impl Bus {
    /// Makes the actor panic, a real panic inside its own poll: work in flight is lost, its callers hear so at once.
    pub fn panic(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "panic", by, |_| CellOrder::Panic { by: by.into() })
    }

    /// Kills the actor, also while it hangs in a wait.
    pub fn kill(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        let why = Reason::Killed { by: by.into() };
        self.inject(path, "kill", by, |_| CellOrder::Life(Order::Kill { why, last: false }))
    }

    /// Ends the actor normally, as `ctx.stop()` does; its restart type decides what follows.
    pub fn stop(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "stop", by, |_| CellOrder::Stop)
    }

    /// The actor handles nothing until it is resumed, dies or is drained. One that is just starting is paused when it is up.
    pub fn pause(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "pause", by, |seat| {
            set_paused(seat, true);
            CellOrder::Look
        })
    }

    /// Lets a paused actor go on where it was.
    pub fn resume(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "resume", by, |seat| {
            set_paused(seat, false);
            CellOrder::Look
        })
    }

    fn inject(
        &self,
        path: &str,
        fault: &str,
        by: &str,
        order: impl FnOnce(&Seat) -> CellOrder,
    ) -> Result<(), NoSuchActor> {
        let hit = self.with_seat(path, |seat| {
            let Some(Line::Cell(line)) = seat.line.clone() else { return None };
            let order = order(seat);
            Some((line, order, about(seat, path, "fault_injected", Level::WARN)))
        });
        let Some(Some((line, order, event))) = hit else { return Err(NoSuchActor(path.into())) };
        // First the event, so that it stands before what it causes.
        self.emit(event.text("fault", fault).text("by", by));
        if line.send(order) { Ok(()) } else { Err(NoSuchActor(path.into())) }
    }
}

fn set_paused(seat: &Seat, paused: bool) {
    if let Some(gauge) = &seat.gauge {
        gauge.paused.store(paused, SeqCst);
        // The watchdog must not count the time of the pause.
        gauge.moved(Instant::now());
    }
}

/// An event about the actor on a seat.
pub(crate) fn about(seat: &Seat, path: &str, event: &'static str, level: Level) -> Event {
    let mut event = Event::new(event, level);
    event.supervisor = seat.supervisor.clone();
    event.child = path.into();
    event.child_type = "worker";
    event.kind = seat.gauge.as_ref().map_or("", |gauge| gauge.kind);
    event.generation = seat.generation;
    event
}
