//! Random faults against the tree: every ask gets a result, every permit is released and every child runs in the end.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use supervision::{ActorState, AskError, Mailbox, RootSupervisor, Strategy, SupervisorSpec};

use crate::fixture::{Behavior, Ping, Slow, Worker, WorkerEnv, bus_without_jitter, ms, supervisor, worker};

const ROUNDS: usize = 4_000;

virtual_time_test!(random_faults_leave_every_ask_with_a_result_and_every_permit_released, {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    // Printed when the test fails; SEED=<seed> repeats the run.
    eprintln!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    // Short windows: the intensity is rarely exceeded, and when it is, the root restarts the subtree.
    let mut pool = SupervisorSpec::new("pool", Strategy::OneForOne, 20, ms(100));
    let mut chain = SupervisorSpec::new("chain", Strategy::RestForOne, 20, ms(100));
    let mut mailboxes = Vec::new();
    for n in 0..4 {
        let (mailbox, spec) = worker(&bus, &env, &format!("/pool/{n}"));
        mailboxes.push(mailbox);
        pool = pool.child(spec.stuck_after(ms(500)).start_timeout(ms(200)));
        let (mailbox, spec) = worker(&bus, &env, &format!("/chain/{n}"));
        mailboxes.push(mailbox);
        chain = chain.child(spec.stuck_after(ms(500)).start_timeout(ms(200)));
    }
    let root =
        RootSupervisor::start(supervisor(Strategy::OneForOne, 1_000).supervisor(pool).supervisor(chain), bus.clone())
            .await;
    let paths: Vec<String> = bus.snapshot().into_iter().map(|actor| actor.path).collect();

    let mut replies = Vec::new();
    for _ in 0..ROUNDS {
        let mailbox = mailboxes[rng.random_range(0..mailboxes.len())].clone();
        replies.push(tokio::task::spawn_local(ask_at_random(mailbox, rng.random_range(0..100))));
        if rng.random_bool(0.02) {
            inject_fault(&bus, &paths[rng.random_range(0..paths.len())], rng.random_range(0..5));
        }
        if rng.random_bool(0.01) {
            let starts = if rng.random_bool(0.5) { &env.fail_starts } else { &env.hang_starts };
            starts.store(1, SeqCst);
        }
        tokio::time::sleep(ms(rng.random_range(0..5))).await;
    }
    let mut counts = [0; 3];
    for reply in replies {
        match reply.await.unwrap() {
            Ok(()) => counts[0] += 1,
            Err(AskError::Closed) => counts[1] += 1,
            Err(AskError::Timeout | AskError::Overloaded) => counts[2] += 1,
        }
    }
    env.fail_starts.store(0, SeqCst);
    env.hang_starts.store(0, SeqCst);
    for path in &paths {
        bus.resume(path, "chaos").unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;

    eprintln!("replied, closed, late or overloaded: {counts:?}");
    assert!(counts[0] > ROUNDS / 4, "{counts:?}");
    assert!(bus.snapshot().iter().all(|actor| actor.state == ActorState::Running), "{:#?}", bus.snapshot());
    assert!(mailboxes.iter().all(|mailbox| mailbox.depth() == 0), "{mailboxes:?}");
    assert_eq!(env.alive.load(SeqCst), 8);
    let report = root.shutdown(Duration::from_secs(10)).await;
    // The watchdog ignores an actor that hangs without messages; the shutdown kills it, but it holds no message.
    assert!(report.unfinished.iter().all(|actor| actor.queued_or_in_flight == 0), "{report:?}");
    assert_eq!(env.alive.load(SeqCst), 0);
});

async fn ask_at_random(mailbox: Mailbox<Worker>, kind: u32) -> Result<(), AskError> {
    let deadline = Duration::from_secs(10);
    match kind {
        0 => mailbox.ask(Behavior::Panic, deadline).await,
        1 => mailbox.ask(Behavior::Stop, deadline).await,
        2 => mailbox.ask(Behavior::Terminate, deadline).await,
        3 => mailbox.ask(Behavior::Hang, deadline).await,
        4 => mailbox.ask(Behavior::PanicInTimer, deadline).await,
        5 => mailbox.ask(Slow(20, true), deadline).await,
        6..40 => mailbox.ask(Slow(20, false), deadline).await,
        _ => mailbox.ask(Ping, deadline).await.map(drop),
    }
}

fn inject_fault(bus: &supervision::SupervisionBus, path: &str, kind: u32) {
    let result = match kind {
        0 => bus.panic(path, "chaos"),
        1 => bus.kill(path, "chaos"),
        2 => bus.stop(path, "chaos"),
        3 => bus.pause(path, "chaos"),
        _ => bus.resume(path, "chaos"),
    };
    result.unwrap();
}
