//! Opening the store: waits with growing pauses for one that is not there yet, and answers probes meanwhile.
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Early, Listeners, Waiting};
use domain::Timestamp;
use embedded::SystemClock;
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
    let begun = Instant::now();
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
        let limit = match patience {
            Patience::Held => HELD_FOR.min(config.startup_deadline),
            Patience::Away => config.startup_deadline,
            Patience::None => Duration::ZERO,
        };
        let left = limit.saturating_sub(begun.elapsed());
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

fn early(config: &Config, metrics: &Arc<Metrics>) -> Early {
    let now = || -> Timestamp { SystemClock::new().now() };
    Early { region: config.region_id.clone(), metrics: Arc::clone(metrics), now }
}

pub(super) fn listen(config: &Config) -> Result<Listeners, StartError> {
    let admin = config.http_admin_listen.map(|address| address.to_string());
    Listeners::bind(&config.http_listen.to_string(), admin.as_deref()).map_err(StartError::Listen)
}
