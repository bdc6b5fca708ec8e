//! Conflict resolution between regions (last writer wins): of two updates of one order the higher stamp wins and, at equal stamps, the
//! region with the greater name.
use domain::{Hlc, Order, RegionId, Timestamp};
use ports::inbox::RemoteStamp;

/// Stamp and region of an update. Ordered by stamp, then by region name, so that every region chooses the same winner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionStamp {
    /// Hybrid logical clock stamp of the update.
    pub hlc: Hlc,
    /// Region that made the update.
    pub region: RegionId,
}

impl From<RemoteStamp> for VersionStamp {
    fn from(RemoteStamp { region, hlc }: RemoteStamp) -> Self {
        Self { hlc, region }
    }
}

/// Decision on an incoming update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictDecision {
    /// The update wins, or is the first one.
    Apply,
    /// The present update has the higher stamp: the incoming one is acknowledged without effects.
    Stale,
    /// The stamp is later than the bound of drift permits.
    TooFarAhead,
}

/// Decides between the present update of an order and an incoming one. `latest_accepted_time` is the latest time that a stamp may have: the local
/// time plus the bound of drift.
pub fn decide(
    current: Option<&VersionStamp>,
    incoming: &VersionStamp,
    latest_accepted_time: Timestamp,
) -> ConflictDecision {
    match current {
        _ if incoming.hlc.millis > latest_accepted_time.millis() => ConflictDecision::TooFarAhead,
        Some(current) if incoming < current => ConflictDecision::Stale,
        _ => ConflictDecision::Apply,
    }
}

/// Checks whether a command may replace `current` with `changed`, by the rule of [`decide`], when another region made the last change, in the
/// order itself or by an event (`remote`). A local stamp is greater than the stamp that it follows, unless the event's stamp is too far ahead to
/// advance the local clock. So only a remote clock that is too far ahead forbids a change: every region would reject a stamp above that of the
/// event, and ignore one below it.
///
/// # Errors
/// Why the change is forbidden, and what an operator can do.
pub fn check_change(
    current: &Order,
    remote: Option<&VersionStamp>,
    changed: &Order,
    latest_accepted_time: Timestamp,
) -> Result<(), String> {
    let stamp = |order: &Order| VersionStamp { hlc: order.hlc, region: order.region.clone() };
    let changed_stamp = stamp(changed);
    if let Some(remote) = remote.filter(|remote| changed_stamp < **remote) {
        return Err(conflict_with(&remote.region));
    }
    if current.region == changed.region {
        return Ok(());
    }
    match decide(Some(&stamp(current)), &changed_stamp, latest_accepted_time) {
        ConflictDecision::Apply => Ok(()),
        ConflictDecision::Stale | ConflictDecision::TooFarAhead => Err(conflict_with(&current.region)),
    }
}

