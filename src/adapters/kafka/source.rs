//! `ConsumerGroups` and `GroupMember`: a member of a consumer group. The group shares the partitions out, so a member's number says nothing here.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::source::{ConsumerGroups, Delivery, GroupMember, Lag};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::commits::Commits;
use crate::member::{Call, Member, Place};
use crate::open::{Kafka, gone};
use crate::turns::Turns;
use crate::{client, error};

/// A member, as its callers have it. Dropping it leaves the group.
struct Joined {
    calls: Sender<Call>,
    /// Measured here, because only callers live in the runtime whose clock counts.
    pauses: Mutex<HashMap<Place, Instant>>,
}

#[async_trait]
impl ConsumerGroups for Kafka {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        _member: u32,
        _members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        self.inner.keeper.ready().await?;
        let doing = format!("joining group {group}");
        let config = client::consuming(&self.inner.options, group);
        let turns = Turns::new(Arc::clone(&self.inner.contact));
        let consumer = BaseConsumer::from_config_and_context(&config, turns);
        let mut consumer: BaseConsumer<Turns> = consumer.map_err(|error| error::of(&error, &doing))?;
        let (calls, called) = channel();
        let wake = calls.clone();
        // Nobody listens once the thread has ended, and then nobody needs to be woken.
        consumer.set_nonempty_callback(move || drop(wake.send(Call::Wake)));
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&names).map_err(|error| error::of(&error, &doing))?;
        let (consumer, thread) = (Arc::new(consumer), |error| no_thread(group, &error));
        let commits = Commits::start(Arc::clone(&consumer), calls.clone()).map_err(thread)?;
        let member = Member::new(consumer, commits, Arc::clone(&self.inner.options), topics);
        std::thread::Builder::new().name("kafka-member".into()).spawn(move || member.run(&called)).map_err(thread)?;
        Ok(Arc::new(Joined { calls, pauses: Mutex::default() }))
    }
}

fn no_thread(group: &str, error: &std::io::Error) -> Error {
    Error::Overloaded(format!("no thread for a member of {group}: {error}"))
}

impl Joined {
    async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Call) -> Result<T, Error> {
        let (answer, told) = oneshot::channel();
        self.calls.send(call(answer)).map_err(|_| gone())?;
        told.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Which partitions are held back now, and when the first of them is free again.
    fn held(&self) -> (Vec<Place>, Option<Instant>) {
        let now = Instant::now();
        let mut pauses = self.pauses.lock();
        pauses.retain(|_, until| *until > now);
        (pauses.keys().cloned().collect(), pauses.values().min().copied())
    }
}

#[async_trait]
impl GroupMember for Joined {
    async fn poll(&self, limit: u32, patience: Duration) -> Result<Vec<Delivery>, Error> {
        let deadline = Instant::now() + patience;
        loop {
            let (held, free) = self.held();
            let until = free.map_or(deadline, |free| free.min(deadline));
            let wait = until.saturating_duration_since(Instant::now());
            let limit = limit.max(1) as usize;
            let held = held.into_iter().collect();
            let deliveries = self.ask(|answer| Call::Poll { limit, wait, held, answer }).await?;
            if !deliveries.is_empty() || Instant::now() >= deadline {
                return Ok(deliveries);
            }
        }
    }

    async fn acknowledge(&self, upto: &[Position]) -> Result<(), Error> {
        if upto.is_empty() {
            return Ok(());
        }
        let upto = upto.to_vec();
        self.ask(|answer| Call::Acknowledge { upto, answer }).await
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.ask(|answer| Call::Rewind { answer }).await
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let until = Instant::now() + resume_after;
        let place = (Arc::clone(&from.topic), from.partition);
        let from = from.clone();
        self.ask(|answer| Call::TurnBack { from, answer }).await?;
        self.pauses.lock().insert(place, until);
        Ok(())
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        self.ask(|answer| Call::Lag { answer }).await
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // A thread that has ended has left already.
        drop(self.calls.send(Call::Leave));
    }
}
