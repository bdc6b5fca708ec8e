//! Wake-ups between instances: a partition that is not ours is told to whoever has it, and what others tell wakes ours.
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::stream;
use ports::partitions::PartitionNo;
use ports::wake::WakeChannel;

use super::OutboxPublisher;

/// Least time between two looks at who holds what that hints alone cause: a busy fellow's hints must not become our load.
const LOOK_SPACING: Duration = Duration::from_millis(300);

impl OutboxPublisher {
    /// Listens from now on, if there is anybody to listen to.
    pub(super) fn listen(&self, ctx: &mut Context<Self>) {
        let Some(wakes) = self.world.wakes.clone() else { return };
        let told = stream::unfold(wakes, |wakes| async move { Some((wakes.notified().await, wakes)) });
        ctx.add_message_stream(stream::StreamExt::map(told, Told));
    }

    /// Tells the others of a partition that is not ours. Answers whether it is not.
    pub(super) fn tell(&self, partition: PartitionNo) -> bool {
        if self.roster.is_none() || self.is_ours(partition) {
            return false;
        }
        self.heard(partition);
        say(self.world.wakes.as_ref(), partition);
        true
    }

    fn is_ours(&self, partition: PartitionNo) -> bool {
        self.roster.as_ref().is_some_and(|roster| roster.find(partition).is_some())
    }

    /// A hint about a partition that is not ours may mean that it is free to take.
    fn look_soon(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.look_is_due, true) {
            ctx.run_later(LOOK_SPACING, |this, ctx| {
                this.look_is_due = false;
                this.look(ctx);
            });
        }
    }
}

/// Tells the others, where there is a way to.
pub(super) fn say(wakes: Option<&Arc<dyn WakeChannel>>, partition: PartitionNo) {
    if let Some(wakes) = wakes {
        wakes.notify(partition);
    }
}

/// What the others told.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Told(Vec<PartitionNo>);

impl Handler<Told> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, Told(partitions): Told, ctx: &mut Self::Context) {
        for partition in partitions {
            if self.is_ours(partition) {
                self.wake(partition, ctx);
            } else {
                self.look_soon(ctx);
            }
        }
        self.pump(ctx);
    }
}
