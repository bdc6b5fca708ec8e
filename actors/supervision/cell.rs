//! The cell: the task that owns one actor's future, obeys its supervisor before the actor, and survives the actor's panics.

use std::cell::Cell as Shared;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context as Poller, Poll};

use actix::dev::ContextFut;
use actix::dev::channel::AddressReceiver;
use actix::fut::{ActorFutureExt as _, wrap_future};
use actix::prelude::*;
use tokio::time::Instant;

use crate::child::{Birth, Child, Draining};
use crate::exit::{Exit, Reason};
use crate::gauge::Gauge;
use crate::guard::{guarded, with_fresh};
use crate::order::{CellOrder, Farewell, Life, Link, Order};
use crate::postbox::Orders;

type Body<A> = ContextFut<A, Context<A>>;
type Factory<A> = Box<dyn Fn(Birth) -> A + Send>;
type Emptied = Pin<Box<dyn Future<Output = ()>>>;

/// The end an incarnation was asked for.
struct Ending {
    why: Reason,
    last: bool,
    /// What the actor's drain hook answered, once it ran.
    hook: Rc<Shared<Option<Draining>>>,
    /// Holds new messages back until the old ones are done.
    emptied: Option<Emptied>,
}

pub(crate) struct Cell<A: Child> {
    /// None before the first start and after the last end.
    body: Option<Body<A>>,
    receiver: Option<AddressReceiver<A>>,
    /// Keeps the mailbox connected, so that a restart is never refused. None after the last end.
    addr: Option<Addr<A>>,
    factory: Factory<A>,
    orders: Orders,
    link: Link,
    gauge: Arc<Gauge>,
    generation: u64,
    /// How the last incarnation ended.
    ended: Option<Reason>,
    live: bool,
    /// Set by the announcement that `started()` and its waits are done.
    ready: Rc<Shared<bool>>,
    /// The factory panicked when the last incarnation was buried: the dead instance is still in place.
    stale: bool,
    panic_by: Option<String>,
    ending: Option<Ending>,
    span: tracing::Span,
}

impl<A: Child> Unpin for Cell<A> {}

impl<A: Child> Cell<A> {
    pub(crate) fn new(
        receiver: AddressReceiver<A>,
        addr: Addr<A>,
        factory: Factory<A>,
        orders: Orders,
        link: Link,
        gauge: Arc<Gauge>,
    ) -> Self {
        Cell {
            body: None,
            receiver: Some(receiver),
            addr: Some(addr),
            factory,
            orders,
            link,
            gauge,
            generation: 0,
            ended: None,
            live: false,
            ready: Rc::default(),
            stale: false,
            panic_by: None,
            ending: None,
            span: tracing::Span::none(),
        }
    }

    /// False when the cell is to end.
    fn obey(&mut self, order: CellOrder) -> bool {
        match order {
            CellOrder::Life(Order::Start { generation }) if !self.live => self.start(generation),
            CellOrder::Life(Order::Kill { why, last }) if self.live => return self.die(why, last),
            // Its supervisor looks at the clock.
            CellOrder::Life(Order::Drain(Farewell { why, last, .. })) if self.live => self.drain(why, last),
            CellOrder::Life(Order::Kill { last, .. } | Order::Drain(Farewell { last, .. })) => return !last,
            CellOrder::Life(Order::Start { .. }) | CellOrder::Look => {}
            CellOrder::Life(Order::Exit) => return false,
            CellOrder::Panic { by } if self.live => self.panic_by = Some(by),
            CellOrder::Stop if self.live => {
                self.gauge.paused.store(false, SeqCst);
                self.body_ctx().stop();
            }
            // Between two lives there is nobody to hit.
            CellOrder::Panic { .. } | CellOrder::Stop => {}
        }
        true
    }

    fn body_ctx(&mut self) -> &mut Context<A> {
        self.body.as_mut().expect("a live cell has a body").ctx()
    }

    fn start(&mut self, generation: u64) {
        self.generation = generation;
        if self.body.is_none() || self.stale {
            let fresh = match guarded(|| (self.factory)(self.birth(generation))) {
                Ok(fresh) => fresh,
                Err(reason) => return self.tell_exit(Exit::bare(reason)),
            };
            match (self.body.as_mut(), self.receiver.take()) {
                (None, Some(receiver)) => self.body = Some(Context::with_receiver(receiver).into_future(fresh)),
                (Some(body), _) => with_fresh(fresh, || drop(guarded(|| body.restart()))),
                (None, None) => return self.tell_exit(Exit::bare(Reason::ArbiterLost)),
            }
            self.stale = false;
        }
        // actix polls wait futures newest first and before the mailbox, so this one runs after started() and after every ctx.wait of
        // started(), and before the first message. A panic before it is a failed start.
        let (link, ready) = (self.link.clone(), Rc::new(Shared::new(false)));
        self.ready = ready.clone();
        self.body_ctx().wait(wrap_future(async move {
            ready.set(true);
            link.tell(generation, Life::Started);
        }));
        self.live = true;
        self.gauge.moved(Instant::now());
        self.span = tracing::info_span!(target: "supervision", "actor", path = &*self.link.path, generation);
    }

