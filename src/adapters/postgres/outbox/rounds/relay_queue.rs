//! The claims and settlements that wait for a round of the relay, and the choice of the next round.
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim, Settlement};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::outbox::rounds::relay_request::{RelayRequest, ReplySender, RequestResult};
use crate::store::options::Options;

/// Rows above which a batch is not shared: 16 batches of 1,000 rows cost 1.8 times as much in rounds as by themselves (measured).
const LARGE_BATCH: usize = 256;

/// Longest wait of a round for announced requests. They are sent together, so most arrive within a part of it.
const EXPECT_MAX: Duration = Duration::from_millis(1);

/// Requests that wait for a round. Bounded by [`Options::queue_max`].
pub(crate) struct RelayQueue {
    state: Mutex<RelayQueueState>,
    added: Notify,
    ended: Notify,
    limit: usize,
}

#[derive(Default)]
struct RelayQueueState {
    requests: VecDeque<RelayRequest>,
    /// Partitions with a request that is being run: the next one waits, so that no statement contains a partition twice.
    busy: HashSet<u32>,
    /// Partitions whose last batch was full.
    full: HashSet<u32>,
    /// The number of announced requests that have not arrived, and the end of a round's wait for them.
    expected: Option<(u32, Instant)>,
    is_closed: bool,
}

/// A request that is being run. Its partition is busy until this is dropped.
pub(crate) struct RunningRequest {
    pub(crate) request: RelayRequest,
    pub(crate) busy: BusyPartition,
}

impl RunningRequest {
    /// The request without a claim that has no caller any more; `None` if nothing is left of it.
    pub(crate) fn without_abandoned_claim(self) -> Option<Self> {
        let Self { request, busy } = self;
        Some(Self { request: request.without_abandoned_claim()?, busy })
    }

    pub(crate) fn reply_error(self, error: Error) {
        drop(self.busy);
        self.request.reply_error(error);
    }
}

/// Keeps a partition busy.
pub(crate) struct BusyPartition {
    queue: Arc<RelayQueue>,
    pub(crate) partition: u32,
}

impl BusyPartition {
    /// Records the partition's claim in the queue.
    pub(crate) fn record_claim(&self, claimed: &ClaimOutcome) {
        self.queue.record_claim(self.partition, claimed);
    }

    /// Ends the request of the partition with its result.
    pub(crate) fn reply<T>(self, sender: ReplySender<T>, result: RequestResult<T>) {
        // The caller may send its next request as soon as it has the reply.
        drop(self);
        // Fails if the caller has gone.
        let _ = sender.send(result);
    }
}

impl Drop for BusyPartition {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.busy.remove(&self.partition);
        if !state.requests.is_empty() {
            self.queue.added.notify_one();
        }
        if state.busy.is_empty() {
            self.queue.ended.notify_waiters();
        }
    }
}

impl RelayQueue {
    pub(crate) fn new(options: &Options) -> Self {
        Self { state: Mutex::default(), added: Notify::new(), ended: Notify::new(), limit: options.queue_max.max(1) }
    }

    /// Adds a claim. The receiver gets its result; dropping it does not stop a claim that has begun.
    pub(crate) fn claim(&self, claim: Claim) -> RequestResult<oneshot::Receiver<RequestResult<ClaimOutcome>>> {
        let (reply, result) = oneshot::channel();
        self.push(RelayRequest::Claim(claim, reply)).map(|()| result)
    }

    /// Adds a settlement. The receiver gets its result; dropping it does not stop the settlement.
    pub(crate) fn settle(
        &self,
        settlement: Settlement,
    ) -> RequestResult<oneshot::Receiver<RequestResult<FencedOutcome>>> {
        let (reply, result) = oneshot::channel();
        self.push(RelayRequest::Settle(settlement, reply)).map(|()| result)
    }

    /// Adds a settlement, and the claim that follows it. The receiver gets both results.
    pub(crate) fn settle_and_claim(
        &self,
        settlement: Settlement,
        claim: Claim,
    ) -> RequestResult<oneshot::Receiver<RequestResult<SettledClaim>>> {
        let (reply, result) = oneshot::channel();
        self.push(RelayRequest::SettleAndClaim(settlement, claim, reply)).map(|()| result)
    }

