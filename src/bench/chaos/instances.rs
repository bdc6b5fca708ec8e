//! The processes of the service, and the injection of faults into them.
use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::faults::{FaultKind, PlannedFault};
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
    data: &'a D,
    running: Vec<Option<ServiceProcess<'a, D>>>,
    addresses: Addresses,
    /// Full name of the topic of the events of other services.
    topic: String,
    slowest_start: Duration,
    /// Descriptions of the exits that no fault explains.
    unexpected_exits: Vec<String>,
}

impl<'a, D: ThrowawayData> Instances<'a, D> {
    /// Starts them one after the other.
    pub(super) async fn start(data: &'a D, count: usize, addresses: Addresses, topic: String) -> Result<Self, Error> {
        let running = (0..count).map(|_| None).collect();
        let (slowest_start, unexpected_exits) = (Duration::ZERO, Vec::new());
        let mut instances = Self { data, running, addresses, topic, slowest_start, unexpected_exits };
        instances.restart_exited().await?;
        Ok(instances)
    }

    /// Starts each instance that does not run.
    pub(super) async fn restart_exited(&mut self) -> Result<(), Error> {
        for instance in 0..self.running.len() {
            self.record_exit(instance)?;
            if self.running[instance].is_none() {
                self.start_one(instance).await?;
            }
        }
        Ok(())
    }

    async fn start_one(&mut self, instance: usize) -> Result<(), Error> {
        let (name, begin) = (format!("chaos-{instance}"), Instant::now());
        let named = [("POSTHASTE__INSTANCE__ID", name.as_str()), ("POSTHASTE__BROKER__TOPICS", self.topic.as_str())];
        let environment: Vec<(&str, &str)> = ENVIRONMENT.into_iter().chain(named).collect();
        let process = ServiceProcess::start(self.data, &environment).await?;
        self.slowest_start = self.slowest_start.max(begin.elapsed());
        self.addresses.set(instance, Some(process.address));
        self.running[instance] = Some(process);
        Ok(())
    }

    /// Records the exit of a process that ended by itself.
    fn record_exit(&mut self, instance: usize) -> Result<(), Error> {
        let Some(process) = &mut self.running[instance] else { return Ok(()) };
        if let Some(status) = process.try_wait()? {
            self.unexpected_exits.push(format!("instance {instance} ended with {status}"));
            self.running[instance] = None;
            self.addresses.set(instance, None);
        }
        Ok(())
    }

    /// Injects a fault and waits until it is over; `false` where its target did not run.
    pub(super) async fn inject(&mut self, fault: &PlannedFault) -> Result<bool, Error> {
        self.restart_exited().await?;
        let instance = fault.instance;
        let Some(process) = &self.running[instance] else { return Ok(false) };
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
                self.end_one(instance, "KILL").await?;
                sleep(DOWNTIME_MAX.mul_f64(fault.duration_fraction)).await;
                self.start_one(instance).await?;
                Ok(true)
            }
            FaultKind::Restart => {
                self.stop_one(instance).await?;
                self.start_one(instance).await?;
                Ok(true)
            }
        }
    }

    /// Sends a signal that ends the process of an instance, and waits for its exit.
    async fn end_one(&mut self, instance: usize, signal: &str) -> Result<ExitStatus, Error> {
        let process = self.running[instance].take().ok_or_else(|| Error::new("the instance does not run"))?;
        let status = process.signal_and_wait(signal).await;
        self.addresses.set(instance, None);
        status
    }

    /// Stops an instance gracefully, and records an exit that is not a success.
    async fn stop_one(&mut self, instance: usize) -> Result<(), Error> {
        let status = self.end_one(instance, "TERM").await?;
        if !status.success() {
            self.unexpected_exits.push(format!("instance {instance} ended with {status} after SIGTERM"));
        }
        Ok(())
    }

    async fn inject_into_actor(&self, fault: &PlannedFault) -> Result<bool, Error> {
        let listed = self.request(fault.instance, "GET", "/admin/actors").await?;
        let actors: Value = serde_json::from_slice(&listed.body).map_err(Error::new)?;
        let path = |actor: &Value| actor["path"].as_str().map(str::to_owned);
        let mut paths: Vec<String> = actors["actors"].as_array().into_iter().flatten().filter_map(path).collect();
        paths.sort_unstable();
        let Some(path) = fault.choose(&paths) else { return Ok(false) };
        let action = |action: &str| format!("/admin/actors{path}/{action}");
        let injected = self.request(fault.instance, "POST", &action(fault.kind.name())).await?;
        if fault.kind == FaultKind::Pause && injected.status == 202 {
            sleep(PAUSE_MAX.mul_f64(fault.duration_fraction)).await;
            self.request(fault.instance, "POST", &action("resume")).await?;
        }
        Ok(injected.status == 202)
    }

    async fn request(&self, instance: usize, method: &str, path: &str) -> Result<HttpResponse, Error> {
        let address = self.addresses.get(instance).ok_or_else(|| Error::new("the instance is down"))?;
        let token = self.data.token("chaos", "ADMIN")?;
        let send = async { HttpConnection::connect(address).await?.send(method, path, &token, None).await };
        timeout(INJECTION_TIMEOUT, send).await.map_err(|_| Error::new("no answer"))?
    }

    /// Longest time from the start of a process until it listened.
    pub(super) fn slowest_start(&self) -> Duration {
        self.slowest_start
    }

    /// Stops all instances gracefully; returns the exits that no fault explains.
    pub(super) async fn stop(mut self) -> Result<Vec<String>, Error> {
        for instance in 0..self.running.len() {
            self.record_exit(instance)?;
            if self.running[instance].is_some() {
                self.stop_one(instance).await?;
            }
        }
        Ok(self.unexpected_exits)
    }
}
