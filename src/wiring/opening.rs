//! Opening the store: waits with growing pauses for one that is not there yet, and answers probes meanwhile.
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Early, Listeners, Waiting};
use domain::Timestamp;
use memory::SystemClock;
use ports::clock::Clock;
use telemetry::Metrics;

use super::StartError;
use super::store::{NotOpen, Opened, Opening, Patience};
use crate::config::Config;

/// How long a name or folder that is held may stay so: a process that was just killed frees it only when the last of it is gone.
const HELD_FOR: Duration = Duration::from_secs(2);
/// First and longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Where clients come in, and whether the log has said so: each listener is told once.
pub(super) struct Door {
    pub listeners: Option<Listeners>,
    pub told: bool,
}

impl Door {
    /// Bound listeners; the log has said where.
    pub(super) fn listening(mut self, config: &Config) -> Result<Listeners, StartError> {
        self.open(config)?;
        self.listeners.take().ok_or_else(|| StartError::Listen(std::io::ErrorKind::NotConnected.into()))
    }

    fn open(&mut self, config: &Config) -> Result<&Listeners, StartError> {
        let bound = match self.listeners.take() {
            Some(bound) => bound,
            None => listen(config)?,
        };
        if !self.told {
            for address in bound.addresses().map_err(StartError::Listen)? {
                tracing::info!(event = "listening", address = %address, "listening");
            }
            self.told = true;
        }
        Ok(self.listeners.insert(bound))
    }
}

/// Opens the configured store, waiting for one that is not there yet; probes are answered meanwhile.
pub(super) async fn open(opening: &Opening<'_>, mut door: Door) -> Result<(Opened, Door), StartError> {
    let config = opening.config;
    let mut waits = Waits { begun: Instant::now(), held: None };
    let (mut pause, pause_max) = PAUSES;
    let mut waiting: Option<Waiting> = None;
    loop {
        let NotOpen { error, patience } = match opening.open().await {
            Ok(opened) => {
                if let Some(waiting) = waiting {
                    waiting.stop().await;
                }
                return Ok((opened, door));
            }
            Err(not_open) => not_open,
        };
        let left = waits.left(patience, config.startup.deadline, Instant::now());
        if left.is_zero() {
            return Err(error);
        }
        // A folder that another process holds may have its port too, and is no store that is not there yet.
        if waiting.is_none() && patience == Patience::Away {
            tracing::warn!(event = "store_not_there", error = %error, "the store is not there yet; waiting for it");
            let early = early(config, opening.metrics);
            waiting = Some(api::wait_on(door.open(config)?, &early).map_err(StartError::Listen)?);
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(pause_max);
    }
}

/// Since when it is waited, and for what.
struct Waits {
    begun: Instant,
    /// Since when the name is held, without a break.
    held: Option<Instant>,
}

impl Waits {
    /// How long it may go on. A name that is found held when a store comes back is often that of our own last try, which the store has
    /// not missed yet: its time counts from then, not from the start.
    fn left(&mut self, patience: Patience, deadline: Duration, now: Instant) -> Duration {
        let (limit, since) = match patience {
            Patience::Held => (HELD_FOR.min(deadline), *self.held.get_or_insert(now)),
            Patience::Away => (deadline, self.begun),
            Patience::None => (Duration::ZERO, self.begun),
        };
        if patience != Patience::Held {
            self.held = None;
        }
        limit.saturating_sub(now.duration_since(since))
    }
}

fn early(config: &Config, metrics: &Arc<Metrics>) -> Early {
    let now = || -> Timestamp { SystemClock::new().now() };
    Early { region: config.region.id.clone(), metrics: Arc::clone(metrics), now }
}

pub(super) fn listen(config: &Config) -> Result<Listeners, StartError> {
    let admin = config.http.admin_listen.map(|address| address.to_string());
    Listeners::bind(&config.http.listen.to_string(), admin.as_deref()).map_err(StartError::Listen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_held_after_an_outage_has_its_own_time() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let deadline = Duration::from_secs(60);
        let mut waits = Waits { begun, held: None };

        assert_eq!(waits.left(Patience::Away, deadline, at(20)), Duration::from_secs(40));
        assert_eq!(waits.left(Patience::Held, deadline, at(20)), HELD_FOR);
        assert_eq!(waits.left(Patience::Held, deadline, at(21)), HELD_FOR - Duration::from_secs(1));
        assert_eq!(waits.left(Patience::Away, deadline, at(22)), Duration::from_secs(38));
        assert_eq!(waits.left(Patience::Held, deadline, at(30)), HELD_FOR, "it was gone in between");
        assert_eq!(waits.left(Patience::Held, deadline, at(32)), Duration::ZERO);
        assert_eq!(waits.left(Patience::Away, deadline, at(60)), Duration::ZERO);
        assert_eq!(waits.left(Patience::None, deadline, at(1)), Duration::ZERO);
    }
}
