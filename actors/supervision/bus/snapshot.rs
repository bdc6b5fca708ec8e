//! The snapshot of one actor, its state, and the order of paths in a snapshot of the tree.

use std::cmp::Ordering;
use std::time::Duration;

/// Whether an actor handles messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorState {
    /// The actor handles messages.
    Running,
    /// The actor is down or starting, and its supervisor will start it.
    Restarting,
    /// The actor ended and is not started again.
    Stopped,
    /// The actor runs but handles nothing until it is resumed.
    Paused,
}

impl ActorState {
    /// The word in JSON and on the console: `running`, `restarting`, `stopped` or `paused`.
    pub fn as_str(self) -> &'static str {
        match self {
            ActorState::Running => "running",
            ActorState::Restarting => "restarting",
            ActorState::Stopped => "stopped",
            ActorState::Paused => "paused",
        }
    }
}

/// One actor at the time of [`SupervisionBus::snapshot`](crate::SupervisionBus::snapshot). Supervisors are not in the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorSnapshot {
    /// The actor's path in the tree.
    pub path: String,
    /// The actor's kind, such as `PartitionWorker`.
    pub kind: &'static str,
    /// Whether the actor handles messages.
    pub state: ActorState,
    /// The number of the incarnation, from 1; 0 before the first.
    pub generation: u64,
    /// How many incarnations started after the first.
    pub restarts: u64,
    /// Time since the present incarnation started. None while none runs.
    pub uptime: Option<Duration>,
    /// Messages that are queued or in flight.
    pub mailbox_depth: usize,
    /// The most messages that may be outstanding.
    pub mailbox_capacity: usize,
    /// Why the last incarnation ended, such as `panic: index out of bounds`. None before the first exit.
    pub last_exit: Option<String>,
    /// Label of its supervisor, as in [`SupervisorSnapshot`](crate::SupervisorSnapshot).
    pub supervisor: String,
    /// Path of the nearest supervisor above that is visible.
    pub parent: Option<String>,
}

/// Compares two paths, with the numbers in them by value: `worker-2` comes before `worker-10`.
pub(crate) fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = split_number(a);
            let (number_b, rest_b) = split_number(b);
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

/// Splits a text after its leading digits, and drops leading zeros.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let start = text[..end].iter().position(|c| *c != b'0').unwrap_or(end);
    (&text[start..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::natural_order;

    #[test]
    fn numbers_in_paths_sort_by_value() {
        let mut paths = ["/a-10", "/a-2", "/a", "/a-2/x", "/b", "/a-02"];
        paths.sort_by(|a, b| natural_order(a, b));
        assert_eq!(paths, ["/a", "/a-2", "/a-02", "/a-2/x", "/a-10", "/b"]);
    }
}