    fn push(&self, request: RelayRequest) -> RequestResult<()> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::Unreachable("the store is closed".into()));
        }
        if state.requests.len() >= self.limit {
            return Err(Error::Overloaded(format!("{} claims and settlements are waiting already", self.limit)));
        }
        state.requests.push_back(request);
        state.expected =
            state.expected.and_then(|(count, until)| Some((count.checked_sub(1).filter(|left| *left > 0)?, until)));
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Announces requests: the next round waits for them, at most [`EXPECT_MAX`].
    pub(crate) fn expect(&self, count: u32) {
        let mut state = self.state.lock();
        let (before, until) = state.expected.unwrap_or_else(|| (0, Instant::now() + EXPECT_MAX));
        state.expected = (before + count > 0).then_some((before + count, until));
    }

    /// Whether the partition's requests are run by themselves: its last batch was full.
    pub(crate) fn is_full(&self, partition: u32) -> bool {
        self.state.lock().full.contains(&partition)
    }

    /// Records whether a partition's batch was full: it was large or left rows behind, so the next one will be full too.
    pub(crate) fn record_claim(&self, partition: u32, claimed: &ClaimOutcome) {
        let full = matches!(claimed, ClaimOutcome::Batch(batch) if batch.more || batch.rows.len() > LARGE_BATCH);
        let mut state = self.state.lock();
        if full {
            state.full.insert(partition);
        } else {
            state.full.remove(&partition);
        }
    }

    /// Refuses requests from now on, and those that have not begun.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let refused: Vec<RelayRequest> = state.requests.drain(..).collect();
        drop(state);
        for request in refused {
            request.reply_error(Error::Unreachable("the store is closed".into()));
        }
    }

    /// Waits until no request is being run.
    pub(crate) async fn idle(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Registers before the check: a notification between the check and the wait would be lost.
            ended.as_mut().enable();
            if self.state.lock().busy.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Waits for the next round: the oldest requests of partitions that are not busy, each partition once.
    pub(crate) async fn next_round(self: &Arc<Self>, options: &Options) -> Vec<RunningRequest> {
        loop {
            let expected_until = self.state.lock().expected_until(Instant::now());
            if let Some(until) = expected_until {
                // Fails at the end of the time.
                let _ = tokio::time::timeout_at(until, self.added.notified()).await;
                continue;
            }
            let requests = self.state.lock().take_round(options.relay_group_max.max(1));
            if !requests.is_empty() {
                let running = |request: RelayRequest| {
                    let busy = BusyPartition { queue: Arc::clone(self), partition: request.partition() };
                    RunningRequest { request, busy }
                };
                return requests.into_iter().map(running).collect();
            }
            self.added.notified().await;
        }
    }
}

impl RelayQueueState {
    /// The end of the wait for announced requests; `None` if none is missing or the time is over.
    fn expected_until(&mut self, now: Instant) -> Option<Instant> {
        self.expected = self.expected.filter(|(_, until)| *until > now);
        self.expected.map(|(_, until)| until)
    }

    fn take_round(&mut self, size_max: usize) -> Vec<RelayRequest> {
        let (mut round, mut left) = (Vec::new(), VecDeque::new());
        for request in self.requests.drain(..) {
            let Some(request) = request.without_abandoned_claim() else { continue };
            if round.len() < size_max && self.busy.insert(request.partition()) {
                round.push(request);
            } else {
                left.push_back(request);
            }
        }
        self.requests = left;
        round
    }
}

#[cfg(test)]
mod tests {
    use outbox::{InstanceId, LeaseFence, PartitionNo, ProducerSessionId};
    use ports::outbox::ClaimKind;

    use super::*;

    fn queue() -> (Arc<RelayQueue>, Options) {
        let options = Options { queue_max: 5, relay_group_max: 3, ..Options::new("", InstanceId("a".into())) };
        (Arc::new(RelayQueue::new(&options)), options)
    }

    fn claim(partition: u32) -> Claim {
        let fence =
            LeaseFence { partition: PartitionNo(partition), owner: InstanceId("a".into()), epoch: 1, counter: 1 };
        Claim { fence, session: ProducerSessionId("s".into()), limit: 1, kind: ClaimKind::Ordinary }
    }

    fn partitions(round: &[RunningRequest]) -> Vec<u32> {
        round.iter().map(|running| running.request.partition()).collect()
    }

    #[tokio::test]
    async fn round_takes_each_partition_once_and_at_most_the_limit() {
        let (queue, options) = queue();
        let results: Vec<_> = [1, 1, 2, 3, 4].map(|partition| queue.claim(claim(partition)).unwrap()).into();
        assert!(matches!(queue.claim(claim(5)), Err(Error::Overloaded(_))));

        let first = queue.next_round(&options).await;
        assert_eq!(partitions(&first), [1, 2, 3]);
        let second = queue.next_round(&options).await;
        assert_eq!(partitions(&second), [4], "partition 1 is busy");
        drop(first);
        assert_eq!(partitions(&queue.next_round(&options).await), [1]);
        drop((second, results));
        queue.idle().await;
    }

    #[tokio::test(start_paused = true)]
    async fn round_waits_for_announced_requests_but_not_for_long() {
        let (queue, options) = queue();
        queue.expect(3);
        let (queued, started) = (Arc::clone(&queue), Instant::now());
        let round = tokio::spawn(async move { queued.next_round(&options).await });
        let mut results = Vec::new();
        for number in 1..=3 {
            tokio::task::yield_now().await;
            assert!(!round.is_finished(), "one is missing still");
            results.push(queue.claim(claim(number)).unwrap());
        }
        assert_eq!(partitions(&round.await.unwrap()), [1, 2, 3]);
        assert_eq!(started.elapsed(), Duration::ZERO);

        let (_, options) = self::queue();
        queue.expect(2);
        results.push(queue.claim(claim(4)).unwrap());
        let round = queue.next_round(&options).await;
        assert_eq!((partitions(&round), started.elapsed()), (vec![4], EXPECT_MAX), "the other one never comes");
    }

    #[tokio::test]
    async fn abandoned_claims_are_skipped_and_closing_refuses_the_rest() {
        let (queue, options) = queue();
        drop(queue.claim(claim(1)).unwrap());
        let kept = queue.claim(claim(2)).unwrap();
        let round = queue.next_round(&options).await;
        assert_eq!(partitions(&round), [2]);
        let waiting = queue.claim(claim(2)).unwrap();

        queue.close();

        assert!(matches!(waiting.await.unwrap(), Err(Error::Unreachable(_))));
        assert!(matches!(queue.claim(claim(3)), Err(Error::Unreachable(_))));
        drop(round);
        assert!(kept.await.is_err(), "a request that ended without a result has an unknown outcome");
        queue.idle().await;
    }
}
