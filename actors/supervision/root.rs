//! The root of a tree: start, end and ordered shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::bus::Bus;
use crate::event::Event;
use crate::exit::Reason;
use crate::guard::install_panic_hook;
use crate::order::{Farewell, Life, Line, Link, Order, Sign};
use crate::snapshot::State;
use crate::spec::{Launch, SupervisorSpec};
use crate::supervisor;
use crate::watch::watch;

/// What a shutdown left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Shutdown, or what ended the tree before; shutdown_timeout when a blocked thread kept it from ending.
    pub reason: Reason,
    /// How long it took.
    pub elapsed: Duration,
    /// The actors that did not finish, in the order in which they ended. Empty = drained.
    pub left: Vec<LeftOver>,
}

/// An actor that was killed while it drained, or ended with messages in its inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOver {
    /// Where it stood.
    pub path: String,
    /// Messages it held and did not finish; 0 when it held none and still did not end in time.
    pub queued_or_in_flight: usize,
}

/// A running tree. Dropped, the tree goes on.
pub struct Root {
    line: Line,
    done: watch::Receiver<Option<Reason>>,
    bus: Bus,
}

impl Root {
    /// Starts the tree on this thread's `LocalSet` or actix `System`, and resolves when every child was started once or, where a start
    /// failed, is scheduled for the next. A tree that gave up meanwhile shows it in [`done`](Root::done).
    ///
    /// From now on a panic inside an actor is told by its `child_exited` event and no longer by the panic hook.
    ///
    /// # Panics
    /// When two children have the same path, or outside a `LocalSet`.
    pub async fn start(spec: SupervisorSpec, bus: Bus) -> Root {
        install_panic_hook();
        let (signs, signs_out) = mpsc::unbounded_channel();
        let label: Arc<str> = spec.label().into();
        let link = Link { path: label.clone(), token: 0, signs };
        let line = supervisor::launch(spec, Launch { link, bus: bus.clone(), arbiter: None, parent: None });
        // The task was made just now and obeys.
        let _ = line.order(Order::Start { generation: 1 });
        let (started_in, started) = oneshot::channel();
        let (done_in, done) = watch::channel(None);
        drop(tokio::task::spawn_local(keep(bus.clone(), label, line.clone(), signs_out, started_in, done_in)));
        // An error says that the tree ended before it was up: `done` tells.
        let _ = started.await;
        Root { line, done, bus }
    }

    /// Resolves when the tree has ended, with the reason: shutdown, or escalated when the root gave up after it drained its children
    /// (then exit with [`Reason::exit_code`]). Cancel-safe, and may be called again.
    pub async fn done(&self) -> Reason {
        ended(self.done.clone()).await
    }

    /// The bus it was started with.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Stops the tree: children in reverse start order, each drained within its own limit; at the deadline what is left is killed.
    /// Resolves when all have ended, at the latest [`Options::kill_wait`](crate::Options::kill_wait) after the deadline.
    pub async fn shutdown(self, deadline: Duration) -> DrainReport {
        let began = Instant::now();
        let end = began + deadline;
        self.bus.halt_at(end);
        // An error says that the tree has ended already: `done` tells.
        let _ = self.line.order(Order::Drain(Farewell::unhurried(Reason::Shutdown, true)));
        let patience = end + self.bus.options().kill_wait;
        let reason =
            tokio::time::timeout_at(patience, ended(self.done.clone())).await.unwrap_or(Reason::ShutdownTimeout);
        let mut left = self.bus.take_left();
        left.extend(still_running(&self.bus, &left));
        DrainReport { reason, elapsed: began.elapsed(), left }
    }
}

async fn ended(mut done: watch::Receiver<Option<Reason>>) -> Reason {
    match done.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or(Reason::ArbiterLost),
        // The task that would have told is gone, and with it the thread.
        Err(_) => Reason::ArbiterLost,
    }
}

/// Actors on threads that do not answer.
fn still_running(bus: &Bus, known: &[LeftOver]) -> Vec<LeftOver> {
    bus.with_seats(|seats| {
        let running = seats
            .iter()
            .filter(|(path, seat)| seat.state != State::Stopped && !known.iter().any(|left| *left.path == ***path));
        let left = running.filter_map(|(path, seat)| {
            let gauge = seat.gauge.as_ref()?;
            Some(LeftOver { path: path.to_string(), queued_or_in_flight: gauge.outstanding() })
        });
        left.collect()
    })
}

/// Hears the root supervisor, keeps the watch beside it, and tells its end.
async fn keep(
    bus: Bus,
    label: Arc<str>,
    line: Line,
    mut signs: mpsc::UnboundedReceiver<Sign>,
    started: oneshot::Sender<()>,
    done: watch::Sender<Option<Reason>>,
) {
    let began = Instant::now();
    let mut started = Some(started);
    let end = async {
        loop {
            match signs.recv().await.map(|sign| sign.life) {
                Some(Life::Started) => drop(started.take().map(|started| started.send(()))),
                Some(Life::Exited(exit)) => return exit.reason,
                None => return Reason::ArbiterLost,
            }
        }
    };
    // The watch holds nothing between two looks, so dropping it loses nothing.
    let reason = tokio::select! {
        reason = end => reason,
        () = watch(bus.clone()) => Reason::ArbiterLost,
    };
    // An error says that it is gone already.
    let _ = line.order(Order::Exit);
    bus.with_seats(|seats| {
        for seat in seats.values_mut() {
            (seat.state, seat.taken, seat.line) = (State::Stopped, false, None);
        }
    });
    let level = if reason.exit_code() == 0 { Level::INFO } else { Level::ERROR };
    let mut event = Event::new("tree_stopped", level).because(&reason);
    (event.supervisor, event.child_type) = (label.clone(), "supervisor");
    event.child = label;
    let exit_code = u64::try_from(reason.exit_code()).unwrap_or(1);
    bus.emit(event.number("exit_code", exit_code).millis("elapsed_ms", began.elapsed()));
    // An error says that nobody asks any more.
    let _ = done.send(Some(reason));
}
