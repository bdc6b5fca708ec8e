//! PendingPromoter: at a fixed rate, moves orders from PENDING to PROCESSING, page by page, through the OrderAggregate.
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::commands::CommandContext;
use app::commands::promote_pending::{PendingPages, PromotionRun, PromotionStep, promotion};
use domain::OrderId;
use supervision::MailboxMessage;
use tokio::time::Instant;
use tracing::Instrument;

use crate::system::options::Options;
use crate::system::shards::Shards;

/// Promote now. Returns the number of promoted orders; 0 while another promotion runs, which takes them.
#[derive(Message)]
#[rtype(result = "u64")]
pub struct Promote;

/// Promotes at an interval and on request.
pub struct PendingPromoter {
    context: Arc<CommandContext>,
    shards: Shards,
    options: Arc<Options>,
    running: bool,
    /// The order at which the last run stopped.
    stopped_at: Option<OrderId>,
}

/// How a run ended.
struct PromotionEnd {
    promoted: u64,
    stopped_at: Option<OrderId>,
}

impl PendingPromoter {
    /// A promoter that has not run yet.
    pub fn new(context: Arc<CommandContext>, shards: Shards, options: Arc<Options>) -> Self {
        Self { context, shards, options, running: false, stopped_at: None }
    }

    /// Schedules the next run after the one that started at this time: an interval after that start, or at once if the run lasted longer.
    fn schedule_after(&mut self, started_at: Instant, ctx: &mut Context<Self>) {
        let interval = self.options.promotion_interval;
        if !interval.is_zero() {
            ctx.run_later(interval.saturating_sub(started_at.elapsed()), Self::tick);
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let started_at = Instant::now();
        if std::mem::replace(&mut self.running, true) {
            return self.schedule_after(started_at, ctx);
        }
        ctx.spawn(self.promote().into_actor(self).map(move |end, this, ctx| {
            this.record_end(&end);
            this.schedule_after(started_at, ctx);
        }));
    }

    fn promote(&self) -> impl Future<Output = PromotionEnd> + use<> {
        let (context, shards, limit) =
            (Arc::clone(&self.context), self.shards.clone(), self.options.promotion_batch.max(1));
        let stopped_at = self.stopped_at;
        async move { promote_all(&context, &shards, limit, stopped_at).await }
    }

    fn record_end(&mut self, end: &PromotionEnd) {
        (self.running, self.stopped_at) = (false, end.stopped_at);
    }
}

/// Promotes page after page until no pending order is left. Skips an order that refuses the promotion, because it changed meanwhile or
/// another instance promoted it, and an order that alone fails.
async fn promote_all(
    context: &CommandContext,
    shards: &Shards,
    limit: u32,
    stopped_at: Option<OrderId>,
) -> PromotionEnd {
    let (mut run, mut pages) = (PromotionRun::default(), PendingPages::after(stopped_at, context.clock.now()));
    loop {
        let ids = match pages.next(context, limit).await {
            Ok(Some(ids)) => ids,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(event = "promotion_stopped", promoted = run.promoted, error = %error, "pending orders could not be read; the next run continues: {error}");
                return PromotionEnd { promoted: run.promoted, stopped_at };
            }
        };
        for id in ids {
            let span = tracing::error_span!("promotion", order_id = %id);
            let step = run.record(shards.change(promotion(id), Duration::MAX).instrument(span).await);
            if log(&step, id, run.promoted).is_break() {
                let stopped_at = if matches!(step, PromotionStep::Stopped(_)) { Some(id) } else { stopped_at };
                return PromotionEnd { promoted: run.promoted, stopped_at };
            }
        }
    }
    let promoted = run.promoted;
    if promoted > 0 {
        tracing::info!(event = "orders_promoted", promoted, "{promoted} pending orders were promoted to PROCESSING");
    }
    PromotionEnd { promoted, stopped_at: None }
}

/// Logs what happened to one order; breaks where the run ends.
fn log(step: &PromotionStep, id: OrderId, promoted: u64) -> ControlFlow<()> {
    match step {
        PromotionStep::Next => return ControlFlow::Continue(()),
        PromotionStep::Skipped(error) => {
            tracing::warn!(event = "promotion_skipped", order_id = %id, error = %error, "order {id} could not be promoted; the next run tries it again: {error}");
            return ControlFlow::Continue(());
        }
        // A passive region or backpressure: promotion works, and the event that closed the gate was logged.
        PromotionStep::HeldBack(why) => {
            tracing::info!(event = "promotion_held_back", promoted, reason = %why, "promotion stopped because writes are rejected; the next run continues");
        }
        PromotionStep::Stopped(error) => {
            tracing::warn!(event = "promotion_stopped", promoted, order_id = %id, error = %error, "promotion stopped at order {id} after {promoted} orders; the next run begins after it: {error}");
        }
    }
    ControlFlow::Break(())
}

impl Actor for PendingPromoter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.schedule_after(Instant::now(), ctx);
    }
}

supervision::supervised!(PendingPromoter);

impl Handler<MailboxMessage<Promote>> for PendingPromoter {
    type Result = ResponseActFuture<Self, u64>;

    fn handle(&mut self, message: MailboxMessage<Promote>, ctx: &mut Self::Context) -> Self::Result {
        // The permit is released here: the watchdog regards an actor that holds a permit for minutes as hung, and a promotion may take that long.
        let (Promote, _permit) = message.begin(ctx);
        if std::mem::replace(&mut self.running, true) {
            return Box::pin(actix::fut::ready(0));
        }
        Box::pin(self.promote().into_actor(self).map(|end, this, _| {
            this.record_end(&end);
            end.promoted
        }))
    }
}
