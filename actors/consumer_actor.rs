//! ConsumerActor: a member of the consumer group. Polls messages, runs them through the pipeline, acknowledges them; loops until it stops.
mod append_forwards;
pub mod clock_skews;
pub mod consumer_loop;
pub mod decisions;
pub mod forwarding;
pub mod group_consumer;
pub mod lag_series;
pub mod message_decider;
pub mod message_log;
pub mod message_span;
pub mod pipeline;
pub mod poll_processor;
pub mod topic_pipeline;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use ports::Error;
use ports::broker::consumer_groups::{GroupMember, Lag};
use supervision::MailboxMessage;
use tokio::time::Instant;

use consumer_loop::ConsumerPoll;
use lag_series::LagSeries;

/// Longest wait of one poll; a stop request takes effect between two polls.
const POLL_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause after a failure of the store or the broker, doubled up to the maximum. Unacknowledged messages are delivered again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time between two measurements of the lag.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// How long the lag's series outlive the membership: longer than a reconnection, while a group gives the partitions to others within this time.
const SERIES_KEPT: Duration = Duration::from_secs(30);

/// Asks for the lag of this consumer's partitions.
#[derive(Message)]
#[rtype(result = "Vec<Lag>")]
pub struct MeasuredLag;

/// One member of the group.
pub struct ConsumerActor {
    work: Arc<dyn ConsumerPoll>,
    lag_series: Option<Arc<LagSeries>>,
    number: u32,
    member: Option<Arc<dyn GroupMember>>,
    lag: Vec<Lag>,
    measured_at: Instant,
    failing: bool,
    pause: Duration,
    draining: bool,
    busy: bool,
}

impl ConsumerActor {
    /// Member number `number` of this instance; it joins the group with its first poll. `lag_series` publishes its lag as a metric.
    pub fn new(work: Arc<dyn ConsumerPoll>, lag_series: Option<Arc<LagSeries>>, number: u32) -> Self {
        Self {
            work,
            lag_series,
            number,
            member: None,
            lag: Vec::new(),
            measured_at: Instant::now(),
            failing: false,
            pause: PAUSE_MIN,
            draining: false,
            busy: false,
        }
    }

    fn poll(&mut self, ctx: &mut Context<Self>) {
        if self.draining {
            return ctx.stop();
        }
        if self.work.is_stopping() {
            // The request to drain follows.
            return;
        }
        self.busy = true;
        let (work, member, number) = (Arc::clone(&self.work), self.member.clone(), self.number);
        let work = Box::pin(async move { work.poll_once(member, number, POLL_TIMEOUT).await });
        ctx.spawn(work.into_actor(self).map(|result, this, ctx| this.polled(result, ctx)));
    }

    fn polled(&mut self, result: Result<Arc<dyn GroupMember>, Error>, ctx: &mut Context<Self>) {
        self.busy = false;
        match result {
            Ok(member) => {
                self.member = Some(member);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(
                        event = "consumer_recovered",
                        member = self.number,
                        group = self.work.group(),
                        "consumer {} recovered",
                        self.number
                    );
                }
                self.pause = PAUSE_MIN;
                self.poll(ctx);
            }
            Err(error) => {
                // A new membership starts after the last acknowledgement: the broker delivers unacknowledged messages again, and the inbox
                // recognises duplicates.
                self.member = None;
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(event = "consumer_failing", member = self.number, group = self.work.group(), error = %error, "consumer {} failed and tries again: {error}", self.number);
                }
                if self.draining {
                    return ctx.stop();
                }
                ctx.run_later(self.pause, Self::poll);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn measure_lag(&mut self, ctx: &mut Context<Self>) {
        if let Some(member) = self.member.clone() {
            let work = async move { member.lag().await };
            ctx.spawn(work.into_actor(self).map(|lag, this, _| {
                if let Ok(lag) = lag {
                    if let Some(series) = &this.lag_series {
                        series.publish(this.number, &lag);
                    }
                    this.lag = lag;
                    this.measured_at = Instant::now();
                }
            }));
        } else if let Some(series) = &self.lag_series
            && self.measured_at.elapsed() > SERIES_KEPT
        {
            series.withdraw(self.number);
        }
        ctx.run_later(LAG_INTERVAL, Self::measure_lag);
    }

    fn drain(&mut self, ctx: &mut Context<Self>) {
        self.draining = true;
        if !self.busy {
            ctx.stop();
        }
    }
}

impl Actor for ConsumerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.poll(ctx);
        self.measure_lag(ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(series) = &self.lag_series {
            series.withdraw(self.number);
        }
    }
}

supervision::supervised!(ConsumerActor, ConsumerActor::drain);

impl Handler<MailboxMessage<MeasuredLag>> for ConsumerActor {
    type Result = MessageResult<MailboxMessage<MeasuredLag>>;

    fn handle(&mut self, message: MailboxMessage<MeasuredLag>, ctx: &mut Self::Context) -> Self::Result {
        let (MeasuredLag, _permit) = message.begin(ctx);
        // Waiting messages have aged since the measurement: a consumer that fails cannot measure, and its lag only grows.
        let since = self.measured_at.elapsed();
        let aged = |lag: &Lag| Lag { age: if lag.messages == 0 { lag.age } else { lag.age + since }, ..lag.clone() };
        MessageResult(self.lag.iter().map(aged).collect())
    }
}
