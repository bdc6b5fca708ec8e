//! The table of actors as the world sees it.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tokio::time::Instant;

use crate::bus::Bus;
use crate::gauge::Gauge;
use crate::order::Line;

/// Whether an actor works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It handles messages.
    Running,
    /// It is down (or not yet up) and will be started.
    Restarting,
    /// It has ended and is not started again.
    Stopped,
    /// It lives but handles nothing until it is resumed.
    Paused,
}

impl State {
    /// `running`, `restarting`, `stopped` or `paused`.
    pub fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Restarting => "restarting",
            State::Stopped => "stopped",
            State::Paused => "paused",
        }
    }
}

/// One actor. Supervisors have no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it stands.
    pub path: String,
    /// Its kind, such as `PartitionWorker`.
    pub actor: &'static str,
    /// Whether it works.
    pub state: State,
    /// Which incarnation, from 1; 0 before the first.
    pub generation: u64,
    /// How often it came back.
    pub restarts: u64,
    /// Messages queued and being worked on.
    pub mailbox_depth: usize,
    /// Most of them it takes.
    pub mailbox_capacity: usize,
    /// Why its last incarnation ended: `panic: index out of bounds`. None before the first end.
    pub last_exit: Option<String>,
    /// Path of the nearest supervisor above that is shown.
    pub parent: Option<String>,
}

/// What the bus knows of one path.
pub(crate) struct Seat {
    /// A child stands here or is about to; else the seat only remembers one that ended.
    pub(crate) taken: bool,
    pub(crate) supervisor: Arc<str>,
    pub(crate) parent: Option<Arc<str>>,
    pub(crate) line: Option<Line>,
    pub(crate) gauge: Option<Arc<Gauge>>,
    pub(crate) stuck_after: Option<Duration>,
    pub(crate) state: State,
    pub(crate) generation: u64,
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<String>,
    pub(crate) saturated: bool,
    /// When the last `dead_letter` of each reason was told.
    pub(crate) letters_at: [Option<Instant>; 3],
}

impl Seat {
    pub(crate) fn reserved() -> Seat {
        Seat {
            taken: true,
            supervisor: "".into(),
            parent: None,
            line: None,
            gauge: None,
            stuck_after: None,
            state: State::Restarting,
            generation: 0,
            restarts: 0,
            last_exit: None,
            saturated: false,
            letters_at: [None; 3],
        }
    }

    pub(crate) fn state(&self) -> State {
        let paused = self.gauge.as_ref().is_some_and(|gauge| gauge.paused.load(SeqCst));
        if self.state == State::Running && paused { State::Paused } else { self.state }
    }

    /// None for a supervisor, and for a child that is only announced.
    fn row(&self, path: &str) -> Option<Row> {
        let gauge = self.gauge.as_ref()?;
        Some(Row {
            path: path.to_owned(),
            actor: gauge.kind,
            state: self.state(),
            generation: self.generation,
            restarts: self.restarts,
            mailbox_depth: gauge.outstanding(),
            mailbox_capacity: gauge.capacity,
            last_exit: self.last_exit.clone(),
            parent: self.parent.as_deref().map(str::to_owned),
        })
    }
}

impl Bus {
    /// Every actor of the tree, by path, numbers in paths in their natural order (`worker-2` before `worker-10`).
    pub fn snapshot(&self) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.with_seats(|seats| seats.iter().filter_map(|(path, seat)| seat.row(path)).collect());
        rows.sort_by(|a, b| natural(&a.path, &b.path));
        rows
    }
}

/// Compares texts with the numbers in them by value.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = number(a);
            let (number_b, rest_b) = number(b);
            (a, b) = (rest_a, rest_b);
            // Without leading zeros the longer number is the larger one, whatever its size.
            number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// The digits a text begins with, without leading zeros, and the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let start = text[..end].iter().position(|c| *c != b'0').unwrap_or(end);
    (&text[start..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn numbers_in_paths_sort_by_value() {
        let mut paths = ["/a-10", "/a-2", "/a", "/a-2/x", "/b", "/a-02"];
        paths.sort_by(|a, b| natural(a, b));
        assert_eq!(paths, ["/a", "/a-2", "/a-02", "/a-2/x", "/a-10", "/b"]);
    }
}
