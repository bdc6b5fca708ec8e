//! The event stream: a ring of the latest events for subscribers that reconnect, and a bounded broadcast for those that are connected.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::events::event::SupervisionEvent;

pub(crate) struct EventStream {
    ring_capacity: usize,
    buffer: Mutex<EventBuffer>,
}

struct EventBuffer {
    last_seq: u64,
    ring: VecDeque<SupervisionEvent>,
    broadcast: broadcast::Sender<SupervisionEvent>,
}

impl EventStream {
    pub(crate) fn new(first_seq: u64, ring_capacity: usize, subscriber_lag_max: usize) -> EventStream {
        let buffer = EventBuffer {
            last_seq: first_seq.saturating_sub(1),
            ring: VecDeque::with_capacity(ring_capacity),
            broadcast: broadcast::channel(subscriber_lag_max.max(1)).0,
        };
        EventStream { ring_capacity: ring_capacity.max(1), buffer: Mutex::new(buffer) }
    }

    /// Numbers the event and puts it on ring and broadcast under one lock, so that no subscriber receives it twice or misses it.
    pub(crate) fn push(&self, mut event: SupervisionEvent) -> SupervisionEvent {
        let mut buffer = self.buffer.lock();
        buffer.last_seq += 1;
        event.seq = buffer.last_seq;
        if buffer.ring.len() == self.ring_capacity {
            buffer.ring.pop_front();
        }
        buffer.ring.push_back(event.clone());
        // An error means that there is no subscriber; the ring keeps the event.
        let _ = buffer.broadcast.send(event.clone());
        event
    }

    pub(crate) fn after(&self, seq: Option<u64>) -> (Vec<SupervisionEvent>, broadcast::Receiver<SupervisionEvent>) {
        let buffer = self.buffer.lock();
        // A number that was not assigned yet is from before a restart of the process: to that client every event is new.
        let after = seq.filter(|seq| *seq <= buffer.last_seq).unwrap_or(0);
        let backlog = buffer.ring.iter().filter(|event| event.seq > after).cloned().collect();
        (backlog, buffer.broadcast.subscribe())
    }
}
