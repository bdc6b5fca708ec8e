//! Which of two regions' updates of one order wins: the higher stamp, and at a tie the region whose name is not smaller.
use std::time::Duration;

use domain::{Hlc, RegionId, Timestamp};

/// How far ahead a remote clock may be before its stamp is not believed.
pub const DRIFT_MAX: Duration = Duration::from_secs(60);

/// An update's standing: the stamp and who made it. Ordered by stamp, then by name, so every region sees the same winner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stand {
    /// The stamp.
    pub hlc: Hlc,
    /// Who made it.
    pub region: RegionId,
}

/// What to do with an incoming update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It wins, or nothing stood there.
    Apply,
    /// What stands is newer: acknowledge, change nothing.
    Stale,
    /// Its clock is further ahead than we believe.
    TooFarAhead,
}

/// `shouldApplyIncomingUpdate` of the seeds' RegionalConsistencyManager.
pub fn ruling(current: Option<&Stand>, incoming: &Stand, now: Timestamp) -> Ruling {
    let horizon = now.after(DRIFT_MAX).millis();
    match current {
        _ if incoming.hlc.millis > horizon => Ruling::TooFarAhead,
        Some(current) if incoming < current => Ruling::Stale,
        _ => Ruling::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(millis: i64, counter: u32, region: &str) -> Stand {
        Stand { hlc: Hlc { millis, counter }, region: RegionId::new(region) }
    }

    #[test]
    fn the_rule_is_the_seeds() {
        let now = Timestamp::from_millis(1_000);
        let current = stand(10, 1, "b");
        let cases = [
            (stand(11, 0, "a"), Ruling::Apply),
            (stand(10, 2, "a"), Ruling::Apply),
            (stand(10, 1, "b"), Ruling::Apply),
            (stand(10, 1, "c"), Ruling::Apply),
            (stand(10, 1, "a"), Ruling::Stale),
            (stand(10, 0, "z"), Ruling::Stale),
            (stand(9, 9, "z"), Ruling::Stale),
            (stand(61_001, 0, "z"), Ruling::TooFarAhead),
            (stand(61_000, 0, "z"), Ruling::Apply),
        ];
        for (incoming, expected) in cases {
            assert_eq!(ruling(Some(&current), &incoming, now), expected, "{incoming:?}");
        }
        assert_eq!(ruling(None, &stand(1, 0, "a"), now), Ruling::Apply);
    }

    #[test]
    fn folded_in_any_order_the_same_update_stands_at_the_end() {
        let updates = [stand(5, 0, "a"), stand(5, 0, "b"), stand(5, 1, "a"), stand(4, 9, "c")];
        let now = Timestamp::from_millis(10);
        let fold = |order: &[usize]| {
            order.iter().fold(None, |current: Option<Stand>, at| match ruling(current.as_ref(), &updates[*at], now) {
                Ruling::Apply => Some(updates[*at].clone()),
                Ruling::Stale | Ruling::TooFarAhead => current,
            })
        };
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];
        for order in orders {
            assert_eq!(fold(&order), Some(updates[2].clone()));
        }
    }
}
