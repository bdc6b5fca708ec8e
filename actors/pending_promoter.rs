//! PendingPromoter: at a fixed rate, moves orders from PENDING to PROCESSING, page by page, through the OrderAggregate.
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::commands::CommandContext;
use app::commands::promote_pending::{PromotionRun, PromotionStep, page, promotion};
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
}

impl PendingPromoter {
    /// A promoter that has not run yet.
    pub fn new(context: Arc<CommandContext>, shards: Shards, options: Arc<Options>) -> Self {
        Self { context, shards, options, running: false }
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
        ctx.spawn(self.promote().into_actor(self).map(move |_, this, ctx| {
            this.running = false;
            this.schedule_after(started_at, ctx);
        }));
    }

    fn promote(&self) -> impl Future<Output = u64> + use<> {
        let (context, shards, limit) =
            (Arc::clone(&self.context), self.shards.clone(), self.options.promotion_batch.max(1));
        async move { promote_all(&context, &shards, limit).await }
    }
}

/// Promotes page after page until no pending order is left. Skips an order that refuses the promotion, because it changed meanwhile or
/// another instance promoted it, and an order that alone fails.
async fn promote_all(context: &CommandContext, shards: &Shards, limit: u32) -> u64 {
    let (mut run, mut after) = (PromotionRun::default(), None::<OrderId>);
    loop {
        let ids = match page(context, after, limit).await {
            Ok(ids) => ids,
            Err(error) => {
                tracing::warn!(event = "promotion_stopped", promoted = run.promoted, error = %error, "pending orders could not be read; the next run continues: {error}");
                return run.promoted;
            }
        };
        let full = ids.len() >= limit as usize;
        after = ids.last().copied().or(after);
        for id in ids {
            let span = tracing::error_span!("promotion", order_id = %id);
            let step = run.record(shards.change(promotion(id), Duration::MAX).instrument(span).await);
            if log(&step, id, run.promoted).is_break() {
                return run.promoted;
            }
        }
        if !full {
            break;
        }
    }
    let promoted = run.promoted;
    if promoted > 0 {
        tracing::info!(event = "orders_promoted", promoted, "{promoted} pending orders were promoted to PROCESSING");
    }
    promoted
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
            tracing::warn!(event = "promotion_stopped", promoted, order_id = %id, error = %error, "promotion stopped at order {id} after {promoted} orders; the next run continues: {error}");
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
        // The permit ends here: the watchdog takes an actor that holds one for minutes for a hung one, and a promotion may take as long.
        let (Promote, _permit) = message.begin(ctx);
        if std::mem::replace(&mut self.running, true) {
            return Box::pin(actix::fut::ready(0));
        }
        Box::pin(self.promote().into_actor(self).map(|promoted, this, _| {
            this.running = false;
            promoted
        }))
    }
}
