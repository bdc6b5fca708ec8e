//! The live stream: a ring of the latest events for those who come back, and a bounded broadcast for those who listen.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::event::Event;

pub(crate) struct Stream {
    keep: usize,
    inner: Mutex<Inner>,
}

struct Inner {
    last_seq: u64,
    ring: VecDeque<Event>,
    live: broadcast::Sender<Event>,
}

impl Stream {
    pub(crate) fn new(keep: usize, lag: usize) -> Stream {
        let inner = Inner { last_seq: 0, ring: VecDeque::with_capacity(keep), live: broadcast::channel(lag.max(1)).0 };
        Stream { keep: keep.max(1), inner: Mutex::new(inner) }
    }

    /// Numbers the event and puts it on ring and broadcast in one step, so that no subscriber sees it twice or not at all.
    pub(crate) fn push(&self, mut event: Event) -> Event {
        let mut inner = self.inner.lock();
        inner.last_seq += 1;
        event.seq = inner.last_seq;
        if inner.ring.len() == self.keep {
            inner.ring.pop_front();
        }
        inner.ring.push_back(event.clone());
        // An error says that nobody listens: the ring remembers.
        let _ = inner.live.send(event.clone());
        event
    }

    pub(crate) fn after(&self, seq: Option<u64>) -> (Vec<Event>, broadcast::Receiver<Event>) {
        let inner = self.inner.lock();
        // A number we have not reached yet comes from before a restart of the process: everything is new to that client.
        let after = seq.filter(|seq| *seq <= inner.last_seq).unwrap_or(0);
        let backlog = inner.ring.iter().filter(|event| event.seq > after).cloned().collect();
        (backlog, inner.live.subscribe())
    }
}
