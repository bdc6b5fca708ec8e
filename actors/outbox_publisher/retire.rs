//! Before the tree stops: take nothing new, let each worker finish and hand its partition over, then leave. All at once, not in a row.
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::future::join_all;
use supervision::MailboxMessage;

use super::OutboxPublisher;
use super::fellows::say;
use crate::partition_worker::HandOver;

/// Retire within this time. Answers how many partitions could not be handed over: their leases run out, or our next life resolves them.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct Retire {
    /// For all of it.
    pub deadline: Duration,
}

impl Handler<MailboxMessage<Retire>> for OutboxPublisher {
    type Result = ResponseActFuture<Self, usize>;

    fn handle(&mut self, message: MailboxMessage<Retire>, ctx: &mut Self::Context) -> Self::Result {
        let (Retire { deadline }, permit) = message.begin(ctx);
        self.retiring = true;
        let workers: Vec<_> = match &self.roster {
            Some(roster) => roster.partitions().into_iter().filter_map(|no| Some((no, roster.find(no)?))).collect(),
            None => Vec::new(),
        };
        let (leases, instance) = (self.world.leases.clone(), self.options.instance.clone());
        let (wakes, turn) = (self.world.wakes.clone(), Arc::clone(&self.membership.turn));
        let work = async move {
            let _permit = permit;
            // The inbox of a worker holds one message: this one waits its turn behind the batch in flight.
            let handed = join_all(workers.iter().map(|(_, worker)| worker.ask(HandOver, deadline))).await;
            let left = handed.iter().filter(|given| !matches!(given, Ok(true))).count();
            // A beat that is under way ends first, and none follows.
            let _turn = turn.acquire().await;
            turn.close();
            if let Err(error) = leases.leave(&instance).await {
                tracing::debug!(event = "leave_failed", error = %error, "fellows will notice our absence by its length");
            }
            // After we have left: whoever looks then counts one fewer, and its share has grown.
            workers.iter().for_each(|(partition, _)| say(wakes.as_ref(), *partition));
            left
        };
        Box::pin(work.into_actor(self))
    }
}
