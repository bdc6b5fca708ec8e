//! The number of dead letters that wait for an operator, cached for a few seconds.
use std::sync::Arc;
use std::time::Duration;

use app::operators::dead_letters_by_topic::{DeadLettersByTopic, WaitingDeadLetters};
use domain::Timestamp;
use parking_lot::Mutex;

/// Time for which a count is cached: counting reads the topics.
const CACHE_TTL: Duration = Duration::from_secs(10);
/// Most dead letters that are counted in each topic.
const COUNT_MAX: u32 = 1_000;

/// A count of dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLetterCount {
    /// Dead letters that were not sent back.
    pub(crate) waiting: u64,
    /// Whether there may be more.
    pub(crate) more: bool,
}

impl DeadLetterCount {
    /// The sum over all topics.
    pub(crate) fn total(by_topic: &[WaitingDeadLetters]) -> Self {
        let add = |sum: Self, topic: &WaitingDeadLetters| Self {
            waiting: sum.waiting + topic.waiting,
            more: sum.more | topic.more,
        };
        by_topic.iter().fold(Self::default(), add)
    }
}

/// The dead letters that wait, by topic.
type WaitingByTopic = Arc<[WaitingDeadLetters]>;

/// The cache: the last count and its time.
#[derive(Default)]
pub(crate) struct DeadLetterCountCache(Mutex<Option<(Timestamp, Option<WaitingByTopic>)>>);

impl DeadLetterCountCache {
    /// The dead letters that were not sent back, by topic; none without a broker, or while it does not answer.
    pub(crate) async fn waiting(
        &self,
        dead_letters: Option<&DeadLettersByTopic>,
        now: Timestamp,
    ) -> Option<WaitingByTopic> {
        if let Some((at, counts)) = &*self.0.lock()
            && now.since(*at) < CACHE_TTL
        {
            return counts.clone();
        }
        let counts: Option<WaitingByTopic> = dead_letters?.waiting(COUNT_MAX).await.ok().map(Arc::from);
        *self.0.lock() = Some((now, counts.clone()));
        counts
    }

    /// Invalidates the cache, after an operator has changed the count.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }
}
