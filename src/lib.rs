//! posthaste: an order service that never loses an event, and the supervised actor system that makes it so.
//!
//! [`start`] is the one door, shared by the program and by tests: it opens the store, starts the tree, serves HTTP and answers with a
//! [`Service`] that stops all of it in order.
pub mod config;
mod wiring;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use actors::ActorSystem;
use app::vitals::Vitals;
pub use config::{Config, Environment, Mistakes};
pub use wiring::{
    Beside, Checked, Migration, Schema, StartError, Throwaway, beside, checkup, fill, migrate, migrations,
    provide_topics, server_environment, server_settings, statements_alone,
};

/// A running service.
pub struct Service {
    addresses: Vec<SocketAddr>,
    cast: ActorSystem,
    http: api::Service,
    held: wiring::Held,
    vitals: Vitals,
    deadline: Duration,
}

/// How a stop went.
#[derive(Debug)]
pub struct Report {
    /// How long it took.
    pub elapsed: Duration,
    /// Actors that were killed with work in hand, as (path, messages).
    pub left: Vec<(String, usize)>,
    /// Partitions that could not be handed over.
    pub partitions_left: usize,
}

/// Starts the service on this thread, which must run an actix `System`.
///
/// # Errors
/// The start cannot succeed; nothing runs then.
pub async fn start(config: Config) -> Result<Service, StartError> {
    let wired = wiring::wire(&config).await?;
    let cast = ActorSystem::start(wired.world, wired.actors, supervision::Options::default()).await;
    let parts = wired.http.with(cast.dispatch());
    let http = api::serve_on(&api::State::new(parts), wired.listeners).map_err(StartError::Listen)?;
    let addresses: Vec<SocketAddr> = http.bound().iter().map(|bound| bound.address).collect();
    wired.held.announce(&addresses).await;
    Ok(Service { addresses, cast, http, held: wired.held, vitals: wired.vitals, deadline: config.shutdown_deadline })
}

impl Service {
    /// Where clients come in.
    pub fn addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Every address, admin's last where it has one of its own.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What the service knows about its health.
    pub fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    /// The actors: faults and events for tests.
    pub fn cast(&self) -> &ActorSystem {
        &self.cast
    }

    /// Resolves when the root of the tree has given up, or when another process has our name: stop, and exit 70. Says why.
    pub async fn gave_up(&self) -> String {
        tokio::select! {
            // Both only wait; neither loses anything when the other wins.
            reason = self.cast.gave_up() => format!("{reason:?}"),
            taken = self.held.lost() => taken,
        }
    }

    /// Stops in order: readiness red, no new requests, nothing new claimed, what is in flight finished and settled, leases given back,
    /// the store closed.
    pub async fn stop(self) -> Report {
        let begun = Instant::now();
        self.vitals.paint(|picture| picture.draining = true);
        tracing::info!(event = "stopping", "finishing what is in hand");
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
                "stopped; what was left is settled by the next start"
            }
        );
        report
    }
}
