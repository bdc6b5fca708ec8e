//! Faults: the failures of instances, network and servers that a seed injects while the writers write.
use std::time::Duration;

use kit::clock::SeededRng;
use ports::clock::Rng;
use tokio::time::Instant;

use crate::cluster::instance::ClusterContext;
use crate::cluster::instances::SimulatedInstances;
use crate::cluster::network::Server;

/// Most crashes of processes and actors: a row that is in flight in three, and in two more during trials, is parked although it is healthy.
const DEATHS_MAX: u32 = 4;
/// Longest time between two faults, in milliseconds.
const PAUSE_MAX: u64 = 1_200;

/// The action that ends a fault.
#[derive(Clone, Copy)]
enum Repair {
    Start(usize),
    Thaw(usize),
    Connect(usize, Server),
    SpeedUp(usize, Server),
}

/// The faults of one run.
pub struct Faults {
    rng: SeededRng,
    cluster_context: ClusterContext,
    repairs: Vec<(Instant, Repair)>,
    deaths: u32,
    /// The number of fail-overs that are not injected yet.
    fail_overs: u32,
}

impl Faults {
    /// Faults drawn from this seed.
    pub fn new(seed: u64, cluster_context: ClusterContext, fail_overs: u32) -> Self {
        Self { rng: SeededRng::new(seed), cluster_context, repairs: Vec::new(), deaths: 0, fail_overs }
    }

    /// Injects faults for this much virtual time.
    pub async fn inject(&mut self, instances: &mut SimulatedInstances, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            instances.advance(Duration::from_millis(self.random_below(PAUSE_MAX))).await;
            self.repair(instances, Instant::now()).await;
            self.inject_random_fault(instances).await;
            instances.restart_escalated().await;
        }
    }

    /// Ends all faults: every instance runs, is connected and is not frozen.
    pub async fn end(&mut self, instances: &mut SimulatedInstances) {
        self.cluster_context.network.heal();
        self.cluster_context.postgres.set_crashes_soon(false);
        for number in 0..instances.count() {
            instances.set_frozen(number, false);
            instances.start(number).await;
        }
    }

    fn random_below(&self, limit: u64) -> u64 {
        self.rng.next_u64() % limit
    }

    fn schedule(&mut self, longest: u64, repair: Repair) {
        let after = Duration::from_millis(1 + self.random_below(longest));
        self.repairs.push((Instant::now() + after, repair));
    }

    async fn repair(&mut self, instances: &mut SimulatedInstances, now: Instant) {
        let (due, open) = std::mem::take(&mut self.repairs).into_iter().partition(|(at, _)| *at <= now);
        self.repairs = open;
        let due: Vec<(Instant, Repair)> = due;
        for (_, repair) in due {
            match repair {
                Repair::Start(number) => instances.start(number).await,
                Repair::Thaw(number) => instances.set_frozen(number, false),
                Repair::Connect(number, server) => self.cluster_context.network.set_cut(number, server, false),
                Repair::SpeedUp(number, server) => {
                    self.cluster_context.network.slow_down(number, server, Duration::ZERO)
                }
            }
        }
    }

    async fn inject_random_fault(&mut self, instances: &mut SimulatedInstances) {
        let number = self.random_below(instances.count() as u64) as usize;
        let server = if self.random_below(2) == 0 { Server::Postgres } else { Server::Kafka };
        match self.random_below(100) {
            0..15 if self.deaths < DEATHS_MAX => {
                self.deaths += 1;
                instances.kill(number);
                self.schedule(3_000, Repair::Start(number));
            }
            15..30 => {
                instances.set_frozen(number, true);
                // Sometimes longer than a lease.
                self.schedule(9_000, Repair::Thaw(number));
            }
            30..38 => {
                instances.stop(number).await;
                self.schedule(2_000, Repair::Start(number));
            }
            38..58 if self.deaths < DEATHS_MAX => self.crash_actor(instances, number),
            58..66 => self.isolate(instances, number).await,
            66..74 => {
                self.cluster_context.network.set_cut(number, server, true);
                self.schedule(4_000, Repair::Connect(number, server));
            }
            74..82 => {
                let by = Duration::from_millis(self.random_below(2_800));
                self.cluster_context.network.slow_down(number, server, by);
                self.schedule(5_000, Repair::SpeedUp(number, server));
            }
            82..85 => self.cluster_context.postgres.set_crashes_soon(true),
            85..89 => {
                // In half of the cases the server restarts, which also breaks its connections.
                if self.random_below(2) == 0 {
                    self.cluster_context.network.break_all(server);
                }
                self.cluster_context.network.stall(server, Duration::from_millis(self.random_below(4_000)));
            }
            89..100 if self.fail_overs > 0 => self.fail_over(instances).await,
            _ => {}
        }
    }

    /// The network of an instance becomes slow, and then it loses the store: another instance takes its partitions while it still publishes.
    async fn isolate(&mut self, instances: &mut SimulatedInstances, number: usize) {
        let by = Duration::from_millis(1_400 + self.random_below(1_400));
        self.cluster_context.network.slow_down(number, Server::Kafka, by);
        instances.advance(Duration::from_millis(self.random_below(800))).await;
        self.cluster_context.network.set_cut(number, Server::Postgres, true);
        self.schedule(5_000, Repair::SpeedUp(number, Server::Kafka));
        self.schedule(5_000, Repair::Connect(number, Server::Postgres));
    }

    fn crash_actor(&mut self, instances: &SimulatedInstances, number: usize) {
        let Some(process) = instances.process(number) else { return };
        let actors = process.bus().snapshot();
        let Some(row) = actors.get(self.random_below(actors.len().max(1) as u64) as usize) else { return };
        self.deaths += 1;
        // An actor that restarts at this moment is not affected.
        let _ = match self.random_below(3) {
            0 => process.bus().panic(&row.path, "simulation"),
            1 => process.bus().kill(&row.path, "simulation"),
            _ => process.bus().stop(&row.path, "simulation"),
        };
    }

    /// The primary fails, and the standby that replaces it lacks what was committed in the last moments.
    async fn fail_over(&mut self, instances: &mut SimulatedInstances) {
        self.fail_overs -= 1;
        let standby = self.cluster_context.postgres.standby();
        instances.advance(Duration::from_millis(self.random_below(1_500))).await;
        self.cluster_context.postgres.fail_over(standby);
    }
}
