//! The drain hook of an actor: when it is called, and that the actor then stops itself.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use actix::prelude::*;
use supervision::{Mailbox, MailboxMessage, RootSupervisor, Shutdown, Strategy, actor};
use tokio::time::Instant;

use crate::fixture::{FIVE_SECONDS, Ping, bus_without_jitter, ms, supervisor};

/// Drains with a hook that stops the actor after 700 ms.
struct SelfDraining;

impl Actor for SelfDraining {
    type Context = Context<Self>;
}

impl SelfDraining {
    fn drain_slowly(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(ms(700), |_, ctx| ctx.stop());
    }
}

supervision::supervised!(SelfDraining, SelfDraining::drain_slowly);

impl Handler<MailboxMessage<Ping>> for SelfDraining {
    type Result = MessageResult<MailboxMessage<Ping>>;

    fn handle(&mut self, message: MailboxMessage<Ping>, ctx: &mut Self::Context) -> Self::Result {
        let (Ping, _permit) = message.begin(ctx);
        MessageResult((0, 0))
    }
}

virtual_time_test!(actor_with_a_drain_hook_stops_itself, {
    let bus = bus_without_jitter();
    let (actor_mailbox, spec) = actor(&bus, "/self-draining", 8, |_| SelfDraining);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    let shutdown = tokio::task::spawn_local(root.shutdown(FIVE_SECONDS));
    tokio::time::sleep(ms(100)).await;
    assert_eq!(actor_mailbox.ask(Ping, FIVE_SECONDS).await, Ok((0, 0)), "it still handles messages");

    let report = shutdown.await.unwrap();
    assert!(report.unfinished.is_empty() && report.elapsed >= ms(700) && report.elapsed < ms(710), "{report:?}");
});

/// Stops in its hook if nothing is in flight, otherwise once nothing is.
#[derive(Default)]
struct Stoppable {
    in_flight: usize,
    draining: bool,
    handled: Arc<AtomicUsize>,
}

impl Actor for Stoppable {
    type Context = Context<Self>;
}

impl Stoppable {
    fn drain(&mut self, ctx: &mut Context<Self>) {
        self.draining = true;
        self.stop_if_drained(ctx);
    }

    fn stop_if_drained(&self, ctx: &mut Context<Self>) {
        if self.draining && self.in_flight == 0 {
            ctx.stop();
        }
    }
}

supervision::supervised!(Stoppable, Stoppable::drain);

impl Handler<MailboxMessage<Ping>> for Stoppable {
    type Result = MessageResult<MailboxMessage<Ping>>;

    fn handle(&mut self, message: MailboxMessage<Ping>, ctx: &mut Self::Context) -> Self::Result {
        let (Ping, _permit) = message.begin(ctx);
        self.handled.fetch_add(1, SeqCst);
        MessageResult((0, 0))
    }
}

/// Waits in `ctx.wait` for this many milliseconds, then counts as handled.
#[derive(Message)]
#[rtype(result = "()")]
struct Wait(u64);

impl Handler<MailboxMessage<Wait>> for Stoppable {
    type Result = ();

    fn handle(&mut self, message: MailboxMessage<Wait>, ctx: &mut Self::Context) {
        let (Wait(millis), permit) = message.begin(ctx);
        let wait = async move {
            tokio::time::sleep(ms(millis)).await;
            permit
        };
        ctx.wait(wait.into_actor(self).map(|_permit, this, _| {
            this.handled.fetch_add(1, SeqCst);
        }));
    }
}

/// Works for this many milliseconds, concurrently with other messages.
#[derive(Message)]
#[rtype(result = "()")]
struct Work(u64);

impl Handler<MailboxMessage<Work>> for Stoppable {
    type Result = ();

    fn handle(&mut self, message: MailboxMessage<Work>, ctx: &mut Self::Context) {
        let (Work(millis), permit) = message.begin(ctx);
        self.in_flight += 1;
        ctx.run_later(ms(millis), move |this, ctx| {
            this.in_flight -= 1;
            this.handled.fetch_add(1, SeqCst);
            drop(permit);
            this.stop_if_drained(ctx);
        });
    }
}

async fn stoppable(capacity: usize) -> (Mailbox<Stoppable>, RootSupervisor, Arc<AtomicUsize>) {
    let handled = Arc::new(AtomicUsize::new(0));
    let bus = bus_without_jitter();
    let (mailbox, spec) = actor(&bus, "/stoppable", capacity, {
        let handled = handled.clone();
        move |_| Stoppable { handled: handled.clone(), ..Stoppable::default() }
    });
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.shutdown(Shutdown::Timeout(FIVE_SECONDS)));
    (mailbox, RootSupervisor::start(spec, bus).await, handled)
}

fn send<M: Message<Result: Send> + Send + 'static>(mailbox: &Mailbox<Stoppable>, message: M)
where
    Stoppable: Handler<MailboxMessage<M>>,
{
    mailbox.try_send(message).map_err(|(error, _)| error).unwrap();
}

virtual_time_test!(drain_hook_comes_after_all_queued_messages, {
    let (mailbox, root, handled) = stoppable(256).await;
    for _ in 0..200 {
        send(&mailbox, Ping);
    }

    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!((handled.load(SeqCst), report.unfinished), (200, vec![]));
});

virtual_time_test!(drain_hook_comes_after_messages_that_begin_or_expire_late, {
    let (mailbox, root, handled) = stoppable(256).await;
    let began = Instant::now();
    send(&mailbox, Wait(100));
    send(&mailbox, Work(300));
    send(&mailbox, Wait(100));
    let expires = tokio::task::spawn_local({
        let mailbox = mailbox.clone();
        async move { mailbox.ask(Ping, ms(10)).await }
    });
    tokio::task::yield_now().await;

    let report = root.shutdown(FIVE_SECONDS).await;

    assert!(expires.await.unwrap().is_err());
    assert_eq!((handled.load(SeqCst), report.unfinished), (3, vec![]));
    assert!(began.elapsed() >= ms(400) && began.elapsed() < ms(410), "{:?}", began.elapsed());
});

virtual_time_test!(drain_hook_does_not_interrupt_a_wait, {
    let (mailbox, root, handled) = stoppable(8).await;
    send(&mailbox, Wait(700));

    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!((handled.load(SeqCst), report.unfinished), (1, vec![]));
    assert!(report.elapsed >= ms(700) && report.elapsed < ms(710), "{:?}", report.elapsed);
});

virtual_time_test!(new_messages_do_not_delay_the_drain_hook_without_end, {
    let (mailbox, root, handled) = stoppable(4).await;
    let flood = tokio::task::spawn_local(async move { while mailbox.send(Wait(100)).await.is_ok() {} });
    tokio::time::sleep(ms(50)).await;

    let report = root.shutdown(FIVE_SECONDS).await;

    assert!(report.elapsed < ms(600), "{:?}", report.elapsed);
    assert_eq!(
        (handled.load(SeqCst), report.unfinished),
        (5, vec![]),
        "four queued, and the one that waited for a permit"
    );
    flood.await.unwrap();
});
