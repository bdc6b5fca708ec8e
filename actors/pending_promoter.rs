//! PendingPromoter: on its own rate, moves orders that wait in PENDING on to PROCESSING, page by page, through the OrderAggregate.
use std::sync::Arc;

use actix::prelude::*;
use app::commands::Desk;
use app::commands::promote_pending::{page, promotion};
use app::error::CommandError;
use domain::OrderId;
use supervision::MailboxMessage;

use crate::shards::Shards;
use crate::world::Options;

/// Promote now.
#[derive(Message)]
#[rtype(result = "u64")]
pub struct Promote;

/// The actor.
pub struct PendingPromoter {
    desk: Arc<Desk>,
    shards: Shards,
    options: Arc<Options>,
    running: bool,
}

impl PendingPromoter {
    /// A promoter that has not run yet.
    pub fn new(desk: Arc<Desk>, shards: Shards, options: Arc<Options>) -> Self {
        Self { desk, shards, options, running: false }
    }

    fn later(&mut self, ctx: &mut Context<Self>) {
        if !self.options.promotion_interval.is_zero() {
            ctx.run_later(self.options.promotion_interval, Self::tick);
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.running, true) {
            return self.later(ctx);
        }
        let work = self.work();
        ctx.spawn(work.into_actor(self).map(|_, this, ctx| {
            this.running = false;
            this.later(ctx);
        }));
    }

    fn work(&self) -> impl Future<Output = u64> + use<> {
        let (desk, shards, limit) = (Arc::clone(&self.desk), self.shards.clone(), self.options.promotion_batch.max(1));
        async move { promote_all(&desk, &shards, limit).await }
    }
}

/// Pages until none is left. An order that refuses (it moved on meanwhile, another instance was first) is passed.
async fn promote_all(desk: &Desk, shards: &Shards, limit: u32) -> u64 {
    let (mut promoted, mut after) = (0, None::<OrderId>);
    loop {
        let ids = match page(desk, after, limit).await {
            Ok(ids) => ids,
            Err(error) => {
                tracing::warn!(event = "promotion_stopped", promoted, error = %error, "waiting orders could not be read; the next run goes on");
                return promoted;
            }
        };
        let full = ids.len() >= limit as usize;
        after = ids.last().copied().or(after);
        for id in ids {
            match shards.change(promotion(id)).await {
                Ok(_) => promoted += 1,
                Err(CommandError::Conflict(_) | CommandError::RegionConflict(_) | CommandError::NotFound) => {}
                // A passive region or pressure: nothing is wrong with promotion, and the gate's keeper has told of it.
                Err(CommandError::Gated(why)) => {
                    tracing::info!(event = "promotion_held_back", promoted, reason = %why, "promotion waits; the next run goes on");
                    return promoted;
                }
                Err(error) => {
                    tracing::warn!(event = "promotion_stopped", promoted, order_id = %id, error = %error, "promotion stops here; the next run goes on");
                    return promoted;
                }
            }
        }
        if !full {
            if promoted > 0 {
                tracing::info!(event = "orders_promoted", promoted, "waiting orders were moved on to PROCESSING");
            }
            return promoted;
        }
    }
}

impl Actor for PendingPromoter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.later(ctx);
    }
}

supervision::supervised!(PendingPromoter);

impl Handler<MailboxMessage<Promote>> for PendingPromoter {
    type Result = ResponseActFuture<Self, u64>;

    fn handle(&mut self, message: MailboxMessage<Promote>, ctx: &mut Self::Context) -> Self::Result {
        let (Promote, permit) = message.begin(ctx);
        let work = self.work();
        Box::pin(
            async move {
                let _permit = permit;
                work.await
            }
            .into_actor(self),
        )
    }
}