fn conflict_with(region: &RegionId) -> String {
    format!(
        "region {} changed the order with a clock that is further ahead of this region's than region.drift_max; synchronise the clocks, or try again later",
        region.as_str()
    )
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use domain::{ChangeContext, EventId, Item, Items, Money, NewOrder, OrderId, Subject};
    use proptest::prelude::*;

    use super::*;

    fn stamp(millis: i64, counter: u32, region: &str) -> VersionStamp {
        VersionStamp { hlc: Hlc { millis, counter }, region: RegionId::new(region) }
    }

    #[test]
    fn higher_stamp_wins_and_region_name_breaks_ties() {
        let latest_accepted_time = Timestamp::from_millis(61_000);
        let current = stamp(10, 1, "b");
        let cases = [
            (stamp(11, 0, "a"), ConflictDecision::Apply),
            (stamp(10, 2, "a"), ConflictDecision::Apply),
            (stamp(10, 1, "b"), ConflictDecision::Apply),
            (stamp(10, 1, "c"), ConflictDecision::Apply),
            (stamp(10, 1, "a"), ConflictDecision::Stale),
            (stamp(10, 0, "z"), ConflictDecision::Stale),
            (stamp(9, 9, "z"), ConflictDecision::Stale),
            (stamp(61_001, 0, "z"), ConflictDecision::TooFarAhead),
            (stamp(61_000, 0, "z"), ConflictDecision::Apply),
        ];
        for (incoming, expected) in cases {
            assert_eq!(decide(Some(&current), &incoming, latest_accepted_time), expected, "{incoming:?}");
        }
        assert_eq!(decide(None, &stamp(1, 0, "a"), latest_accepted_time), ConflictDecision::Apply);
    }

    /// Updates of one order with distinct stamps; the number stands for their content.
    fn updates() -> impl Strategy<Value = Vec<(VersionStamp, u32)>> {
        let update = (0_i64..70_000, 0_u32..3, prop::sample::select(vec!["eu", "us"]));
        // A region never gives two changes the same stamp.
        prop::collection::btree_set(update, 1..24).prop_map(|stamps| {
            let update = |((millis, counter, region), content)| (stamp(millis, counter, region), content);
            stamps.into_iter().zip(0..).map(update).collect()
        })
    }

    fn by_stamp(one: &(VersionStamp, u32), other: &(VersionStamp, u32)) -> Ordering {
        one.0.cmp(&other.0)
    }

    fn fold<'a>(
        updates: impl IntoIterator<Item = &'a (VersionStamp, u32)>,
        latest_accepted_time: Timestamp,
    ) -> Option<(VersionStamp, u32)> {
        updates.into_iter().fold(None, |current: Option<(VersionStamp, u32)>, update| {
            match decide(current.as_ref().map(|(stamp, _)| stamp), &update.0, latest_accepted_time) {
                ConflictDecision::Apply => Some(update.clone()),
                ConflictDecision::Stale | ConflictDecision::TooFarAhead => current,
            }
        })
    }

    proptest! {
        #[test]
        fn updates_applied_in_any_order_end_in_the_same_state(
            (first, second, repeated) in updates().prop_flat_map(|all| {
                let shuffled = Just(all.clone()).prop_shuffle();
                (Just(all.clone()), shuffled, prop::collection::vec(prop::sample::select(all), 0..6))
            }),
        ) {
            let latest_accepted_time = Timestamp::from_millis(61_000);
            let accepted = first.iter().filter(|(stamp, _)| stamp.hlc.millis <= 61_000);
            let highest = accepted.cloned().max_by(by_stamp);
            prop_assert_eq!(fold(&first, latest_accepted_time), highest.clone());
            prop_assert_eq!(fold(&second, latest_accepted_time), highest.clone());
            prop_assert_eq!(fold(second.iter().chain(&repeated), latest_accepted_time), highest, "a repeated update changes nothing");
        }

        #[test]
        fn two_regions_that_exchange_updates_agree_on_the_winner(
            (all, received_by_eu, received_by_us) in updates().prop_flat_map(|all| {
                let shuffled = || Just(all.clone()).prop_shuffle();
                (Just(all.clone()), shuffled(), shuffled())
            }),
        ) {
            let latest_accepted_time = Timestamp::from_millis(130_000);
            // A region's store has its own changes with growing stamps; it receives those of the other region in any order.
            let view = |own: &str, received: &[(VersionStamp, u32)]| {
                let of = |mine: bool| move |update: &&(VersionStamp, u32)| (update.0.region.as_str() == own) == mine;
                let other = fold(received.iter().filter(of(false)), latest_accepted_time);
                all.iter().filter(of(true)).cloned().chain(other).max_by(by_stamp)
            };
            prop_assert_eq!(view("eu", &received_by_eu), view("us", &received_by_us));
        }
    }

    #[test]
    fn command_follows_another_regions_change_unless_its_clock_is_too_far_ahead() {
        let order = |region: &str, millis| {
            let new_order = NewOrder {
                id: OrderId::from_bytes([1; 16]),
                event_id: EventId::from_bytes([2; 16]),
                owner: Subject::new("ann").unwrap(),
                items: Items::new(vec![Item::new("Tea", 1, Money::from_parts(250, 2).unwrap()).unwrap()]).unwrap(),
                region: RegionId::new(region),
                now: Timestamp::from_millis(millis),
                physical_time: Timestamp::from_millis(millis),
                received: Hlc::default(),
            };
            Order::place(new_order).0
        };
        let now = Timestamp::from_millis(1_000);
        let change = ChangeContext {
            event_id: EventId::from_bytes([3; 16]),
            region: RegionId::new("eu"),
            now,
            physical_time: now,
            received: Hlc::default(),
        };
        let latest_accepted_time = Timestamp::from_millis(61_000);
        let follows_event = |current: Order, remote: Option<VersionStamp>| {
            let changed = current.cancel(change.clone()).unwrap().0;
            check_change(&current, remote.as_ref(), &changed, latest_accepted_time)
        };
        let follows = |current: Order| follows_event(current, None);

        assert_eq!(follows(order("us", 500)), Ok(()));
        assert_eq!(follows(order("us", 60_999)), Ok(()), "ahead within the limit: the local stamp is above it");
        assert!(follows(order("us", 61_001)).unwrap_err().contains("region us"));
        assert_eq!(
            follows(order("eu", 900_000)),
            Ok(()),
            "a region never conflicts with itself, whatever its clock did"
        );
        assert_eq!(follows_event(order("eu", 500), Some(stamp(900, 0, "us"))), Ok(()));
        let ahead = stamp(61_001, 0, "us");
        let conflict = follows_event(order("eu", 500), Some(ahead.clone())).unwrap_err();
        assert!(conflict.contains("region us"), "the change would lose against the other region's: {conflict}");
        assert_eq!(follows_event(order("eu", 900_000), Some(ahead)), Ok(()), "a later own stamp wins");
    }
}
