//! Which of two regions' updates of one order wins: the higher stamp, and at a tie the region whose name is not smaller.
use std::time::Duration;

use domain::{Hlc, Order, RegionId, Timestamp};

/// How far ahead a remote clock may be before its stamp is not believed.
pub const DRIFT_MAX: Duration = Duration::from_secs(60);

/// An update's standing: the stamp and who made it. Ordered by stamp, then by name, so every region sees the same winner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionStamp {
    /// The stamp.
    pub hlc: Hlc,
    /// Who made it.
    pub region: RegionId,
}

/// What to do with an incoming update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictDecision {
    /// It wins, or nothing stood there.
    Apply,
    /// What stands is newer: acknowledge, change nothing.
    Stale,
    /// Its clock is further ahead than we believe.
    TooFarAhead,
}

/// `shouldApplyIncomingUpdate` of the seeds' RegionalConsistencyManager.
pub fn decide(current: Option<&VersionStamp>, incoming: &VersionStamp, now: Timestamp) -> ConflictDecision {
    let horizon = now.after(DRIFT_MAX).millis();
    match current {
        _ if incoming.hlc.millis > horizon => ConflictDecision::TooFarAhead,
        Some(current) if incoming < current => ConflictDecision::Stale,
        _ => ConflictDecision::Apply,
    }
}

