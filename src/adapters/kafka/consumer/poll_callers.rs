//! PollCallers: the callers that poll a client's messages or wait for some, and which messages a poll delivers.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;

use crate::consumer::member_request::{PollRequest, WaitRequest};
use crate::consumer::offset_commits::AssignedPartition;
use crate::consumer::partition_buffer::PartitionBuffer;

type Buffers = BTreeMap<AssignedPartition, PartitionBuffer>;

/// The requests that are not answered yet, one of each kind.
#[derive(Default)]
pub(crate) struct PollCallers {
    poll: Option<PollRequest>,
    wait: Option<WaitRequest>,
    /// Index of the partition that a poll serves first. It rotates, so that a busy partition does not starve the others.
    next_start_index: usize,
}

impl PollCallers {
    /// Replaces a poll whose caller was dropped, which received no message.
    pub(crate) fn poll(&mut self, request: PollRequest) {
        self.poll = Some(request);
    }

    /// Replaces a wait whose caller was dropped.
    pub(crate) fn wait(&mut self, request: WaitRequest) {
        self.wait = Some(request);
    }

    /// Answers the poll, with the client's failure if there is no message, and the wait, if there is something to poll.
    pub(crate) fn deliver(&mut self, buffers: &mut Buffers, failure: &mut Option<Error>) {
        if let Some(poll) = self.poll.take().filter(|poll| !poll.reply.is_closed()) {
            self.answer(poll, buffers, failure);
        }
        let is_over = |wait: &mut WaitRequest| {
            failure.is_some() || buffers.iter().any(|(key, buffer)| is_deliverable(key, buffer, &wait.paused))
        };
        if let Some(WaitRequest { reply, .. }) = self.wait.take_if(is_over) {
            // The send fails only when the caller was dropped.
            drop(reply.send(Ok(())));
        }
    }

    fn answer(&mut self, poll: PollRequest, buffers: &mut Buffers, failure: &mut Option<Error>) {
        let PollRequest { limit, paused, reply } = poll;
        let messages = self.take(limit, &paused, buffers);
        let failure = if messages.is_empty() { failure.take() } else { None };
        let Err(Ok(undelivered)) = reply.send(failure.map_or(Ok(messages), Err)) else { return };
        for message in undelivered.iter().rev() {
            let partition = (Arc::clone(&message.position.topic), message.position.partition);
            buffers.entry(partition).and_modify(|buffer| buffer.rewind_to(message.position.offset));
        }
    }

    fn take(
        &mut self,
        limit: usize,
        paused: &BTreeSet<AssignedPartition>,
        buffers: &mut Buffers,
    ) -> Vec<ConsumerRecord> {
        let ready = buffers.iter_mut().filter(|(key, buffer)| is_deliverable(key, buffer, paused));
        let mut ready: Vec<&mut PartitionBuffer> = ready.map(|(_, buffer)| buffer).collect();
        if ready.is_empty() {
            return Vec::new();
        }
        let first = self.next_start_index % ready.len();
        ready.rotate_left(first);
        self.next_start_index = self.next_start_index.wrapping_add(1);
        let mut messages = Vec::new();
        for buffer in ready {
            messages.append(&mut buffer.take(limit - messages.len()));
            if messages.len() >= limit {
                break;
            }
        }
        messages
    }
}

fn is_deliverable(key: &AssignedPartition, buffer: &PartitionBuffer, paused: &BTreeSet<AssignedPartition>) -> bool {
    buffer.ready() > 0 && !paused.contains(key)
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::{Position, Record};
    use tokio::sync::oneshot;

    use super::*;

    /// One message in each of these partitions.
    fn buffers(partitions: &[u32]) -> Buffers {
        let topic: Arc<str> = "t".into();
        let buffer = |partition: &u32| {
            let record = Record {
                topic: Arc::clone(&topic),
                key: "k".into(),
                headers: Default::default(),
                value: b"1".as_slice().into(),
                timestamp: Timestamp::from_millis(1),
            };
            let position = Position { topic: Arc::clone(&topic), partition: *partition, offset: 0 };
            let mut buffer = PartitionBuffer::default();
            buffer.push(ConsumerRecord { position, record });
            ((Arc::clone(&topic), *partition), buffer)
        };
        partitions.iter().map(buffer).collect()
    }

    fn paused(partitions: &[u32]) -> BTreeSet<AssignedPartition> {
        partitions.iter().map(|partition| (Arc::from("t"), *partition)).collect()
    }

    fn polled(callers: &mut PollCallers, buffers: &mut Buffers, is_paused: &[u32]) -> Vec<u32> {
        let (reply, mut result) = oneshot::channel();
        callers.poll(PollRequest { limit: 1, paused: paused(is_paused), reply });
        callers.deliver(buffers, &mut None);
        let messages = result.try_recv().expect("answered").expect("no failure");
        messages.iter().map(|message| message.position.partition).collect()
    }

    #[test]
    fn polls_serve_partitions_in_turn_and_leave_paused_ones() {
        let (mut callers, mut buffers) = (PollCallers::default(), buffers(&[0, 1, 2]));

        let served: Vec<u32> = [(); 3].iter().flat_map(|()| polled(&mut callers, &mut buffers, &[2])).collect();

        assert_eq!(served, [0, 1]);
        assert_eq!(polled(&mut callers, &mut buffers, &[]), [2]);
    }

    #[test]
    fn wait_ends_with_a_message_that_a_poll_would_deliver_or_a_failure() {
        let mut callers = PollCallers::default();
        let mut ends_with = |partitions: &[u32], mut failure: Option<Error>| {
            let (reply, mut result) = oneshot::channel();
            callers.wait(WaitRequest { paused: paused(&[0]), reply });
            callers.deliver(&mut buffers(partitions), &mut failure);
            result.try_recv().is_ok()
        };

        assert!(!ends_with(&[], None));
        assert!(!ends_with(&[0], None), "its partition is paused");
        assert!(ends_with(&[0, 1], None));
        assert!(ends_with(&[], Some(Error::Unreachable("away".into()))));
    }

    #[test]
    fn messages_of_a_caller_that_was_dropped_are_delivered_to_the_next() {
        let (mut callers, mut buffers) = (PollCallers::default(), buffers(&[0]));
        let (reply, result) = oneshot::channel();
        callers.poll(PollRequest { limit: 1, paused: BTreeSet::new(), reply });
        drop(result);
        callers.deliver(&mut buffers, &mut None);

        assert_eq!(polled(&mut callers, &mut buffers, &[]), [0]);
    }
}
