//! Sweeps in bounded pages: the archive, used keys, the inbox, the embedded log. Nothing that has not left is ever touched.
use std::time::Duration;

use actix::prelude::*;

use super::OutboxPublisher;
use crate::world::{Options, World};

/// How long a used idempotency key is remembered (CONTRACT: 24 h).
const KEYS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

impl OutboxPublisher {
    pub(super) fn sweep_later(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(self.options.sweep_interval, Self::sweep);
    }

    fn sweep(&mut self, ctx: &mut Context<Self>) {
        let (world, options) = (self.world.clone(), self.options.clone());
        let work = async move { page(&world, &options).await };
        ctx.spawn(work.into_actor(self).map(|full, this, ctx| {
            // A page that came back full is followed by the next one right away: a sweep must keep up with what is written.
            if full { this.sweep(ctx) } else { this.sweep_later(ctx) }
        }));
    }
}

/// One page of everything; answers whether any of them was full.
async fn page(world: &World, options: &Options) -> bool {
    let limit = options.sweep_page;
    let broker = async {
        match &world.broker {
            Some(broker) => broker.sweep(limit).await,
            None => Ok(0),
        }
    };
    let swept = [
        ("archive", world.outbox.sweep(options.retention, limit).await),
        ("keys", world.desk.orders.sweep_marks(KEYS_KEPT, limit).await),
        ("inbox", world.inbox.sweep(options.inbox_retention, limit).await),
        ("log", broker.await),
    ];
    let mut full = false;
    for (what, swept) in swept {
        match swept {
            Ok(rows) => full |= rows >= u64::from(limit),
            Err(error) => {
                tracing::debug!(event = "sweep_failed", what, error = %error, "a sweep failed and will be repeated")
            }
        }
    }
    full
}
