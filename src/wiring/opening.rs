//! Opening the store: waits with growing pauses for one that is not there yet, and answers probes meanwhile.
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Early, Listeners, Waiting};
use domain::Timestamp;
use embedded::{Embedded, OpenError, SystemClock};
use ports::clock::Clock;
use ports::partitions::InstanceId;
use telemetry::Metrics;

use super::{StartError, store_options};
use crate::config::{BrokerKind, Config, StoreKind};

/// How long a folder that is held may stay so: a process that was just killed frees it only when the last of it is gone.
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

pub(super) async fn open(
    config: &Config,
    instance: &InstanceId,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
    mut door: Door,
) -> Result<(Embedded, Door), StartError> {
    built_for(config)?;
    let begun = Instant::now();
    let (mut pause, pause_max) = PAUSES;
    let mut waiting: Option<Waiting> = None;
    loop {
        let error = match Embedded::open(store_options(config, instance, clock, metrics)) {
            Ok(store) => {
                create_topics(config, &store).await;
                if let Some(waiting) = waiting {
                    waiting.stop().await;
                }
                return Ok((store, door));
            }
            Err(error) => error,
        };
        let limit = match error {
            OpenError::Held { .. } => HELD_FOR.min(config.startup_deadline),
            _ if error.may_pass() => config.startup_deadline,
            _ => Duration::ZERO,
        };
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(StartError::Store(error.to_string()));
        }
        // A folder that another process holds may have its port too, and is no store that is not there yet.
        if waiting.is_none() && error.may_pass() {
            tracing::warn!(event = "store_not_there", error = %error, "the store is not there yet; waiting for it");
            waiting = Some(api::wait_on(door.open(config)?, &early(config, metrics)).map_err(StartError::Listen)?);
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(pause_max);
    }
}

/// Topics that are missing, so that whoever looks finds them all, also those that nothing was written to yet.
async fn create_topics(config: &Config, store: &Embedded) {
    if config.broker_kind != BrokerKind::Embedded || !config.broker_create_topics {
        return;
    }
    let names = app::intake::all_topics(&config.topic());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Err(error) = store.create_topics(&names).await {
        tracing::warn!(event = "topics_not_created", error = %error, "topics are made when they are first used");
    }
}

fn early(config: &Config, metrics: &Arc<Metrics>) -> Early {
    let now = || -> Timestamp { SystemClock::new().now() };
    Early { region: config.region_id.clone(), metrics: Arc::clone(metrics), now }
}

fn built_for(config: &Config) -> Result<(), StartError> {
    match config.store_kind {
        StoreKind::Embedded => {}
        StoreKind::Postgres | StoreKind::Redis => {
            return Err(StartError::Config(
                "store.kind: this binary was built without that store; use store.kind = \"embedded\"".into(),
            ));
        }
    }
    if config.broker_kind == BrokerKind::Kafka || config.cache_redis {
        return Err(StartError::Config("this binary was built without Kafka and Redis".into()));
    }
    Ok(())
}

pub(super) fn listen(config: &Config) -> Result<Listeners, StartError> {
    let admin = config.http_admin_listen.map(|address| address.to_string());
    Listeners::bind(&config.http_listen.to_string(), admin.as_deref()).map_err(StartError::Listen)
}
