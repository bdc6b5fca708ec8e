//! The number of dead letters that wait for an operator, counted at most every few seconds however many pages ask.
use std::time::Duration;

use app::operators::dead_letters::{DeadLetterFilter, DeadLetters};
use app::port_types::Audit;
use domain::Timestamp;
use parking_lot::Mutex;

/// How long a count is shown: counting reads the topic.
const FRESH: Duration = Duration::from_secs(10);
/// Most dead letters that are counted.
const COUNT_MAX: u32 = 1_000;

/// A count of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetterCount {
    /// Dead letters that were not sent back.
    pub(crate) waiting: u64,
    /// Whether there may be more.
    pub(crate) more: bool,
}

/// The last count and its time.
#[derive(Default)]
pub(crate) struct CountedDeadLetters(Mutex<Option<(Timestamp, Option<DeadLetterCount>)>>);

impl CountedDeadLetters {
    /// The dead letters that were not sent back; none without a broker, or while it does not answer.
    pub(crate) async fn waiting(&self, dead_letters: Option<&DeadLetters>, now: Timestamp) -> Option<DeadLetterCount> {
        if let Some((at, count)) = *self.0.lock()
            && now.since(at) < FRESH
        {
            return count;
        }
        let no_operator = Audit { operator: String::new(), reason: String::new() };
        let report = dead_letters?.redrive(&DeadLetterFilter::default(), COUNT_MAX, false, &no_operator).await.ok();
        let count = report.map(|report| DeadLetterCount { waiting: report.matched, more: report.next.is_some() });
        *self.0.lock() = Some((now, count));
        count
    }

    /// Forgets the count, after an operator has changed it.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }
}
