//! Who is there, and which partitions are ours: heartbeat, renewal, taking what is free, giving what is surplus.
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use actix::prelude::*;
use app::policy::partition::{Balance, balance};
use domain::Timestamp;
use ports::Error;
use ports::partitions::{InstanceId, MemberView, PartitionNo, PartitionView};
use tokio::sync::Semaphore;

use super::OutboxPublisher;
use super::fellows::say;
use crate::lease_book::LeaseBook;
use crate::partition_worker::HandOver;
use crate::world::World;

/// What membership remembers between heartbeats; all of it can be read again from the store.
pub struct Membership {
    pub(super) book: Arc<LeaseBook>,
    pub(super) instance: InstanceId,
    /// Partitions on their way out: they do not run any more.
    pub(super) giving: BTreeSet<PartitionNo>,
    away: bool,
    /// One beat at a time, and none after we have left: it would bring our name back, and our share would wait for our death.
    pub(super) turn: Arc<Semaphore>,
}

/// The world as a heartbeat found it.
struct Beat {
    members: Vec<MemberView>,
    views: Vec<PartitionView>,
}

impl Beat {
    /// Partitions that a living fellow holds. A lease that has run out binds nobody: its owner may live and have its share elsewhere.
    fn of_fellows(&self, us: &InstanceId, living: &HashSet<&InstanceId>) -> BTreeSet<PartitionNo> {
        // We have just been seen: that is the store's time.
        let now = self.members.iter().find(|member| member.instance == *us).map_or(Timestamp::default(), |m| m.seen_at);
        let holds = |view: &&PartitionView| {
            let fellow = view.owner.as_ref().is_some_and(|owner| owner != us && living.contains(owner));
            fellow && view.expires_at.is_some_and(|until| until > now)
        };
        self.views.iter().filter(holds).map(|view| view.partition).collect()
    }
}

impl Membership {
    /// The membership of this instance.
    pub fn new(book: Arc<LeaseBook>, instance: InstanceId) -> Self {
        Self { book, instance, giving: BTreeSet::new(), away: false, turn: Arc::new(Semaphore::new(1)) }
    }

    /// A partition we thought free is not: look before the next heartbeat.
    pub(super) fn look_again(&self, ctx: &mut Context<OutboxPublisher>) {
        ctx.run_later(std::time::Duration::from_millis(200), |this, ctx| this.look(ctx));
    }
}

impl OutboxPublisher {
    /// Beats now and from now on.
    pub(super) fn beat(&mut self, ctx: &mut Context<Self>) {
        self.watch_broker(ctx);
        self.look(ctx);
        ctx.run_later(self.options.heartbeat, Self::beat);
    }

    pub(super) fn look(&mut self, ctx: &mut Context<Self>) {
        let world = self.world.clone();
        let (instance, dead_after) = (self.membership.instance.clone(), self.options.dead_after);
        let book = Arc::clone(&self.membership.book);
        let turn = Arc::clone(&self.membership.turn);
        let work = async move {
            // Closed: we have left.
            let _turn = turn.acquire().await.ok()?;
            Some(beat(&world, &instance, dead_after, &book).await)
        };
        ctx.spawn(work.into_actor(self).map(|found, this, ctx| {
            if let Some(found) = found {
                this.found(found, ctx);
            }
        }));
    }

    fn found(&mut self, found: Result<Beat, Error>, ctx: &mut Context<Self>) {
        let beat = match found {
            Ok(beat) => beat,
            Err(error) => {
                // Log the change of state, not every turn.
                if !std::mem::replace(&mut self.membership.away, true) {
                    tracing::warn!(event = "heartbeat_failed", error = %error, "the store does not answer; leases run on until they expire");
                }
                return;
            }
        };
        self.membership.away = false;
        let Some(roster) = self.roster.clone() else { return self.ready() };
        let living: HashSet<&InstanceId> = beat.members.iter().filter(|m| m.alive).map(|m| &m.instance).collect();
        let theirs = beat.of_fellows(&self.membership.instance, &living);
        // Where a fellow was first, our worker waits for nothing, and would count as a share that we do not have.
        let (missed, held): (BTreeSet<_>, BTreeSet<_>) =
            roster.partitions().into_iter().partition(|no| theirs.contains(no));
        let Balance { take, give } = balance(self.options.partitions, living.len(), &held, &theirs);
        for partition in take {
            match roster.hire(partition) {
                Ok(()) => self.schedule.wake(partition),
                Err(error) => {
                    tracing::debug!(event = "worker_not_hired", partition = partition.0, error = %error, "a worker could not be started yet");
                }
            }
        }
        give.into_iter().chain(missed).for_each(|partition| self.give(partition, ctx));
        self.ready();
        self.pump(ctx);
    }

    fn ready(&self) {
        let owned = self.membership.book.held().len();
        self.world.metrics.outbox_partitions_owned.set(i64::try_from(owned).unwrap_or(i64::MAX));
        self.vitals().update(|snapshot| {
            snapshot.partitions_owned = owned;
            snapshot.started = true;
        });
    }

    /// Hands a partition over: stop claiming → settle what is in flight → release. Waits its turn behind the batch in flight, or a busy
    /// partition would never change hands; one that cannot be given now is asked again at the next beat.
    fn give(&mut self, partition: PartitionNo, ctx: &mut Context<Self>) {
        let Some(roster) = self.roster.clone() else { return };
        let Some(worker) = roster.find(partition) else { return };
        if !self.membership.giving.insert(partition) {
            return;
        }
        self.schedule.forget(partition);
        let (deadline, wakes) = (self.options.relay.lease, self.world.wakes.clone());
        let work = async move {
            if matches!(worker.ask(HandOver, deadline).await, Ok(true)) {
                roster.dismiss(partition).await;
                say(wakes.as_ref(), partition);
            }
        };
        ctx.spawn(work.into_actor(self).map(move |(), this, ctx| {
            this.membership.giving.remove(&partition);
            this.schedule.wake(partition);
            this.pump(ctx);
        }));
    }
}

async fn beat(
    world: &World,
    instance: &InstanceId,
    dead_after: std::time::Duration,
    book: &LeaseBook,
) -> Result<Beat, Error> {
    let members = world.leases.heartbeat(instance, dead_after).await?;
    let (asked, held) = (book.asking(), book.held());
    if !held.is_empty() {
        let ours = world.leases.renew(instance, &held, book.ttl()).await?;
        book.renewed(asked, &held, &ours);
    }
    let views = world.leases.overview().await?;
    Ok(Beat { members, views })
}
