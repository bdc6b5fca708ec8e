//! What a supervisor tells its children and what they answer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::exit::{Exit, Reason};
use crate::postbox::Postbox;
use crate::spec::ChildSpec;

/// What every child, actor or supervisor, is told by its own supervisor. The channels are unbounded because an order must never be
/// lost or wait; each comes from a supervisor's step or from an operator, so their number is small.
#[derive(Debug)]
pub(crate) enum Order {
    /// Run as this incarnation.
    Start { generation: u64 },
    /// Finish what you hold, then end.
    Drain(Farewell),
    /// End now.
    Kill { why: Reason, last: bool },
    /// Be gone, whatever you do.
    Exit,
}

/// How a child is to end.
#[derive(Clone, Debug)]
pub(crate) struct Farewell {
    pub(crate) why: Reason,
    /// There will be no further incarnation: it lets go of the mailbox too.
    pub(crate) last: bool,
    /// Somebody waits for its end: what has not drained by then is killed, whatever its own limit.
    pub(crate) by: Option<Instant>,
}

impl Farewell {
    /// Each child has the time that its spec grants.
    pub(crate) fn unhurried(why: Reason, last: bool) -> Self {
        Self { why, last, by: None }
    }
}

/// What an actor's cell is told.
pub(crate) enum CellOrder {
    Life(Order),
    /// Panic at once, in the name of this operator.
    Panic {
        by: String,
    },
    /// A normal end, as if the actor had called `ctx.stop()`.
    Stop,
    /// The gauge's pause flag changed: look again.
    Look,
}

/// What a supervisor is told.
pub(crate) enum SupervisorOrder {
    Life(Order),
    Add(ChildSpec),
    Remove { id: String, ack: oneshot::Sender<bool> },
}

/// A child's line of command.
#[derive(Clone)]
pub(crate) enum Line {
    Cell(Postbox),
    Supervisor(mpsc::UnboundedSender<SupervisorOrder>),
}

impl Line {
    /// False when nobody is there to obey.
    pub(crate) fn order(&self, order: Order) -> bool {
        match self {
            Line::Cell(cell) => cell.send(CellOrder::Life(order)),
            Line::Supervisor(supervisor) => supervisor.send(SupervisorOrder::Life(order)).is_ok(),
        }
    }
}

/// A sign of life.
pub(crate) enum Life {
    Started,
    Exited(Exit),
}

/// A sign of life and whose it is. A sign of an older incarnation means nothing any more.
pub(crate) struct Sign {
    pub(crate) token: u64,
    pub(crate) generation: u64,
    pub(crate) life: Life,
}

/// A child's way up to its supervisor.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) path: Arc<str>,
    pub(crate) token: u64,
    pub(crate) signs: mpsc::UnboundedSender<Sign>,
}

impl Link {
    pub(crate) fn tell(&self, generation: u64, life: Life) {
        // An error says that the supervisor is gone: then nobody needs to know.
        let _ = self.signs.send(Sign { token: self.token, generation, life });
    }
}
