//! A slow broker: the limit of batches in flight holds, each key keeps its order, all events are sent.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, Mishap};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;

#[tokio::test(start_paused = true)]
async fn a_slow_broker_gets_no_more_batches_than_the_limit_and_all_are_sent_in_order() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.options.partitions, environment.options.max_in_flight, environment.options.relay.batch) = (12, 3, 5);
    environment.script.always(Call::Publish, Mishap::Slow(Duration::from_secs(3)));
    let process = environment.start().await;

    let ids = ledger.create_orders(&process, 60).await;
    for to in [Status::Processing, Status::Shipped, Status::Delivered] {
        for id in &ids {
            ledger.change_status(&process, *id, to).await;
        }
        process.advance(Duration::from_secs(1)).await;
    }
    process.wait_until_drained(Duration::from_secs(300)).await;

    assert_eq!(environment.record_faults.in_flight_max(), 3);
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_hung_broker_gets_no_more_batches_than_the_limit() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.options.partitions, environment.options.max_in_flight) = (12, 3);
    let process = environment.start().await;
    environment.script.always(Call::Publish, Mishap::Hang);

    ledger.create_orders(&process, 40).await;
    process.advance(Duration::from_secs(600)).await;
    assert_eq!(environment.record_faults.in_flight_max(), 3);
    environment.script.calm();
    process.wait_until_drained(Duration::from_secs(60)).await;

    ledger.assert_guarantees(&process).await;
}