    fn birth(&self, generation: u64) -> Birth {
        Birth { generation, after: self.ended.clone() }
    }

    /// Not through the mailbox: the request can neither be lost there nor leak into the next incarnation.
    fn drain(&mut self, why: Reason, last: bool) {
        if let Some(ending) = self.ending.as_mut() {
            ending.last |= last;
            return;
        }
        self.gauge.paused.store(false, SeqCst);
        let hook = Rc::new(Shared::new(None));
        let answer = hook.clone();
        self.body_ctx().spawn(
            wrap_future(async {})
                .map(move |(), actor: &mut A, ctx: &mut Context<A>| answer.set(Some(actor.drain(ctx)))),
        );
        self.ending = Some(Ending { why, last, hook, emptied: None });
    }

    /// Whether a draining actor that leaves its end to us has nothing left to do.
    fn drained(&mut self, cx: &mut Poller<'_>) -> bool {
        let Some(ending) = self.ending.as_mut() else { return false };
        match ending.hook.get() {
            None | Some(Draining::ByItself) => return false,
            Some(Draining::WhenIdle) => {}
        }
        let emptied = ending.emptied.get_or_insert_with(|| Box::pin(self.gauge.clone().emptied()));
        match emptied.as_mut().poll(cx) {
            Poll::Pending => false,
            Poll::Ready(()) => {
                // A future must not be polled after its answer, and nothing asks again: the hook is done with.
                ending.hook.set(Some(Draining::ByItself));
                true
            }
        }
    }

    /// Ends this incarnation. True when the cell waits for a next one.
    fn die(&mut self, reason: Reason, last: bool) -> bool {
        let held = self.gauge.outstanding();
        self.ended = Some(reason.clone());
        self.live = false;
        self.panic_by = None;
        self.gauge.paused.store(false, SeqCst);
        let exit = if last {
            self.close();
            Exit { reason, queued: held, in_flight: 0 }
        } else {
            self.bury();
            let queued = self.gauge.outstanding();
            Exit { reason, queued, in_flight: held.saturating_sub(queued) }
        };
        self.ending = None;
        self.tell_exit(exit);
        !last
    }

    /// Drops the old state and its futures now: whoever waits for them hears so now, locks and connections are free now, not after
    /// the back-off.
    fn bury(&mut self) {
        let birth = self.birth(self.generation + 1);
        let Some(body) = self.body.as_mut() else { return };
        match guarded(|| (self.factory)(birth)) {
            Ok(fresh) => {
                self.stale = false;
                with_fresh(fresh, || {
                    // A Drop that panics leaves a part behind, which the next turn drops. Three turns: futures, waits, the state.
                    for _ in 0..3 {
                        if guarded(|| body.restart()).is_ok() {
                            break;
                        }
                    }
                });
            }
            Err(_) => {
                self.stale = true;
                // No instance to put in its place, but what it had in flight goes: renew finds nothing and leaves the state.
                let _ = guarded(|| body.restart());
            }
        }
    }

    /// Lets go of state and mailbox for good: whoever waits in it hears so now.
    fn close(&mut self) {
        self.gauge.closed.store(true, SeqCst);
        self.addr = None;
        self.receiver = None;
        if let Some(mut body) = self.body.take() {
            // Otherwise ContextFut::drop polls the actor once more, even while a panic unwinds: two panics abort the process.
            body.ctx().terminate();
            let _ = guarded(move || drop(body));
        }
    }

    fn tell_exit(&self, exit: Exit) {
        self.link.tell(self.generation, Life::Exited(exit));
    }

    fn poll_body(&mut self, cx: &mut Poller<'_>) -> Result<Poll<()>, Reason> {
        let body = self.body.as_mut().expect("a live cell has a body");
        let panic_by = self.panic_by.take();
        let _entered = self.span.enter();
        guarded(|| {
            if let Some(by) = panic_by {
                panic!("fault injected by {by}");
            }
            Pin::new(body).poll(cx)
        })
    }
}

impl<A: Child> Future for Cell<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<()> {
        let this = &mut *self;
        // Orders first: they work while the actor waits, is paused or is flooded.
        while let Some(order) = this.orders.poll(cx) {
            if !this.obey(order) {
                return Poll::Ready(());
            }
        }
        while this.live {
            let paused = this.ready.get() && this.gauge.paused.load(SeqCst);
            if paused && this.panic_by.is_none() {
                return Poll::Pending;
            }
            let (reason, last) = match this.poll_body(cx) {
                Ok(Poll::Pending) if this.drained(cx) => {
                    this.body_ctx().stop();
                    continue;
                }
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => {
                    this.ending.as_ref().map_or((Reason::Normal, false), |end| (end.why.clone(), end.last))
                }
                Err(reason) => (reason, this.ending.as_ref().is_some_and(|end| end.last)),
            };
            if !this.die(reason, last) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl<A: Child> Drop for Cell<A> {
    fn drop(&mut self) {
        self.close();
        if self.live {
            self.tell_exit(Exit::bare(Reason::ArbiterLost));
        }
    }
}
