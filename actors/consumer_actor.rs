//! ConsumerActor: a member of the consumer group. Polls messages, runs them through the pipeline, acknowledges them; loops until it stops.
mod append_forwards;
pub mod clock_skews;
pub mod consumer_poll;
pub mod decisions;
pub mod failure_state;
pub mod forwarding;
pub mod group_consumer;
pub mod known_lag;
pub mod lag_series;
pub mod message_decider;
pub mod message_log;
pub mod message_span;
pub mod order_pipeline;
pub mod poll_processor;
pub mod topic_pipeline;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use ports::broker::consumer_groups::{GroupMember, Lag};
use supervision::MailboxMessage;
use tokio::time::Instant;

use consumer_poll::{ConsumerPoll, FailedPoll, PollProgress};
use failure_state::FailureState;
use known_lag::KnownLag;
use lag_series::LagSeries;

/// Longest wait of one poll; a stop request takes effect between two polls.
const POLL_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two measurements of the lag.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last measured lag and its series stay after a membership has ended. A new member receives its partitions within this time, or the
/// group has given them to other members.
const SERIES_KEPT: Duration = Duration::from_secs(30);

/// Asks for the lag of this consumer's partitions.
#[derive(Message)]
#[rtype(result = "Vec<Lag>")]
pub struct MeasuredLag;

/// One member of the group.
pub struct ConsumerActor {
    poller: Arc<dyn ConsumerPoll>,
    lag_series: Option<Arc<LagSeries>>,
    number: u32,
    member: Option<Arc<dyn GroupMember>>,
    /// Whether `member` has had partitions. The group assigns them some time after the join.
    has_partitions: bool,
    lag: KnownLag,
    failures: FailureState,
    draining: bool,
    polling: bool,
}

impl ConsumerActor {
    /// Member number `number` of this instance; it joins the group with its first poll. `lag_series` publishes its lag as a metric.
    pub fn new(poller: Arc<dyn ConsumerPoll>, lag_series: Option<Arc<LagSeries>>, number: u32) -> Self {
        Self {
            poller,
            lag_series,
            number,
            member: None,
            has_partitions: false,
            lag: KnownLag::new(Instant::now()),
            failures: FailureState::working(),
            draining: false,
            polling: false,
        }
    }

    fn poll(&mut self, ctx: &mut Context<Self>) {
        if self.draining {
            return ctx.stop();
        }
        if self.poller.is_stopping() {
            // The request to drain follows.
            return;
        }
        self.polling = true;
        let (poller, member, number) = (Arc::clone(&self.poller), self.member.clone(), self.number);
        let poll = Box::pin(async move { poller.poll_once(member, number, POLL_TIMEOUT).await });
        ctx.spawn(poll.into_actor(self).map(|result, this, ctx| this.end_poll(result, ctx)));
    }

    fn end_poll(&mut self, result: Result<(Arc<dyn GroupMember>, PollProgress), FailedPoll>, ctx: &mut Context<Self>) {
        self.polling = false;
        match result {
            Ok((member, progress)) => {
                self.member = Some(member);
                if self.failures.record_success(progress, self.has_partitions, Instant::now()) {
                    tracing::info!(
                        event = "consumer_recovered",
                        member = self.number,
                        group = self.poller.group(),
                        "consumer {} recovered",
                        self.number
                    );
                }
                self.poll(ctx);
            }
            Err(FailedPoll { error, has_messages }) => {
                // A new membership starts after the last acknowledgement: the broker delivers unacknowledged messages again, and the inbox
                // recognises duplicates.
                (self.member, self.has_partitions) = (None, false);
                self.poller.count_failure();
                if self.failures.is_new_cause(&error) {
                    tracing::warn!(event = "consumer_failing", member = self.number, group = self.poller.group(), error = %error, "consumer {} failed and tries again: {error}", self.number);
                }
                let now = Instant::now();
                if has_messages {
                    self.lag.confirm(now);
                } else if self.poller.reassigns_partitions() && self.lag.age(now) > SERIES_KEPT {
                    // Other members have its partitions, and measure their lag.
                    self.lag.clear();
                }
                let pause = self.failures.record_failure(now);
                if self.draining {
                    return ctx.stop();
                }
                ctx.run_later(pause, Self::poll);
            }
        }
    }

    fn measure_lag(&mut self, ctx: &mut Context<Self>) {
        if let Some(member) = self.member.clone() {
            let measurement = async move {
                let lag = member.lag().await;
                (member, lag)
            };
            ctx.spawn(measurement.into_actor(self).map(|(member, lag), this, _| {
                // The member may have been replaced during the measurement: its lag shows nothing about the new one.
                let is_present = this.member.as_ref().is_some_and(|present| Arc::ptr_eq(present, &member));
                if let (Ok(lag), true) = (lag, is_present) {
                    this.record_lag(lag);
                }
            }));
        } else if let Some(series) = &self.lag_series
            && self.lag.age(Instant::now()) > SERIES_KEPT
        {
            series.withdraw(self.number);
        }
        ctx.run_later(LAG_INTERVAL, Self::measure_lag);
    }

    fn record_lag(&mut self, lag: Vec<Lag>) {
        let now = Instant::now();
        self.has_partitions |= !lag.is_empty();
        if !self.has_partitions && self.lag.age(now) <= SERIES_KEPT {
            return;
        }
        if self.failures.is_failing() {
            self.lag.replace_while_failing(lag, SERIES_KEPT, now);
        } else {
            self.lag.replace(lag, now);
        }
        if let Some(series) = &self.lag_series {
            series.publish(self.number, &self.lag.at(now));
        }
    }

    fn drain(&mut self, ctx: &mut Context<Self>) {
        self.draining = true;
        if !self.polling {
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
        MessageResult(self.lag.at(Instant::now()))
    }
}
