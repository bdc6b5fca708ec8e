//! Running an actor's code so that a panic ends only that actor, and handing a fresh instance to `Supervised::restarting`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::exit::Reason;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
    static BLAMED: Cell<Option<&'static str>> = const { Cell::new(None) };
    static FRESH: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Keeps text and place of a panic inside a cell for its `child_exited` event; every other panic goes to the hook that was there.
pub(crate) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                let text = info.payload_as_str().unwrap_or("a panic without text").to_owned();
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                LAST.with(|last| *last.borrow_mut() = Some((text, place)));
            } else {
                previous(info);
            }
        }));
    });
}

/// Runs `f`; a panic becomes the reason of a death.
pub(crate) fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Reason> {
    let outer = GUARDED.replace(true);
    BLAMED.set(None);
    let result = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(outer);
    result.map_err(|_payload| {
        let (detail, location) = LAST.with(|last| last.borrow_mut().take()).unwrap_or_default();
        Reason::Panic { detail, location, message: BLAMED.take() }
    })
}

/// Called by a slot that is dropped by an unwinding stack: its message is the one that was being worked on.
pub(crate) fn blame(message: &'static str) {
    if BLAMED.get().is_none() {
        BLAMED.set(Some(message));
    }
}

/// Runs `restart` with `fresh` where [`renew`] finds it.
pub(crate) fn with_fresh<A: 'static>(fresh: A, restart: impl FnOnce()) {
    FRESH.with(|slot| *slot.borrow_mut() = Some(Box::new(fresh)));
    restart();
    // Taken by `renew`, unless the restart ended before it: then the instance goes.
    drop(FRESH.with(|slot| slot.borrow_mut().take()));
}

/// The body of `Supervised::restarting` for every supervised actor, written by [`supervised!`](crate::supervised): puts the instance
/// that the factory built in the place of the dead one.
pub fn renew<A: 'static>(actor: &mut A) {
    let fresh = FRESH.with(|slot| slot.borrow_mut().take());
    if let Some(Ok(fresh)) = fresh.map(|boxed| boxed.downcast::<A>()) {
        *actor = *fresh;
    }
}
