//! The processes of the service, and the injection of faults into them.
use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::Value;
use tokio::time::{sleep, sleep_until, timeout};

use super::faults::{FaultCounts, FaultKind, FaultPlan, PlannedFault};
use crate::error::Error;
use crate::load::client::{HttpConnection, HttpResponse};
use crate::program::ThrowawayData;
use crate::service::process::ServiceProcess;

/// Settings of the processes: faults are allowed, and leases are short, so that a frozen instance loses its partitions.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("POSTHASTE__FAULT_INJECTION__ENABLED", "true"),
    ("POSTHASTE__OUTBOX__LEASE", "5s"),
    ("POSTHASTE__PARTITIONS__HEARTBEAT", "1s"),
    ("POSTHASTE__PARTITIONS__DEAD_AFTER", "4s"),
];
/// Longest time for which a process is frozen: longer than the lease and the time after which the others take its partitions.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// Longest time for which a killed process stays down.
const DOWNTIME_MAX: Duration = Duration::from_secs(2);
/// Longest time for which an actor is paused.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Longest wait for an answer to the injection of a fault.
const INJECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The addresses of the instances; `None` for one that is down. The clients read them.
#[derive(Clone, Default)]
pub(super) struct Addresses(Rc<RefCell<Vec<Option<SocketAddr>>>>);

impl Addresses {
    /// The address that the client's next attempt uses.
    pub(super) fn get(&self, attempt: usize) -> Option<SocketAddr> {
        let addresses = self.0.borrow();
        addresses.get(attempt % addresses.len().max(1)).copied().flatten()
    }

    fn set(&self, instance: usize, address: Option<SocketAddr>) {
        let mut addresses = self.0.borrow_mut();
        if addresses.len() <= instance {
            addresses.resize(instance + 1, None);
        }
        addresses[instance] = address;
    }
}

/// All instances; dropping them kills the processes.
pub(super) struct Instances<'a, D> {
    all: Vec<ChaosInstance<'a, D>>,
}

impl<'a, D: ThrowawayData> Instances<'a, D> {
    /// Starts them one after the other.
    pub(super) async fn start(data: &'a D, count: usize, addresses: Addresses, topic: String) -> Result<Self, Error> {
        let instance = |number| ChaosInstance {
            number,
            data,
            running: None,
            addresses: addresses.clone(),
            topic: topic.clone(),
            slowest_start: Duration::ZERO,
            unexpected_exits: Vec::new(),
        };
        let mut instances = Self { all: (0..count).map(instance).collect() };
        instances.restart_exited().await?;
        Ok(instances)
    }

    /// Starts each instance that does not run.
    pub(super) async fn restart_exited(&mut self) -> Result<(), Error> {
        for instance in &mut self.all {
            instance.restart_if_exited().await?;
        }
        Ok(())
    }

    /// Injects the faults of each instance until `end`, and waits until all are over. Those of one instance follow each other, those of several
    /// overlap.
    pub(super) async fn inject(&mut self, seed: u64, interval: Duration, end: Instant) -> Result<FaultCounts, Error> {
        let plans = FaultPlan::of_instances(seed, interval, self.all.len());
        let injected = self.all.iter_mut().zip(plans).map(|(instance, plan)| instance.inject_all(plan, end));
        let mut counts = FaultCounts::default();
        try_join_all(injected).await?.iter().for_each(|injected| counts.add_all(injected));
        Ok(counts)
    }

    /// Longest time from the start of a process until it listened.
    pub(super) fn slowest_start(&self) -> Duration {
        self.all.iter().map(|instance| instance.slowest_start).max().unwrap_or_default()
    }

    /// Stops all instances gracefully; returns the exits that no fault explains.
    pub(super) async fn stop(self) -> Result<Vec<String>, Error> {
        let mut unexpected_exits = Vec::new();
        for mut instance in self.all {
            instance.record_exit()?;
            if instance.running.is_some() {
                instance.stop().await?;
            }
            unexpected_exits.append(&mut instance.unexpected_exits);
        }
        Ok(unexpected_exits)
    }
}

/// One process of the service and its successors.
struct ChaosInstance<'a, D> {
    number: usize,
    data: &'a D,
    running: Option<ServiceProcess<'a, D>>,
    addresses: Addresses,
    /// Full name of the topic of the events of other services.
    topic: String,
    slowest_start: Duration,
    /// Descriptions of the exits that no fault explains.
    unexpected_exits: Vec<String>,
}

