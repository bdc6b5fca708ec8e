//! Wake-ups between instances: a partition has due rows, or has no owner. Wake-ups may be lost; polling finds the same work later.
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use ::outbox::{InstanceId, PartitionNo};
use async_trait::async_trait;

/// Most wakers that a [`CoalescedSet`] keeps. Beyond 16 all are woken and register again, so that cancelled waits do not accumulate.
const WAKERS_MAX: usize = 16;

/// Partition numbers that some tasks add and another waits for: numbers added before the waiting task runs are taken together. Bounded
/// by the number of partitions. Works on any runtime.
#[derive(Debug, Default)]
pub struct CoalescedSet {
    state: Mutex<CoalescedState>,
}

#[derive(Debug, Default)]
struct CoalescedState {
    partitions: BTreeSet<u32>,
    wakers: Vec<Waker>,
}

impl CoalescedSet {
    /// Adds partitions and wakes the waiting task.
    pub fn add(&self, partitions: impl IntoIterator<Item = u32>) {
        let mut state = self.lock();
        state.partitions.extend(partitions);
        if !state.partitions.is_empty() {
            let wakers = std::mem::take(&mut state.wakers);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Waits until the set is not empty, and takes all of it. Cancel-safe: partitions that were not returned stay in the set.
    pub async fn take(&self) -> BTreeSet<u32> {
        poll_fn(|context| {
            let mut state = self.lock();
            if !state.partitions.is_empty() {
                return Poll::Ready(std::mem::take(&mut state.partitions));
            }
            let mut surplus = Vec::new();
            if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                if state.wakers.len() >= WAKERS_MAX {
                    surplus = std::mem::take(&mut state.wakers);
                }
                state.wakers.push(context.waker().clone());
            }
            drop(state);
            surplus.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, CoalescedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats a wake-up: the sender's name, a space, and partition numbers.
pub fn format_hint(instance: &InstanceId, partitions: &[u32]) -> String {
    let numbers: Vec<String> = partitions.iter().map(u32::to_string).collect();
    format!("{instance} {}", numbers.join(","))
}

/// Parses a wake-up of another instance; malformed texts and those of this instance give no partitions. The sender's name may hold spaces.
pub fn parse_hint(hint: &str, this: &InstanceId, partitions: u32) -> Vec<u32> {
    match hint.rsplit_once(' ') {
        Some((sender, numbers)) if sender != &*this.0 => {
            numbers.split(',').filter_map(|number| number.parse().ok()).filter(|number| *number < partitions).collect()
        }
        _ => Vec::new(),
    }
}

/// Sends wake-ups to the other instances of a store and receives theirs.
#[async_trait]
pub trait WakeChannel: Send + Sync {
    /// Wakes the other instances for a partition that has due rows or no owner. Never waits and never fails; wake-ups in quick succession
    /// are sent as one message.
    fn notify(&self, partition: PartitionNo);

    /// Waits for wake-ups of other instances and returns at least one partition. The channel reconnects by itself; wake-ups sent while it
    /// is disconnected are lost. Cancel-safe.
    async fn notified(&self) -> Vec<PartitionNo>;
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn poll_once(set: &CoalescedSet, waker: &Arc<CountingWaker>) -> Poll<Vec<u32>> {
        let waker = Waker::from(Arc::clone(waker));
        let poll = pin!(set.take()).poll(&mut Context::from_waker(&waker));
        poll.map(|partitions| partitions.into_iter().collect())
    }

    #[test]
    fn partitions_added_before_the_taker_runs_are_taken_together() {
        let (set, waker) = (CoalescedSet::default(), Arc::new(CountingWaker::default()));
        set.add([3]);
        set.add([1, 3]);

        assert_eq!(poll_once(&set, &waker), Poll::Ready(vec![1, 3]));
        assert_eq!(poll_once(&set, &waker), Poll::Pending);
    }

    #[test]
    fn waiting_task_is_woken_once_and_a_cancelled_wait_loses_nothing() {
        let (set, cancelled, waiting) = (CoalescedSet::default(), Arc::default(), Arc::<CountingWaker>::default());
        assert_eq!(poll_once(&set, &cancelled), Poll::Pending);
        assert_eq!(poll_once(&set, &waiting), Poll::Pending);
        assert_eq!(poll_once(&set, &waiting), Poll::Pending);

        set.add([]);
        assert_eq!(waiting.0.load(SeqCst), 0, "an empty addition wakes no task");
        set.add([7]);
        set.add([8]);

        assert_eq!(waiting.0.load(SeqCst), 1);
        assert_eq!(poll_once(&set, &waiting), Poll::Ready(vec![7, 8]));
    }

    #[test]
    fn wakers_of_cancelled_waits_are_bounded() {
        let set = CoalescedSet::default();
        let first = Arc::<CountingWaker>::default();
        assert_eq!(poll_once(&set, &first), Poll::Pending);
        for _ in 0..1_000 {
            assert_eq!(poll_once(&set, &Arc::default()), Poll::Pending);
        }

        assert!(set.lock().wakers.len() <= WAKERS_MAX);
        assert_eq!(first.0.load(SeqCst), 1, "it is woken when its waker is dropped, and can register again");
    }

    #[test]
    fn only_well_formed_wake_ups_of_other_instances_are_parsed() {
        let this = InstanceId("me".into());
        let parsed = |hint: &str| parse_hint(hint, &this, 64);
        assert_eq!(parsed("you 1,2,63"), [1, 2, 63]);
        assert_eq!(parsed("my host:80 5"), [5]);
        assert_eq!(parsed(&format_hint(&InstanceId("my host:80".into()), &[5, 7])), [5, 7]);
        for ignored in ["me 1,2", "", "1,2", "you x,99,-1"] {
            assert_eq!(parsed(ignored), Vec::<u32>::new(), "{ignored}");
        }
    }
}
