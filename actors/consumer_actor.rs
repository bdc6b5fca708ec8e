//! ConsumerActor: reads its share of the topics, hands each message to the intake, remembers it, acknowledges it. Loops until it stops.
mod step;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use ports::Error;
use ports::source::{GroupMember, Lag};
use supervision::MailboxMessage;
use tokio::time::Instant;

pub use step::Intake;

/// How long one wait for messages lasts; a stop is heard in between.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause after a failure of the store or the broker: nothing is acknowledged meanwhile, so nothing is lost.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often the lag is measured.
const LAG_EVERY: Duration = Duration::from_secs(1);

/// How far this consumer is behind.
#[derive(Message)]
#[rtype(result = "Vec<Lag>")]
pub struct Behind;

/// The actor.
pub struct ConsumerActor {
    intake: Arc<Intake>,
    member: u32,
    source: Option<Arc<dyn GroupMember>>,
    lag: Vec<Lag>,
    measured_at: Instant,
    failing: bool,
    pause: Duration,
    draining: bool,
    busy: bool,
}

impl ConsumerActor {
    /// Member number `member` of the group; joins when it starts.
    pub fn new(intake: Arc<Intake>, member: u32) -> Self {
        Self {
            intake,
            member,
            source: None,
            lag: Vec::new(),
            measured_at: Instant::now(),
            failing: false,
            pause: PAUSE_MIN,
            draining: false,
            busy: false,
        }
    }

    fn turn(&mut self, ctx: &mut Context<Self>) {
        if self.draining {
            return ctx.stop();
        }
        self.busy = true;
        let (intake, source, member) = (Arc::clone(&self.intake), self.source.clone(), self.member);
        let work = Box::pin(async move { intake.turn(source, member, PATIENCE).await });
        ctx.spawn(work.into_actor(self).map(|end, this, ctx| this.turned(end, ctx)));
    }

    fn turned(&mut self, end: Result<Arc<dyn GroupMember>, Error>, ctx: &mut Context<Self>) {
        self.busy = false;
        match end {
            Ok(source) => {
                self.source = Some(source);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(event = "consumer_recovered", member = self.member, "the consumer goes on");
                }
                self.pause = PAUSE_MIN;
                self.turn(ctx);
            }
            Err(error) => {
                // A new membership starts after the last acknowledgement: what was in hand comes again, and duplicates are known.
                self.source = None;
                self.intake.metrics.kafka_consumer_errors.inc();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(event = "consumer_failing", member = self.member, error = %error, "the consumer waits and tries again");
                }
                ctx.run_later(self.pause, Self::turn);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn measure(&mut self, ctx: &mut Context<Self>) {
        if let Some(source) = self.source.clone() {
            let work = async move { source.lag().await };
            ctx.spawn(work.into_actor(self).map(|lag, this, _| {
                if let Ok(lag) = lag {
                    this.intake.show_lag(&lag);
                    this.lag = lag;
                    this.measured_at = Instant::now();
                }
            }));
        }
        ctx.run_later(LAG_EVERY, Self::measure);
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
        self.turn(ctx);
        self.measure(ctx);
    }
}

supervision::supervised!(ConsumerActor, ConsumerActor::drain);

impl Handler<MailboxMessage<Behind>> for ConsumerActor {
    type Result = MessageResult<MailboxMessage<Behind>>;

    fn handle(&mut self, message: MailboxMessage<Behind>, ctx: &mut Self::Context) -> Self::Result {
        let (Behind, _permit) = message.begin(ctx);
        // What waited when it was measured has grown older since: a consumer that fails cannot measure, and only falls behind.
        let since = self.measured_at.elapsed();
        let grown = |lag: &Lag| Lag { age: if lag.messages == 0 { lag.age } else { lag.age + since }, ..lag.clone() };
        MessageResult(self.lag.iter().map(grown).collect())
    }
}
