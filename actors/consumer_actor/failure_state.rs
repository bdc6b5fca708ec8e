//! FailureState: whether a consumer fails, how long it pauses, and which polls show that it works again.
use std::collections::BTreeSet;
use std::time::Duration;

use ports::Error;
use tokio::time::Instant;

use crate::consumer_actor::consumer_poll::PollProgress;

/// Pause after a failure of the store or the broker, doubled up to the maximum. Unacknowledged messages are delivered again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long after its last failure a consumer that receives no message counts as recovered. Longer than a group takes to assign partitions to a
/// new member and that one to fetch: with the messages that failed, the failure is repeated within this time.
const QUIET_TIME: Duration = Duration::from_secs(30);
/// Most causes that are logged until the consumer recovers: each permission that it may lack, and more.
const CAUSES_MAX: usize = 16;

/// The failures of a consumer since it last worked.
pub struct FailureState {
    /// When it last failed; `None` while it works.
    failed_at: Option<Instant>,
    next_pause: Duration,
    /// The logged causes that no retry repairs, since the consumer last worked.
    causes: BTreeSet<String>,
}

impl FailureState {
    /// A consumer that works.
    pub fn working() -> Self {
        Self { failed_at: None, next_pause: PAUSE_MIN, causes: BTreeSet::new() }
    }

    /// Whether the consumer fails: no poll since its last failure shows that it works.
    pub fn is_failing(&self) -> bool {
        self.failed_at.is_some()
    }

    /// Whether an error is to be logged: the first failure, and each further cause that no retry repairs, which an operator must remove as well. Call
    /// it before [`Self::record_failure`].
    pub fn is_new_cause(&mut self, error: &Error) -> bool {
        let is_new = match error {
            Error::Broken(cause) => self.causes.len() < CAUSES_MAX && self.causes.insert(cause.clone()),
            _ => false,
        };
        is_new || !self.is_failing()
    }

    /// Records a failed poll. Returns the pause after it.
    pub fn record_failure(&mut self, now: Instant) -> Duration {
        self.failed_at = Some(now);
        let pause = self.next_pause;
        self.next_pause = (pause * 2).min(PAUSE_MAX);
        pause
    }

    /// Records a poll without an error. Returns whether the consumer recovered with it. The first polls of a new member are empty, because the group
    /// has assigned no partition to it yet: they show nothing.
    pub fn record_success(&mut self, progress: PollProgress, has_partitions: bool, now: Instant) -> bool {
        let Some(failed_at) = self.failed_at else { return false };
        let is_quiet = has_partitions && now.duration_since(failed_at) >= QUIET_TIME;
        let recovered = progress == PollProgress::Advanced || is_quiet;
        if recovered {
            *self = Self::working();
        }
        recovered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_progress_or_a_quiet_time_with_partitions_is_a_recovery() {
        let (idle, advanced) = (PollProgress::Idle, PollProgress::Advanced);
        // The poll, whether the member has partitions, seconds since the failure, whether the consumer recovered.
        let cases = [
            (advanced, false, 0, true),
            (idle, true, 29, false),
            (idle, true, 30, true),
            (idle, false, 30, false),
            (idle, false, 3_600, false),
        ];
        for (progress, has_partitions, seconds, expected) in cases {
            let (mut state, failed_at) = (FailureState::working(), Instant::now());
            assert!(!state.record_success(progress, has_partitions, failed_at), "it did not fail");
            state.record_failure(failed_at);

            let recovered = state.record_success(progress, has_partitions, failed_at + Duration::from_secs(seconds));

            let case = format!("{progress:?}, {has_partitions}, {seconds} s");
            assert_eq!((recovered, state.is_failing()), (expected, !expected), "{case}");
        }
    }

    #[test]
    fn first_failure_and_each_other_permanent_cause_are_new() {
        let (away, refused) = (|| Error::Unreachable("away".into()), |what: &str| Error::Broken(what.into()));
        let (mut state, now) = (FailureState::working(), Instant::now());
        let mut is_new = |error: Error| {
            let is_new = state.is_new_cause(&error);
            state.record_failure(now);
            is_new
        };

        let news = [away(), away(), refused("topic"), refused("topic"), away(), refused("group"), refused("topic")];
        assert_eq!(news.map(&mut is_new), [true, false, true, false, false, true, false]);
        assert_eq!((0..20).filter(|number| is_new(refused(&number.to_string()))).count(), CAUSES_MAX - 2);

        assert!(state.record_success(PollProgress::Advanced, true, now));
        assert!(state.is_new_cause(&refused("topic")));
    }

    #[test]
    fn pauses_grow_until_the_consumer_recovers() {
        let (mut state, now) = (FailureState::working(), Instant::now());
        let pauses: Vec<u128> = (0..7)
            .map(|_| {
                let pause = state.record_failure(now);
                state.record_success(PollProgress::Idle, true, now);
                pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);

        assert!(state.record_success(PollProgress::Advanced, true, now));

        assert_eq!(state.record_failure(now), PAUSE_MIN);
    }
}
