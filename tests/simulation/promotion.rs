//! PendingPromoter: pages until no order is pending, skips orders that refuse, runs at a fixed rate.
use std::time::Duration;

use domain::{OrderId, Status};
use futures::future::join;
use kit::faults::{Call, InjectedFault};
use ports::orders::{OrderFilter, OrderStore};
use tokio::time::Instant;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{Process, TIMEOUT};

async fn pending(process: &Process) -> u64 {
    let filter = OrderFilter { status: Some(Status::Pending), ..OrderFilter::default() };
    process.store.count(&filter).await.expect("orders can be counted")
}

#[tokio::test(start_paused = true)]
async fn promotion_pages_until_no_order_is_pending() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_batch = 20;
    let process = environment.start().await;
    ledger.create_orders(&process, 110).await;

    assert_eq!(process.promote().await, Some(110));

    assert_eq!(pending(&process).await, 0);
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn promotion_skips_orders_that_changed_meanwhile() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_batch = 50;
    let process = environment.start().await;
    let mut ids = ledger.create_orders(&process, 20).await;
    // In the order in which the promoter reads them.
    ids.sort();
    environment.script.always(Call::Commit, InjectedFault::Slow(Duration::from_millis(100)));

    let (promoted, cancelled) = join(process.promote(), async {
        for id in &ids[15..18] {
            ledger.change_status(&process, *id, Status::Cancelled).await;
        }
        3
    })
    .await;

    assert_eq!(promoted, Some(20 - cancelled));
    assert_eq!(pending(&process).await, 0);
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn promotion_runs_at_its_interval_and_resumes_after_a_store_failure() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_interval = Duration::from_secs(60);
    let process = environment.start().await;
    ledger.create_orders(&process, 30).await;
    environment.script.times(3, Call::Commit, InjectedFault::Unreachable);

    process.advance(Duration::from_secs(70)).await;
    assert_eq!(pending(&process).await, 30, "the store failed");
    process.advance(Duration::from_secs(60)).await;

    assert_eq!(pending(&process).await, 0);
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

/// The interval is that between the begins of two runs.
#[tokio::test(start_paused = true)]
async fn promotion_runs_at_a_fixed_rate_also_where_the_store_is_slow() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_interval = Duration::from_secs(60);
    let process = environment.start().await;
    let started = Instant::now();
    let slow = || environment.script.always(Call::Commit, InjectedFault::Slow(Duration::from_secs(4)));
    let second = async |second| process.advance(Duration::from_secs(second).saturating_sub(started.elapsed())).await;

    ledger.create_orders(&process, 8).await;
    slow();
    second(100).await;
    assert_eq!(pending(&process).await, 0, "the first run lasts from 60 s until 92 s");
    environment.script.clear();
    ledger.create_orders(&process, 8).await;
    slow();
    second(140).await;
    assert!(pending(&process).await < 8, "the second run begins at 120 s");
    second(160).await;
    environment.script.clear();
    ledger.create_orders(&process, 20).await;
    slow();
    second(220).await;
    ledger.create_orders(&process, 1).await;
    second(258).await;
    assert!(pending(&process).await >= 2, "the third run lasts from 180 s until 260 s, and none begins meanwhile");
    second(275).await;
    assert_eq!(pending(&process).await, 0, "the fourth run begins when the third has ended");
}

#[tokio::test(start_paused = true)]
async fn order_that_cannot_be_promoted_does_not_block_the_younger_ones() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_batch = 20;
    let process = environment.start().await;
    ledger.create_orders(&process, 30).await;
    environment.script.once(Call::Commit, InjectedFault::Unreachable);

    assert_eq!(process.promote().await, Some(29), "only the oldest one failed");

    assert_eq!(process.promote().await, Some(1), "the next run tries it again");
    assert_eq!(pending(&process).await, 0);
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

/// More damaged orders than a run tries in a row, and pages that hold one of them.
#[tokio::test(start_paused = true)]
async fn damaged_orders_do_not_block_the_younger_ones() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_batch = 1;
    let process = environment.start().await;
    let mut ids = ledger.create_orders(&process, 9).await;
    ids.sort();
    let (healthy_old, damaged, healthy_young) = (ids[0], &ids[1..6], &ids[6..]);
    let database = environment.database();
    let set_items = |id: &OrderId, items: &str| {
        let changed = database.execute("UPDATE orders SET items = ?2 WHERE id = ?1", (id.bytes(), items));
        assert_eq!(changed, Ok(1));
    };
    let items = "SELECT items FROM orders WHERE id = ?1";
    let items: String = database.query_row(items, [healthy_old.bytes()], |row| row.get(0)).expect("the order exists");
    damaged.iter().for_each(|id| set_items(id, "damaged"));
    let log = LogCapture::start();
    let stops = || log.fields("promotion_stopped", ["order_id"]).into_iter().flatten().collect::<Vec<_>>();
    let named = |positions: &[usize]| positions.iter().map(|at| ids[*at].to_string()).collect::<Vec<_>>();

    assert_eq!(process.promote().await, Some(1), "the oldest one");
    assert_eq!(process.promote().await, Some(healthy_young.len() as u64));
    assert_eq!(stops(), named(&[3, 3]), "two damaged ones, the young ones, then three damaged ones in a row");
    let younger = ledger.create_orders(&process, 3).await;
    assert_eq!(process.promote().await, Some(younger.len() as u64));
    assert_eq!(stops(), named(&[3, 3, 3]));

    damaged.iter().for_each(|id| set_items(id, &items));
    assert_eq!(process.promote().await, Some(damaged.len() as u64));
    assert_eq!(pending(&process).await, 0);
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

/// While the run lasts, more orders are created than it can promote.
#[tokio::test(start_paused = true)]
async fn run_after_one_that_stopped_reaches_the_oldest_orders() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.promotion_batch = 2;
    let process = environment.start().await;
    let waiting = ledger.create_orders(&process, 7).await.len() as u64;
    environment.script.times(3, Call::Commit, InjectedFault::Unreachable);
    assert_eq!(process.promote().await, Some(0), "it stops at the third order");
    environment.script.always(Call::Commit, InjectedFault::Slow(Duration::from_millis(100)));

    let (promoted, created) = join(process.promote_within(10 * TIMEOUT), async {
        // Ids sort by their milliseconds.
        process.advance(Duration::from_millis(10)).await;
        for _ in 0..20 {
            ledger.create_concurrently(&process, 4).await;
        }
        80
    })
    .await;

    assert_eq!(promoted, Some(waiting), "those that waited when it began");
    environment.script.clear();
    assert_eq!(process.promote().await, Some(created));
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn promotion_on_request_that_takes_minutes_is_not_treated_as_hung() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    ledger.create_orders(&process, 90).await;
    environment.script.always(Call::Commit, InjectedFault::Slow(Duration::from_secs(2)));

    let (first, second) = join(process.promote_within(10 * TIMEOUT), process.promote()).await;

    assert_eq!((first, second), (Some(90), Some(0)), "one promotion runs at a time");
    assert_eq!(pending(&process).await, 0);
    environment.script.clear();
    assert_eq!(process.promote().await, Some(0));
}
