//! The number of dead letters that wait for an operator, counted at most every few seconds however many pages ask.
use std::sync::Arc;
use std::time::Duration;

use app::operators::dead_letters_by_topic::{DeadLettersByTopic, WaitingDeadLetters};
use domain::Timestamp;
use parking_lot::Mutex;

/// How long a count is shown: counting reads the topics.
const FRESH: Duration = Duration::from_secs(10);
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
        let add =
            |sum: Self, of: &WaitingDeadLetters| Self { waiting: sum.waiting + of.waiting, more: sum.more | of.more };
        by_topic.iter().fold(Self::default(), add)
    }
}

/// The dead letters that wait, by topic.
type WaitingByTopic = Arc<[WaitingDeadLetters]>;

/// The last count and its time.
#[derive(Default)]
pub(crate) struct CountedDeadLetters(Mutex<Option<(Timestamp, Option<WaitingByTopic>)>>);

impl CountedDeadLetters {
    /// The dead letters that were not sent back, by topic; none without a broker, or while it does not answer.
    pub(crate) async fn waiting(
        &self,
        dead_letters: Option<&DeadLettersByTopic>,
        now: Timestamp,
    ) -> Option<WaitingByTopic> {
        if let Some((at, counts)) = &*self.0.lock()
            && now.since(*at) < FRESH
        {
            return counts.clone();
        }
        let counts: Option<WaitingByTopic> = dead_letters?.waiting(COUNT_MAX).await.ok().map(Arc::from);
        *self.0.lock() = Some((now, counts.clone()));
        counts
    }

    /// Forgets the count, after an operator has changed it.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }
}
