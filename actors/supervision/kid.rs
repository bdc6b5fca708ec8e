//! A supervisor's own record of one child.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::gauge::Gauge;
use crate::order::{Line, Order};
use crate::spec::{ChildSpec, Launch, Restart, Shutdown};

pub(crate) struct Kid {
    /// Unique within its supervisor, for the supervisor's whole life: a sign of a removed child never meets another one.
    pub(crate) token: u64,
    pub(crate) id: String,
    pub(crate) path: Arc<str>,
    pub(crate) kind: &'static str,
    pub(crate) restart: Restart,
    pub(crate) start_timeout: Duration,
    pub(crate) shutdown: Shutdown,
    pub(crate) significant: bool,
    pub(crate) line: Line,
    pub(crate) gauge: Option<Arc<Gauge>>,
    pub(crate) up: bool,
    pub(crate) generation: u64,
    /// Failures in a row.
    pub(crate) fails: u32,
    pub(crate) up_at: Instant,
    /// How long the last incarnation was up.
    pub(crate) uptime: Duration,
    pub(crate) down_at: Instant,
    pub(crate) restart_at: Option<Instant>,
}

impl Kid {
    pub(crate) fn launched(spec: ChildSpec, launch: Launch) -> Kid {
        let now = Instant::now();
        Kid {
            token: launch.link.token,
            id: spec.id,
            path: launch.link.path.clone(),
            kind: spec.kind,
            restart: spec.restart,
            start_timeout: spec.start_timeout,
            shutdown: spec.shutdown,
            significant: spec.significant,
            gauge: spec.gauge,
            line: (spec.launch)(launch),
            up: false,
            generation: 0,
            fails: 0,
            up_at: now,
            uptime: Duration::ZERO,
            down_at: now,
            restart_at: None,
        }
    }

    pub(crate) fn is_supervisor(&self) -> bool {
        matches!(self.line, Line::Supervisor(_))
    }

    pub(crate) fn held(&self) -> usize {
        self.gauge.as_ref().map_or(0, |gauge| gauge.outstanding())
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        // An error says that it is gone already.
        let _ = self.line.order(Order::Exit);
    }
}
