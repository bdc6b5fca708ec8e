//! Wake-ups between instances: a partition has due rows, or has no owner. Wake-ups may be lost; polling finds the same work later.
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use ::outbox::{InstanceId, PartitionNo};
use async_trait::async_trait;

/// Most wakers that a [`WakeUpSet`] keeps. Beyond 16 all are woken and register again, so that cancelled waits do not accumulate.
const WAKERS_MAX: usize = 16;

/// A notification to the other instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeUp {
    /// The partition has due rows: its owner claims them.
    Due(PartitionNo),
    /// The partition has no owner any more: an instance below its quota acquires it.
    Free(PartitionNo),
}

/// Wake-ups that some tasks add and another waits for: those added before the waiting task runs are taken together. Bounded by twice the
/// number of partitions. Works on any runtime.
#[derive(Debug, Default)]
pub struct WakeUpSet {
    state: Mutex<WakeUpSetState>,
}

#[derive(Debug, Default)]
struct WakeUpSetState {
    wake_ups: BTreeSet<WakeUp>,
    wakers: Vec<Waker>,
}

impl WakeUpSet {
    /// Adds wake-ups and wakes the waiting task.
    pub fn add(&self, wake_ups: impl IntoIterator<Item = WakeUp>) {
        let mut state = self.lock();
        state.wake_ups.extend(wake_ups);
        if !state.wake_ups.is_empty() {
            let wakers = std::mem::take(&mut state.wakers);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Waits until the set is not empty, and takes all of it. Cancel-safe: wake-ups that were not returned stay in the set.
    pub async fn take(&self) -> Vec<WakeUp> {
        poll_fn(|context| {
            let mut state = self.lock();
            if !state.wake_ups.is_empty() {
                return Poll::Ready(std::mem::take(&mut state.wake_ups).into_iter().collect());
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

    fn lock(&self) -> MutexGuard<'_, WakeUpSetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats wake-ups: the sender's id, a space, and partition numbers, with a plus sign before those without an owner. A version that
/// does not know the sign reads the same numbers.
pub fn format_wake_ups(instance: &InstanceId, wake_ups: &[WakeUp]) -> String {
    let numbers = wake_ups.iter().map(|wake_up| match wake_up {
        WakeUp::Due(partition) => partition.to_string(),
        WakeUp::Free(partition) => format!("+{partition}"),
    });
    format!("{instance} {}", numbers.collect::<Vec<_>>().join(","))
}

/// Stands in place of the partition numbers in the hints of writers in SQL, which do not name partitions.
const ALL_PARTITIONS: &str = "*";

/// Whether a writer in SQL sent the hint. Such writers send at most one hint per [`SQL_WAKE_UP_COVERS`], so it also covers the commits that follow it
/// within that time.
pub fn is_from_sql(hint: &str) -> bool {
    hint.rsplit_once(' ').is_some_and(|(_, numbers)| numbers == ALL_PARTITIONS)
}

/// How long the other writers in SQL send no hint after one of them did: 25 ms, the interval in the trigger `outbox_wake` of the schema.
pub const SQL_WAKE_UP_COVERS: Duration = Duration::from_millis(25);

/// Parses wake-ups of another instance; malformed texts and those of this instance give none. The sender's id may hold spaces.
pub fn parse_wake_ups(hint: &str, this: &InstanceId, partitions: u32) -> Vec<WakeUp> {
    let parse = |text: &str| {
        let number = text.parse().ok().filter(|number| *number < partitions).map(PartitionNo)?;
        Some(if text.starts_with('+') { WakeUp::Free(number) } else { WakeUp::Due(number) })
    };
    match hint.rsplit_once(' ') {
        Some((_, ALL_PARTITIONS)) => (0..partitions).map(|number| WakeUp::Due(PartitionNo(number))).collect(),
        Some((sender, numbers)) if sender != &*this.0 => numbers.split(',').filter_map(parse).collect(),
        _ => Vec::new(),
    }
}

/// Sends wake-ups to the other instances of a store and receives theirs.
#[async_trait]
pub trait WakeChannel: Send + Sync {
    /// Wakes the other instances. Never waits and never fails; wake-ups in quick succession are sent as one message.
    fn notify(&self, wake_up: WakeUp);

    /// Waits for wake-ups of other instances and returns at least one. The channel reconnects by itself; wake-ups sent while it is
    /// disconnected are lost. Cancel-safe.
    async fn notified(&self) -> Vec<WakeUp>;
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

    fn poll_once(set: &WakeUpSet, waker: &Arc<CountingWaker>) -> Poll<Vec<WakeUp>> {
        let waker = Waker::from(Arc::clone(waker));
        pin!(set.take()).poll(&mut Context::from_waker(&waker))
    }

    fn due<const N: usize>(partitions: [u32; N]) -> [WakeUp; N] {
        partitions.map(|partition| WakeUp::Due(PartitionNo(partition)))
    }

    fn free<const N: usize>(partitions: [u32; N]) -> [WakeUp; N] {
        partitions.map(|partition| WakeUp::Free(PartitionNo(partition)))
    }

    #[test]
    fn partitions_added_before_a_wait_are_taken_together() {
        let (set, waker) = (WakeUpSet::default(), Arc::new(CountingWaker::default()));
        set.add(due([3]));
        set.add(due([1, 3]));
        set.add(free([3]));

        assert_eq!(poll_once(&set, &waker), Poll::Ready([&due([1, 3])[..], &free([3])].concat()));
        assert_eq!(poll_once(&set, &waker), Poll::Pending);
    }

    #[test]
    fn waiting_task_is_woken_once_and_a_cancelled_wait_loses_nothing() {
        let (set, cancelled, waiting) = (WakeUpSet::default(), Arc::default(), Arc::<CountingWaker>::default());
        assert_eq!(poll_once(&set, &cancelled), Poll::Pending);
        assert_eq!(poll_once(&set, &waiting), Poll::Pending);
        assert_eq!(poll_once(&set, &waiting), Poll::Pending);

        set.add([]);
        assert_eq!(waiting.0.load(SeqCst), 0, "an empty addition wakes no task");
        set.add(due([7]));
        set.add(due([8]));

        assert_eq!(waiting.0.load(SeqCst), 1);
        assert_eq!(poll_once(&set, &waiting), Poll::Ready(due([7, 8]).to_vec()));
    }

    #[test]
    fn wakers_of_cancelled_waits_are_bounded() {
        let set = WakeUpSet::default();
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
        let parsed = |hint: &str| parse_wake_ups(hint, &this, 64);
        assert_eq!(parsed("you 1,2,63"), due([1, 2, 63]));
        assert_eq!(parsed("my host:80 5"), due([5]));
        assert_eq!(parsed("you 1,+2"), [due([1]), free([2])].concat());
        let hint = format_wake_ups(&InstanceId("my host:80".into()), &[due([5, 7]), free([7, 9])].concat());
        assert_eq!((parsed(&hint), &*hint), ([due([5, 7]), free([7, 9])].concat(), "my host:80 5,7,+7,+9"));
        for ignored in ["me 1,2", "", "1,2", "you x,99,-1", "you +,+99,+x"] {
            assert_eq!(parsed(ignored), [], "{ignored}");
        }
    }

    #[test]
    fn hint_of_a_writer_in_sql_wakes_every_partition() {
        let this = InstanceId("a".into());

        assert_eq!(parse_wake_ups("sql *", &this, 3), due([0, 1, 2]));
        assert!(is_from_sql("sql *") && !is_from_sql("sql 1,2") && !is_from_sql("*"));
    }
}
