//! What has left is forgotten in time, in the outbox's archive and in the broker's log; what has not left never is.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::topics::TopicReader;

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::{Life, SOON, TOPIC};

const DAY: Duration = Duration::from_secs(86_400);

async fn kept(life: &Life) -> u64 {
    let views = life.store.list().await.expect("topics can be listed");
    let topic = views.into_iter().find(|view| view.name == TOPIC).expect("the topic is there");
    topic.partitions.iter().map(|(first, end)| end - first).sum()
}

/// A jump of the clock, as a suspended machine sees it; the minutes after it are lived through.
async fn sleep_through(life: &Life, time: Duration) {
    life.run(tokio::time::advance(time)).await;
    life.pass(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn the_archive_and_the_log_forget_what_left_a_week_ago() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.consumes = true;
    let life = house.start().await;
    ledger.place_many(&life, 20).await;
    life.drained(SOON).await;
    life.pass(Duration::from_secs(5)).await;
    assert_eq!((life.depth().await.sent, kept(&life).await), (20, 20));

    sleep_through(&life, DAY * 8).await;

    assert_eq!(life.depth().await.sent, 0, "the archive forgets");
    assert_eq!(kept(&life).await, 0, "the log forgets");
}

#[tokio::test(start_paused = true)]
async fn what_has_not_left_never_expires() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    let id = ledger.place(&life).await;
    life.drained(SOON).await;
    house.script.always(Call::Publish, InjectedFault::Unreachable);
    ledger.step(&life, id, Status::Processing).await;
    let waiting = ledger.place_many(&life, 10).await.len() as u64 + 1;

    sleep_through(&life, DAY * 400).await;
    assert_eq!(life.depth().await.pending, waiting);
    house.script.clear();
    life.drained(SOON).await;

    assert_eq!(life.depth().await.sent, waiting);
}
