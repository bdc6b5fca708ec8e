//! posthaste: an order service that never loses an event, on a supervised actor system.
//!
//! The program and the tests start it with [`start`], which opens the store, starts the supervision tree, serves HTTP, and returns a
//! [`Service`] that stops everything in order.
pub mod config;
mod wiring;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use actors::ActorSystem;
use app::health::HealthBoard;
pub use config::{Config, Environment, Mistakes};
pub use wiring::{
    Beside, Checked, Migration, OpenedStore, Schema, StartError, Throwaway, beside, checkup, migrate, migrations,
    provide_topics, server_environment, server_settings,
};

/// A running service. Stop it with [`Service::stop`]; dropping it does not drain it.
pub struct Service {
    addresses: Vec<SocketAddr>,
    cast: ActorSystem,
    http: api::Service,
    held: wiring::Held,
    vitals: HealthBoard,
    deadline: Duration,
}

/// The result of a stop: what it could not finish is settled by the next start.
#[derive(Debug)]
pub struct Report {
    /// Time from the call to the last lease given back.
    pub elapsed: Duration,
    /// Actors that were killed with unfinished messages, as (path, number of messages).
    pub left: Vec<(String, usize)>,
    /// Partitions whose lease could not be released.
    pub partitions_left: usize,
}

/// Starts the service on this thread, which must run an actix `System`.
///
/// # Errors
/// A dependency, the configuration or an address is unusable; nothing keeps running.
pub async fn start(config: Config) -> Result<Service, StartError> {
    let wired = wiring::wire(&config).await?;
    let cast = ActorSystem::start(wired.world, wired.actors, supervision::Options::default()).await;
    let parts = wired.http.with(cast.dispatch());
    let http = api::serve_on(&api::State::new(parts), wired.listeners).map_err(StartError::Listen)?;
    let addresses: Vec<SocketAddr> = http.bound().iter().map(|bound| bound.address).collect();
    wired.held.announce(&addresses).await;
    Ok(Service { addresses, cast, http, held: wired.held, vitals: wired.vitals, deadline: config.shutdown.deadline })
}

impl Service {
    /// The address of the public listener, with its real port.
    pub fn addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All listening addresses; the admin listener's is last, if it has its own.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The health of the service, updated by its actors.
    pub fn vitals(&self) -> &HealthBoard {
        &self.vitals
    }

    /// The actor system, for tests that inject faults and read its events.
    pub fn cast(&self) -> &ActorSystem {
        &self.cast
    }

    /// Resolves with the reason when the root supervisor has given up or another process holds this instance's lease. The caller stops the
    /// service and exits with 70.
    pub async fn gave_up(&self) -> String {
        tokio::select! {
            // Both only wait; dropping either loses nothing.
            reason = self.cast.gave_up() => format!("{reason:?}"),
            lost = self.held.lost() => lost,
        }
    }

    /// Stops in order: readiness red, no new requests, no new claims, batches in flight finished and settled, leases released, the store
    /// closed. Takes at most `shutdown.deadline`.
    pub async fn stop(self) -> Report {
        let begun = Instant::now();
        self.vitals.update(|picture| picture.draining = true);
        tracing::info!(event = "stopping", "stopping: finishing requests and batches in flight");
        self.http.stop(self.deadline / 2).await;
        let left_for_actors = self.deadline.saturating_sub(begun.elapsed());
        let stopped = self.cast.stop(left_for_actors).await;
        self.held.close().await;
        let left: Vec<(String, usize)> =
            stopped.drained.unfinished.into_iter().map(|actor| (actor.path, actor.queued_or_in_flight)).collect();
        let report = Report { elapsed: begun.elapsed(), left, partitions_left: stopped.partitions_left };
        let (elapsed_ms, partitions_left) = (report.elapsed.as_millis() as u64, report.partitions_left);
        tracing::info!(
            event = "stopped",
            elapsed_ms,
            actors_left = report.left.len(),
            partitions_left,
            "{}",
            if report.left.is_empty() && partitions_left == 0 {
                "stopped"
            } else {
                "stopped with unfinished work; the next start settles it"
            }
        );
        report
    }
}
