//! What supervision costs: a message to a supervised actor against one to a plain actix actor, in the same run, and the time from a
//! panic to the next answer.
//!
//! Goal: at most 1.05 times the plain cost; a panic costs at most 5 ms beside the back-off, which is nil here.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "plain actix is what this compares with")]

use std::time::{Duration, Instant};

use actix::prelude::*;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use supervision::{Backoff, Bus, Inbox, Job, Root, Strategy, SupervisorSpec, actor};

const MESSAGES: u64 = 1_000;

struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(0);
    }
}

supervision::supervised!(Counter);

#[derive(Message)]
#[rtype(result = "u64")]
struct Add(u64);

impl Handler<Add> for Counter {
    type Result = u64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> u64 {
        self.0 += n;
        self.0
    }
}

impl Handler<Job<Add>> for Counter {
    type Result = u64;

    fn handle(&mut self, job: Job<Add>, ctx: &mut Self::Context) -> u64 {
        let (Add(n), _slot) = job.open(ctx);
        assert!(n > 0, "panic on request");
        self.0 += n;
        self.0
    }
}

/// One thread with a plain actor and a supervised one on it.
struct World {
    runtime: tokio::runtime::Runtime,
    local: tokio::task::LocalSet,
    plain: Addr<Counter>,
    supervised: Inbox<Counter>,
    _root: Root,
}

impl World {
    fn new() -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let (plain, supervised, root) = local.block_on(&runtime, async {
            let bus = Bus::default();
            let (supervised, spec) = actor(&bus, "/counter", 4_096, |_| Counter(0));
            let at_once = Backoff { min: Duration::ZERO, max: Duration::ZERO, ..Backoff::default() };
            let spec = SupervisorSpec::new("root", Strategy::OneForOne, 1_000_000, Duration::from_secs(1))
                .backoff(at_once)
                .child(spec);
            (Counter(0).start(), supervised, Root::start(spec, bus).await)
        });
        World { runtime, local, plain, supervised, _root: root }
    }

    /// Time for so many rounds of a thousand tells and one ask behind them.
    fn tells(&self, addr: &Addr<Counter>, rounds: u64) -> Duration {
        self.local.block_on(&self.runtime, async {
            let began = Instant::now();
            for _ in 0..rounds {
                for _ in 0..MESSAGES {
                    addr.do_send(Add(1));
                }
                addr.send(Add(1)).await.unwrap();
            }
            began.elapsed()
        })
    }

    fn asks(&self, addr: &Addr<Counter>, rounds: u64) -> Duration {
        self.local.block_on(&self.runtime, async {
            let began = Instant::now();
            for _ in 0..rounds * MESSAGES {
                addr.send(Add(1)).await.unwrap();
            }
            began.elapsed()
        })
    }

    fn inbox_tells(&self, rounds: u64) -> Duration {
        self.local.block_on(&self.runtime, async {
            let began = Instant::now();
            for _ in 0..rounds {
                for _ in 0..MESSAGES {
                    self.supervised.tell(Add(1)).await.unwrap();
                }
                self.supervised.ask(Add(1), Duration::from_secs(1)).await.unwrap();
            }
            began.elapsed()
        })
    }

    fn inbox_asks(&self, rounds: u64) -> Duration {
        self.local.block_on(&self.runtime, async {
            let began = Instant::now();
            for _ in 0..rounds * MESSAGES {
                self.supervised.ask(Add(1), Duration::from_secs(1)).await.unwrap();
            }
            began.elapsed()
        })
    }

    fn panics(&self, rounds: u64) -> Duration {
        self.local.block_on(&self.runtime, async {
            let began = Instant::now();
            for _ in 0..rounds {
                self.supervised.ask(Add(0), Duration::from_secs(1)).await.unwrap_err();
                self.supervised.ask(Add(1), Duration::from_secs(1)).await.unwrap();
            }
            began.elapsed()
        })
    }
}

fn message_cost(c: &mut Criterion) {
    let world = World::new();
    let mut group = c.benchmark_group("message");
    group.throughput(Throughput::Elements(MESSAGES));
    group.bench_function("do_send/plain", |b| b.iter_custom(|rounds| world.tells(&world.plain, rounds)));
    group
        .bench_function("do_send/supervised", |b| b.iter_custom(|rounds| world.tells(world.supervised.addr(), rounds)));
    group.bench_function("send/plain", |b| b.iter_custom(|rounds| world.asks(&world.plain, rounds)));
    group.bench_function("send/supervised", |b| b.iter_custom(|rounds| world.asks(world.supervised.addr(), rounds)));
    group.bench_function("inbox/tell", |b| b.iter_custom(|rounds| world.inbox_tells(rounds)));
    group.bench_function("inbox/ask", |b| b.iter_custom(|rounds| world.inbox_asks(rounds)));
    group.finish();
    // Machines that do other things as well drift by more than the goal between two groups: the ratio comes from rounds that
    // alternate, and from the best of each side.
    for (name, turn) in
        [("do_send", World::tells as fn(&World, &Addr<Counter>, u64) -> Duration), ("send", World::asks)]
    {
        let best = |addr: &Addr<Counter>, best: Duration| best.min(turn(&world, addr, 20));
        let (mut plain, mut supervised) = (Duration::MAX, Duration::MAX);
        for _ in 0..200 {
            plain = best(&world.plain, plain);
            supervised = best(world.supervised.addr(), supervised);
        }
        eprintln!("{name}: supervised/plain = {:.3}", supervised.as_secs_f64() / plain.as_secs_f64());
    }
}

fn restart_latency(c: &mut Criterion) {
    let world = World::new();
    c.bench_function("panic to the next answer", |b| b.iter_custom(|rounds| world.panics(rounds)));
}

criterion_group!(benches, message_cost, restart_latency);
criterion_main!(benches);
