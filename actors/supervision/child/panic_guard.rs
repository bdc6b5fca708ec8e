//! Panic isolation: runs an actor's code so that a panic ends only that actor, and hands a fresh instance to `Supervised::restarting`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

use crate::child::exit::ExitReason;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    /// Text and location of the last caught panic.
    static LAST_PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
    static PANICKING_MESSAGE: Cell<Option<&'static str>> = const { Cell::new(None) };
    static REPLACEMENT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Installs, once per process, a panic hook that keeps text and location of a panic inside an actor task for its `child_exited` event.
/// Every other panic goes to the previous hook.
pub(crate) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                let text = info.payload_as_str().unwrap_or("a panic without text").to_owned();
                let location = info.location().map(ToString::to_string).unwrap_or_default();
                LAST_PANIC.with(|last| *last.borrow_mut() = Some((text, location)));
            } else {
                previous(info);
            }
        }));
    });
}

/// Runs `f` and turns a panic into its exit reason.
pub(crate) fn catch_panic<R>(f: impl FnOnce() -> R) -> Result<R, ExitReason> {
    let outer = CATCHING.replace(true);
    PANICKING_MESSAGE.set(None);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.set(outer);
    result.map_err(|_payload| {
        let (detail, location) = LAST_PANIC.with(|last| last.borrow_mut().take()).unwrap_or_default();
        ExitReason::Panic { detail, location, message: PANICKING_MESSAGE.take() }
    })
}

/// Runs work that is not an actor's. Its panic ends it and goes to the previous hook.
pub(crate) async fn without_panic(work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or(Poll::Ready(()))
    })
    .await;
}

/// Called by a mailbox permit that an unwinding stack drops: the first such message is the one that panicked.
pub(crate) fn record_panicking_message(message_type: &'static str) {
    if PANICKING_MESSAGE.get().is_none() {
        PANICKING_MESSAGE.set(Some(message_type));
    }
}

/// Runs `restart` while [`replace_instance`] can take `fresh`.
pub(crate) fn with_replacement<A: 'static>(fresh: A, restart: impl FnOnce()) {
    REPLACEMENT.with(|cell| *cell.borrow_mut() = Some(Box::new(fresh)));
    restart();
    // Still present only when `restart` panicked before it reached `replace_instance`.
    drop(REPLACEMENT.with(|cell| cell.borrow_mut().take()));
}

/// Replaces a failed actor by the instance that its factory built. [`supervised!`](crate::supervised) writes the call into the actor's
/// `Supervised::restarting`; outside a restart it does nothing.
pub fn replace_instance<A: 'static>(actor: &mut A) {
    let fresh = REPLACEMENT.with(|cell| cell.borrow_mut().take());
    if let Some(Ok(fresh)) = fresh.map(|boxed| boxed.downcast::<A>()) {
        *actor = *fresh;
    }
}
