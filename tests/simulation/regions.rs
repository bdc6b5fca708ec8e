//! Two regions that change the same orders: whatever the order in which a service hears of it, the same change stands at the end; and a
//! command of ours follows another region's change, unless that region's clock is not to be believed.
use std::collections::BTreeMap;
use std::time::Duration;

use app::error::CommandError;
use domain::{Hlc, Order, OrderId, RegionId, Status};
use kit::Factory;
use kit::clock::{START_TIME, SeededRng};
use ports::broker::{Broker, Record};
use ports::clock::Rng;
use ports::inbox::Inbox;
use ports::orders::{Commit, Committed, OrderStore};

use crate::house::{House, seed, seeds};
use crate::life::{Life, SOON, TOPIC};
use crate::scribe::{Scribe, from_region};

const ORDERS: usize = 6;
const UPDATES: usize = 8;

/// Who won, by order.
type Winners = BTreeMap<OrderId, (RegionId, Hlc)>;

fn stamp(millis: i64, counter: u32) -> Hlc {
    Hlc { millis: START_TIME.millis() + millis, counter }
}

fn below(dice: &SeededRng, end: u32) -> u32 {
    (dice.next_u64() % u64::from(end)) as u32
}

/// Updates of both regions to the same orders, and who must win. Some stamps are alike, some from a clock that nobody believes.
fn updates(dice: &SeededRng, make: &Factory) -> (Vec<Record>, Winners) {
    let (mut records, mut winners) = (Vec::new(), Winners::new());
    for _ in 0..ORDERS {
        let (order, _) = make.placed("ann");
        for n in 0..UPDATES {
            let region = if below(dice, 2) == 0 { "eu" } else { "us" };
            let wild = n > 0 && below(dice, 6) == 0;
            let hlc = stamp(if wild { 3_600_000 } else { i64::from(below(dice, 5)) }, below(dice, 2));
            let (_, event) = make.status_changed(&order, Status::Processing);
            records.push(from_region(&event, region, hlc));
            let stand = (RegionId::new(region), hlc);
            let winner = winners.entry(order.id).or_insert_with(|| stand.clone());
            if !wild && (stand.1, &stand.0) > (winner.1, &winner.0) {
                *winner = stand;
            }
        }
    }
    (records, winners)
}

/// One service that hears of all of it, in an order of its own, of some twice, while its consumer dies now and then.
async fn heard(house: &House, dice: &SeededRng, records: &[Record]) -> Winners {
    let life = house.start().await;
    let mut left = records.to_vec();
    while !left.is_empty() {
        let at = below(dice, u32::try_from(left.len()).expect("few")) as usize;
        let record = left.swap_remove(at);
        let times = 1 + usize::from(below(dice, 5) == 0);
        life.run(life.store.append(vec![record; times])).await.expect("appended");
        if below(dice, 10) == 0 {
            // Refused while it is on its way back already.
            let _ = life.bus().panic("/consumer-0", "test");
        }
        life.pass(Duration::from_millis(below(dice, 30).into())).await;
    }
    life.consumed(SOON).await;
    assert_eq!(
        life.metrics.kafka_consumer_processed_count.get(),
        records.len() as u64,
        "stale ones advance the inbox, too"
    );
    assert!(life.metrics.region_conflict_rejected_count.get() > 0, "what lost is counted");
    winners(&life, records).await
}

async fn winners(life: &Life, records: &[Record]) -> Winners {
    let mut winners = Winners::new();
    for record in records {
        let id = OrderId::parse(&record.key).expect("keys are orders");
        if let Some(remote) = life.store.remote(id).await.expect("it can be read") {
            winners.insert(id, (remote.region, remote.hlc));
        }
    }
    winners
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_first_the_same_change_stands_at_the_end() {
    for seed in seeds(6) {
        let dice = SeededRng::new(seed);
        let (records, expected) = updates(&dice, &Factory::seeded(seed, TOPIC.into()));
        for turn in 0..3 {
            let scribe = Scribe::new(false, 0, |_| false);
            let mut house = House::seeded(seed + turn);
            (house.consumes, house.handlers) = (true, scribe.handlers());
            assert_eq!(heard(&house, &dice, &records).await, expected, "seed {seed}, turn {turn}");
        }
    }
}

/// An order that region "us" changed last, with a clock so far ahead.
async fn changed_elsewhere(life: &Life, make: &Factory, ahead: Duration) -> Order {
    let (mut order, _) = make.placed("ann");
    order.region = RegionId::new("us");
    order.hlc = stamp(i64::try_from(ahead.as_millis()).expect("it fits"), 3);
    let commit = Commit { order: order.clone(), expected: None, events: Vec::new(), mark: None };
    let committed = life.run(OrderStore::commit(&life.store, commit)).await.expect("the store answers");
    assert_eq!(committed, Committed::Done);
    order
}

#[tokio::test(start_paused = true)]
async fn a_command_follows_another_regions_change_unless_its_clock_is_not_believed() {
    let house = House::new();
    let life = house.start().await;
    let make = Factory::seeded(seed(), TOPIC.into());
    let near = changed_elsewhere(&life, &make, Duration::from_secs(30)).await;
    let far = changed_elsewhere(&life, &make, Duration::from_secs(3_600)).await;

    let followed = life.change(near.id, Status::Shipped).await.expect("a clock may be a little ahead");
    let refused = life.change(far.id, Status::Shipped).await;

    assert!(followed.hlc > near.hlc, "the change is stamped above the one that it follows");
    assert!(matches!(refused, Err(CommandError::RegionConflict(_))), "{refused:?}");
    assert_eq!(life.metrics.region_conflict_rejected_count.get(), 1);
    let waiting = changed_elsewhere(&life, &make, Duration::from_secs(1)).await;
    assert_eq!(life.promote().await, Some(1), "promotion asks the same rule, and passes the order over");
    let status = async |id| life.store.find(id).await.expect("it can be read").expect("it is there").status;
    assert_eq!((status(waiting.id).await, status(far.id).await), (Status::Processing, Status::Pending));
    assert_eq!(life.metrics.region_conflict_rejected_count.get(), 2);
}
