//! Everything at once, by seed: commands, faults on every port, kills of random actors and of the process; then calm, and the laws.
use std::time::Duration;

use actors::Pinning;
use domain::OrderId;
use kit::clock::SeededRng;
use kit::faults::{Call, InjectedFault};
use ports::clock::Rng;

use crate::house::{House, seeds};
use crate::ledger::Ledger;
use crate::life::Life;
use crate::moody::Mood;

/// What one seed does.
const STEPS: usize = 80;
/// Retries that are under way when the calm begins may be minutes from their next attempt.
const CALM: Duration = Duration::from_secs(900);

const CALLS: [Call; 15] = [
    Call::OpenSession,
    Call::Publish,
    Call::Watermark,
    Call::Fence,
    Call::Append,
    Call::Commit,
    Call::Read,
    Call::Claim,
    Call::Exclude,
    Call::Settle,
    Call::Resolve,
    Call::Heartbeat,
    Call::Acquire,
    Call::Renew,
    Call::Release,
];

fn trouble(house: &House, level: f64) {
    let slow = InjectedFault::Slow(Duration::from_millis(700));
    for call in CALLS {
        for mishap in [InjectedFault::Unreachable, InjectedFault::UnknownNotDone, InjectedFault::UnknownDone, slow] {
            house.script.sometimes(level, call, mishap);
        }
    }
    house.script.sometimes(level, Call::Publish, InjectedFault::SessionLost);
    for call in [Call::Publish, Call::Claim, Call::Settle, Call::Resolve, Call::Exclude, Call::Acquire] {
        house.script.sometimes(level / 10.0, call, InjectedFault::Panic);
    }
    let dice = SeededRng::new(house.dice.next_u64());
    house.moods.add(usize::MAX, Mood::RefuseForNow, move |_| dice.fraction() < level / 2.0);
    let dice = SeededRng::new(house.dice.next_u64());
    house.moods.add(usize::MAX, Mood::Break, move |_| dice.fraction() < level / 4.0);
}

fn pick<T: Copy>(dice: &dyn Rng, from: &[T]) -> Option<T> {
    let place = dice.next_u64().checked_rem(from.len() as u64)?;
    from.get(place as usize).copied()
}

/// A move of a random order; none where it cannot move on.
async fn step(house: &House, life: &Life, ledger: &mut Ledger) {
    let ids: Vec<OrderId> = ledger.orders.keys().copied().collect();
    let Some(id) = pick(&*house.dice, &ids) else { return };
    let Some(to) = pick(&*house.dice, ledger.orders[&id].status.successors()) else { return };
    // What went wrong is in the ledger.
    let _ = ledger.try_step(life, id, to).await;
}

fn harm(house: &House, life: &Life) {
    let actors: Vec<String> = life.bus().snapshot().into_iter().map(|row| row.path).collect();
    let Some(path) = actors.get((house.dice.next_u64() % actors.len().max(1) as u64) as usize) else { return };
    // One that is between two lives is not hit.
    let _ = match house.dice.next_u64() % 3 {
        0 => life.bus().panic(path, "chaos"),
        1 => life.bus().kill(path, "chaos"),
        _ => life.bus().stop(path, "chaos"),
    };
}

async fn one_turn(house: &House, life: Life, ledger: &mut Ledger) -> Life {
    match house.dice.next_u64() % 100 {
        0..35 => ledger.burst(&life, 1 + house.dice.next_u64() % 4).await,
        35..75 => step(house, &life, ledger).await,
        75..85 => harm(house, &life),
        85..97 => life.pass(Duration::from_millis(house.dice.next_u64() % 4_000)).await,
        _ => {
            // The process dies.
            drop(life);
            return begin(house).await;
        }
    }
    // A tree that gives up is what the platform restarts.
    if life.gave_up().await {
        drop(life);
        return begin(house).await;
    }
    life
}

/// A process with one service in it, or with two that share its store.
async fn begin(house: &House) -> Life {
    let life = house.start().await;
    if house.dice.next_u64().is_multiple_of(2) {
        // It lives and dies with its process.
        drop(house.join(&life, "other").await);
    }
    life
}

async fn run(seed: u64) {
    let (mut house, mut ledger) = (House::seeded(seed), Ledger::default());
    let lanes = 1 + (house.dice.next_u64() % 4) as u32;
    house.options.lanes = if seed.is_multiple_of(3) { Pinning::Together(lanes) } else { Pinning::Apart(lanes) };
    house.options.relay.batch = 1 + (house.dice.next_u64() % 20) as u32;
    house.consumes = seed.is_multiple_of(2);
    let level = [0.0, 0.005, 0.02, 0.05][(seed % 4) as usize];
    trouble(&house, level);
    let mut life = begin(&house).await;
    for _ in 0..STEPS {
        life = one_turn(&house, life, &mut ledger).await;
    }

    house.script.clear();
    house.moods.calm();
    if life.gave_up().await {
        drop(life);
        life = house.start().await;
    }
    life.drained(CALM).await;
    ledger.laws(&life).await;
    if house.consumes {
        life.consumed(CALM).await;
        ledger.all_is_remembered(&life).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_the_laws_hold() {
    for seed in seeds(24) {
        run(seed).await;
    }
}