impl<D: ThrowawayData> ChaosInstance<'_, D> {
    async fn restart_if_exited(&mut self) -> Result<(), Error> {
        self.record_exit()?;
        if self.running.is_none() {
            self.start().await?;
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), Error> {
        let (name, begin) = (format!("chaos-{}", self.number), Instant::now());
        let named = [("POSTHASTE__INSTANCE__ID", name.as_str()), ("POSTHASTE__BROKER__TOPICS", self.topic.as_str())];
        let environment: Vec<(&str, &str)> = ENVIRONMENT.into_iter().chain(named).collect();
        let process = ServiceProcess::start(self.data, &environment).await?;
        self.slowest_start = self.slowest_start.max(begin.elapsed());
        self.addresses.set(self.number, Some(process.address));
        self.running = Some(process);
        Ok(())
    }

    /// Records the exit of a process that ended by itself.
    fn record_exit(&mut self) -> Result<(), Error> {
        let Some(process) = &mut self.running else { return Ok(()) };
        if let Some(status) = process.try_wait()? {
            self.unexpected_exits.push(format!("instance {} ended with {status}", self.number));
            self.running = None;
            self.addresses.set(self.number, None);
        }
        Ok(())
    }

    /// Injects one fault after the other until `end`.
    async fn inject_all(&mut self, mut plan: FaultPlan, end: Instant) -> Result<FaultCounts, Error> {
        let mut counts = FaultCounts::default();
        while let Some(fault) = plan.next(end) {
            sleep_until(fault.at.into()).await;
            counts.add(fault.kind, self.inject(&fault).await?);
        }
        Ok(counts)
    }

    /// Injects a fault and waits until it is over; `false` where its target did not run.
    async fn inject(&mut self, fault: &PlannedFault) -> Result<bool, Error> {
        self.restart_if_exited().await?;
        let Some(process) = &self.running else { return Ok(false) };
        match fault.kind {
            FaultKind::Panic | FaultKind::Stop | FaultKind::Pause => {
                Ok(self.inject_into_actor(fault).await.unwrap_or(false))
            }
            FaultKind::Freeze => {
                process.signal("STOP").await?;
                sleep(FREEZE_MAX.mul_f64(fault.duration_fraction)).await;
                process.signal("CONT").await?;
                Ok(true)
            }
            FaultKind::Kill => {
                self.end("KILL").await?;
                sleep(DOWNTIME_MAX.mul_f64(fault.duration_fraction)).await;
                self.start().await?;
                Ok(true)
            }
            FaultKind::Restart => {
                self.stop().await?;
                self.start().await?;
                Ok(true)
            }
        }
    }

    /// Sends a signal that ends the process, and waits for its exit.
    async fn end(&mut self, signal: &str) -> Result<ExitStatus, Error> {
        let process = self.running.take().ok_or_else(|| Error::new("the instance does not run"))?;
        let status = process.signal_and_wait(signal).await;
        self.addresses.set(self.number, None);
        status
    }

    /// Stops the process gracefully, and records an exit that is not a success.
    async fn stop(&mut self) -> Result<(), Error> {
        let status = self.end("TERM").await?;
        if !status.success() {
            self.unexpected_exits.push(format!("instance {} ended with {status} after SIGTERM", self.number));
        }
        Ok(())
    }

    async fn inject_into_actor(&self, fault: &PlannedFault) -> Result<bool, Error> {
        let listed = self.request("GET", "/admin/actors").await?;
        let actors: Value = serde_json::from_slice(&listed.body).map_err(Error::new)?;
        let path = |actor: &Value| actor["path"].as_str().map(str::to_owned);
        let mut paths: Vec<String> = actors["actors"].as_array().into_iter().flatten().filter_map(path).collect();
        paths.sort_unstable();
        let Some(path) = fault.choose(&paths) else { return Ok(false) };
        let action = |action: &str| format!("/admin/actors{path}/{action}");
        let injected = self.request("POST", &action(fault.kind.name())).await?;
        if fault.kind == FaultKind::Pause && injected.status == 202 {
            sleep(PAUSE_MAX.mul_f64(fault.duration_fraction)).await;
            self.request("POST", &action("resume")).await?;
        }
        Ok(injected.status == 202)
    }

    async fn request(&self, method: &str, path: &str) -> Result<HttpResponse, Error> {
        let address = self.addresses.get(self.number).ok_or_else(|| Error::new("the instance is down"))?;
        let token = self.data.token("chaos", "ADMIN")?;
        let send = async { HttpConnection::connect(address).await?.send(method, path, &token, None).await };
        timeout(INJECTION_TIMEOUT, send).await.map_err(|_| Error::new("no answer"))?
    }
}
