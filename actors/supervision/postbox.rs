//! The channel of orders to a cell, which looks into it at every poll: one atomic load when there is none.
//!
//! tokio's channel registers its waker anew at each look, and that alone costs an asking caller several percent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

use crate::order::CellOrder;

/// Unbounded, because an order must never be lost or wait; each comes from a supervisor's step or from an operator.
struct Shared {
    /// Whether `inner` holds orders. Written under its lock only.
    waiting: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    orders: VecDeque<CellOrder>,
    waker: Option<Waker>,
    closed: bool,
}

/// The supervisors' and operators' side.
#[derive(Clone)]
pub(crate) struct Postbox(Arc<Shared>);

/// The cell's side.
pub(crate) struct Orders {
    shared: Arc<Shared>,
    /// The waker that `shared` holds.
    registered: Option<Waker>,
}

pub(crate) fn postbox() -> (Postbox, Orders) {
    let shared = Arc::new(Shared { waiting: AtomicBool::new(false), inner: Mutex::default() });
    (Postbox(shared.clone()), Orders { shared, registered: None })
}

impl Postbox {
    /// False when the cell is gone.
    pub(crate) fn send(&self, order: CellOrder) -> bool {
        let mut inner = self.0.inner.lock();
        if inner.closed {
            return false;
        }
        inner.orders.push_back(order);
        self.0.waiting.store(true, Ordering::Release);
        let waker = inner.waker.clone();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl Orders {
    /// The next order, if there is one. Otherwise the task is woken when one comes.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Option<CellOrder> {
        if !self.registered.as_ref().is_some_and(|registered| registered.will_wake(cx.waker())) {
            // Before the look below: whoever sends after that look finds this waker.
            self.shared.inner.lock().waker = Some(cx.waker().clone());
            self.registered = Some(cx.waker().clone());
        }
        if !self.shared.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut inner = self.shared.inner.lock();
        let order = inner.orders.pop_front();
        self.shared.waiting.store(!inner.orders.is_empty(), Ordering::Release);
        order
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        let mut inner = self.shared.inner.lock();
        inner.closed = true;
        let left = (std::mem::take(&mut inner.orders), inner.waker.take());
        // A waker may own the task, and the task's drop must not meet the lock.
        drop(inner);
        drop(left);
    }
}
