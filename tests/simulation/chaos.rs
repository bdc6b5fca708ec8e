//! Commands, faults of every port, crashes of random actors and of the process at the same time, by seed. Then the faults end, and the
//! guarantees are checked.
use std::time::Duration;

use actors::ProducerSlots;
use domain::OrderId;
use kit::clock::SeededRng;
use kit::faults::{Call, InjectedFault};
use ports::clock::Rng;

use crate::support::environment::{Environment, seeds};
use crate::support::ledger::Ledger;
use crate::support::process::Process;
use crate::support::record_faults::RecordFault;

/// Number of random actions for one seed.
const ACTIONS: usize = 80;
/// Longest drain after the faults: a retry may be due only after some minutes.
const DRAIN_LIMIT: Duration = Duration::from_secs(900);

const CALLS: [Call; 18] = [
    Call::OpenSession,
    Call::Publish,
    Call::Watermark,
    Call::Fence,
    Call::FenceAll,
    Call::Append,
    Call::Commit,
    Call::PublishEvents,
    Call::Read,
    Call::Claim,
    Call::Exclude,
    Call::Settle,
    Call::Resolve,
    Call::Heartbeat,
    Call::Acquire,
    Call::AcceptTimeline,
    Call::Renew,
    Call::Release,
];

fn inject_faults(environment: &Environment, level: f64) {
    let slow = InjectedFault::Slow(Duration::from_millis(700));
    for call in CALLS {
        for injected_fault in
            [InjectedFault::Unreachable, InjectedFault::UnknownNotDone, InjectedFault::UnknownDone, slow]
        {
            environment.script.sometimes(level, call, injected_fault);
        }
    }
    environment.script.sometimes(level, Call::Publish, InjectedFault::SessionLost);
    for call in [Call::Publish, Call::Claim, Call::Settle, Call::Resolve, Call::Exclude, Call::Acquire] {
        environment.script.sometimes(level / 10.0, call, InjectedFault::Panic);
    }
    let rng = SeededRng::new(environment.rng.next_u64());
    environment.record_faults.add(usize::MAX, RecordFault::RefuseTransient, move |_| rng.fraction() < level / 2.0);
    let rng = SeededRng::new(environment.rng.next_u64());
    environment.record_faults.add(usize::MAX, RecordFault::AbortBatch, move |_| rng.fraction() < level / 4.0);
}

fn pick<T: Copy>(rng: &dyn Rng, from: &[T]) -> Option<T> {
    let index = rng.next_u64().checked_rem(from.len() as u64)?;
    from.get(index as usize).copied()
}

/// Changes the status of a random order, unless it is in a final status.
async fn change_random_order(environment: &Environment, process: &Process, ledger: &mut Ledger) {
    let ids: Vec<OrderId> = ledger.orders.keys().copied().collect();
    let Some(id) = pick(&*environment.rng, &ids) else { return };
    let Some(to) = pick(&*environment.rng, ledger.orders[&id].status.successors()) else { return };
    // The ledger records whether the outcome is unknown.
    let _ = ledger.try_change_status(process, id, to).await;
}

fn crash_random_actor(environment: &Environment, process: &Process) {
    let actors: Vec<String> = process.bus().snapshot().into_iter().map(|row| row.path).collect();
    let Some(path) = actors.get((environment.rng.next_u64() % actors.len().max(1) as u64) as usize) else { return };
    // An actor that restarts at this moment is not affected.
    let _ = match environment.rng.next_u64() % 3 {
        0 => process.bus().panic(path, "chaos"),
        1 => process.bus().kill(path, "chaos"),
        _ => process.bus().stop(path, "chaos"),
    };
}

async fn random_action(environment: &Environment, process: Process, ledger: &mut Ledger) -> Process {
    match environment.rng.next_u64() % 100 {
        0..35 => ledger.create_concurrently(&process, 1 + environment.rng.next_u64() % 4).await,
        35..65 => change_random_order(environment, &process, ledger).await,
        65..75 => ledger.publish_external_events(&process, &environment.rng).await,
        75..85 => crash_random_actor(environment, &process),
        85..97 => process.advance(Duration::from_millis(environment.rng.next_u64() % 4_000)).await,
        _ => {
            // The process crashes.
            drop(process);
            return start(environment).await;
        }
    }
    // The platform restarts a process whose root supervisor escalates.
    if process.escalated().await {
        drop(process);
        return start(environment).await;
    }
    process
}

/// Starts a process with one service, or with two that share its store.
async fn start(environment: &Environment) -> Process {
    let process = environment.start().await;
    if environment.rng.next_u64().is_multiple_of(2) {
        // The second service runs until its process ends.
        drop(environment.join(&process, "other").await);
    }
    process
}

async fn run(seed: u64) {
    let (mut environment, mut ledger) = (Environment::seeded(seed), Ledger::default());
    let slots = 1 + (environment.rng.next_u64() % 4) as u32;
    environment.options.producers =
        if seed.is_multiple_of(3) { ProducerSlots::Shared(slots) } else { ProducerSlots::Spread(slots) };
    environment.options.relay.batch = 1 + (environment.rng.next_u64() % 20) as u32;
    // Independent of the bits that choose the fault level: each level is tested with consumers.
    environment.consumes = (seed / 4).is_multiple_of(2);
    let level = [0.0, 0.005, 0.02, 0.05][(seed % 4) as usize];
    inject_faults(&environment, level);
    let mut process = start(&environment).await;
    for _ in 0..ACTIONS {
        process = random_action(&environment, process, &mut ledger).await;
    }

    environment.script.clear();
    environment.record_faults.clear();
    if process.escalated().await {
        drop(process);
        process = environment.start().await;
    }
    process.wait_until_drained(DRAIN_LIMIT).await;
    ledger.assert_guarantees(&process).await;
    if environment.consumes {
        process.wait_until_consumed(DRAIN_LIMIT).await;
        ledger.assert_all_consumed(&process).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_guarantees_hold_under_random_faults_crashes_and_kills() {
    for seed in seeds(24) {
        run(seed).await;
    }
}