/// Whether a command may put `changed` in the place of `current`: the same rule, asked where another region made the last change. A stamp
/// of ours is always higher than the one it follows, so what forbids a change is a clock over there that we do not believe: a stamp above
/// it would be believed nowhere.
///
/// # Errors
/// Why not, and what to do.
pub fn check_change(current: &Order, changed: &Order, now: Timestamp) -> Result<(), String> {
    if current.region == changed.region {
        return Ok(());
    }
    let stand = |order: &Order| VersionStamp { hlc: order.hlc, region: order.region.clone() };
    match decide(Some(&stand(current)), &stand(changed), now) {
        ConflictDecision::Apply => Ok(()),
        ConflictDecision::Stale | ConflictDecision::TooFarAhead => Err(format!(
            "region {} changed the order with a clock that is more than {} s ahead of ours; set the clocks, or try again later",
            current.region.as_str(),
            DRIFT_MAX.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use domain::{ChangeContext, EventId, Item, Items, Money, NewOrder, OrderId, Subject};
    use proptest::prelude::*;

    use super::*;

    fn stand(millis: i64, counter: u32, region: &str) -> VersionStamp {
        VersionStamp { hlc: Hlc { millis, counter }, region: RegionId::new(region) }
    }

    #[test]
    fn the_rule_is_the_seeds() {
        let now = Timestamp::from_millis(1_000);
        let current = stand(10, 1, "b");
        let cases = [
            (stand(11, 0, "a"), ConflictDecision::Apply),
            (stand(10, 2, "a"), ConflictDecision::Apply),
            (stand(10, 1, "b"), ConflictDecision::Apply),
            (stand(10, 1, "c"), ConflictDecision::Apply),
            (stand(10, 1, "a"), ConflictDecision::Stale),
            (stand(10, 0, "z"), ConflictDecision::Stale),
            (stand(9, 9, "z"), ConflictDecision::Stale),
            (stand(61_001, 0, "z"), ConflictDecision::TooFarAhead),
            (stand(61_000, 0, "z"), ConflictDecision::Apply),
        ];
        for (incoming, expected) in cases {
            assert_eq!(decide(Some(&current), &incoming, now), expected, "{incoming:?}");
        }
        assert_eq!(decide(None, &stand(1, 0, "a"), now), ConflictDecision::Apply);
    }

    /// An update of one order: who says so, and what.
    fn updates() -> impl Strategy<Value = Vec<(VersionStamp, u32)>> {
        let update = (0_i64..70_000, 0_u32..3, prop::sample::select(vec!["eu", "us"]));
        // One region stamps no two changes alike.
        prop::collection::btree_set(update, 1..24).prop_map(|stamps| {
            let named = |((millis, counter, region), n)| (stand(millis, counter, region), n);
            stamps.into_iter().zip(0..).map(named).collect()
        })
    }

    fn by_stand(one: &(VersionStamp, u32), other: &(VersionStamp, u32)) -> Ordering {
        one.0.cmp(&other.0)
    }

    fn fold<'a>(
        updates: impl IntoIterator<Item = &'a (VersionStamp, u32)>,
        now: Timestamp,
    ) -> Option<(VersionStamp, u32)> {
        updates.into_iter().fold(None, |current: Option<(VersionStamp, u32)>, update| {
            match decide(current.as_ref().map(|(stand, _)| stand), &update.0, now) {
                ConflictDecision::Apply => Some(update.clone()),
                ConflictDecision::Stale | ConflictDecision::TooFarAhead => current,
            }
        })
    }

    proptest! {
        #[test]
        fn folded_in_any_order_the_same_updates_end_in_the_same_state(
            (first, second, again) in updates().prop_flat_map(|all| {
                let shuffled = Just(all.clone()).prop_shuffle();
                (Just(all.clone()), shuffled, prop::collection::vec(prop::sample::select(all), 0..6))
            }),
        ) {
            let now = Timestamp::from_millis(1_000);
            let believed = first.iter().filter(|(stand, _)| stand.hlc.millis <= 61_000);
            let highest = believed.cloned().max_by(by_stand);
            prop_assert_eq!(fold(&first, now), highest.clone());
            prop_assert_eq!(fold(&second, now), highest.clone());
            prop_assert_eq!(fold(second.iter().chain(&again), now), highest, "what comes again changes nothing");
        }

        #[test]
        fn two_regions_that_hear_of_each_other_agree_on_the_winner(
            (all, heard_by_eu, heard_by_us) in updates().prop_flat_map(|all| {
                let shuffled = || Just(all.clone()).prop_shuffle();
                (Just(all.clone()), shuffled(), shuffled())
            }),
        ) {
            let now = Timestamp::from_millis(70_000);
            // A region's own changes stand in its store, each above the last; those of the other one it hears of, in whatever order.
            let view = |own: &str, heard: &[(VersionStamp, u32)]| {
                let of = |mine: bool| move |update: &&(VersionStamp, u32)| (update.0.region.as_str() == own) == mine;
                let other = fold(heard.iter().filter(of(false)), now);
                all.iter().filter(of(true)).cloned().chain(other).max_by(by_stand)
            };
            prop_assert_eq!(view("eu", &heard_by_eu), view("us", &heard_by_us));
        }
    }

    #[test]
    fn a_command_follows_another_regions_change_unless_its_clock_is_not_believed() {
        let order = |region: &str, millis| {
            let placement = NewOrder {
                id: OrderId::from_bytes([1; 16]),
                event_id: EventId::from_bytes([2; 16]),
                owner: Subject::new("ann").unwrap(),
                items: Items::new(vec![Item::new("Tea", 1, Money::from_parts(250, 2).unwrap()).unwrap()]).unwrap(),
                region: RegionId::new(region),
                now: Timestamp::from_millis(millis),
            };
            Order::place(placement).0
        };
        let now = Timestamp::from_millis(1_000);
        let change = ChangeContext { event_id: EventId::from_bytes([3; 16]), region: RegionId::new("eu"), now };
        let follows = |current: Order| check_change(&current, &current.cancel(change.clone()).unwrap().0, now);

        assert_eq!(follows(order("us", 500)), Ok(()));
        assert_eq!(follows(order("us", 60_999)), Ok(()), "ahead, and believed: ours is stamped above it");
        assert!(follows(order("us", 61_001)).unwrap_err().contains("region us"));
        assert_eq!(follows(order("eu", 900_000)), Ok(()), "our own history is no conflict, whatever our clock did");
    }
}
