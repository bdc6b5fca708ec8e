//! Descriptions of the work that an actor has in progress (a batch, a request, a record), for the event of its exit: they name the lost work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::child::panic_guard::catch_panic;

/// Descriptions in one event: the first ones; the others are counted.
const NAMED_MAX: usize = 5;

type Describe = Box<dyn Fn() -> String + Send>;

/// The work that one actor has in progress, over all incarnations.
#[derive(Default)]
pub(crate) struct ActorWork(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    next: u64,
    work: BTreeMap<u64, Describe>,
    /// Guards that an unwinding stack dropped: the work that panicked.
    unwound: Vec<u64>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<ActorWork>>> = const { RefCell::new(None) };
}

/// Names work for as long as the guard lives. An actor's handler or future calls it; when the actor ends meanwhile, its `child_exited`
/// event has the text in `in_progress`. `describe` runs only then, and for
/// [`SupervisionBus::in_progress`](crate::SupervisionBus::in_progress). Outside an actor the call has no effect.
pub fn in_progress(describe: impl Fn() -> String + Send + 'static) -> WorkInProgress {
    let current = CURRENT.with_borrow(Clone::clone);
    WorkInProgress { entry: current.map(|work| (work.insert(Box::new(describe)), work)) }
}

/// The guard of [`in_progress`]: the work is done when it is dropped.
#[must_use = "the work is in progress only while the guard lives"]
pub struct WorkInProgress {
    entry: Option<(u64, Arc<ActorWork>)>,
}

impl Drop for WorkInProgress {
    fn drop(&mut self) {
        let Some((id, work)) = &self.entry else { return };
        let mut entries = work.0.lock();
        if std::thread::panicking() {
            entries.unwound.push(*id);
        } else {
            entries.work.remove(id);
        }
    }
}

/// Makes the outer actor the current one again, also when the inner one panics.
struct RestoreCurrent(Option<Arc<ActorWork>>);

impl Drop for RestoreCurrent {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl ActorWork {
    /// Runs an actor's code, in which [`in_progress`] means this actor.
    pub(crate) fn scope<R>(self: &Arc<Self>, run: impl FnOnce() -> R) -> R {
        let _outer = RestoreCurrent(CURRENT.replace(Some(Arc::clone(self))));
        run()
    }

    fn insert(&self, describe: Describe) -> u64 {
        let mut entries = self.0.lock();
        entries.next += 1;
        let id = entries.next;
        entries.work.insert(id, describe);
        id
    }

    /// Describes the work of an incarnation that ends, the work that panicked first, and forgets it. None without any.
    pub(crate) fn take(&self) -> Option<String> {
        let entries = std::mem::take(&mut *self.0.lock());
        entries.describe()
    }

    /// Describes the work of an incarnation that runs. None without any.
    pub(crate) fn describe(&self) -> Option<String> {
        self.0.lock().describe()
    }
}

impl Entries {
    fn describe(&self) -> Option<String> {
        let Entries { work, unwound, .. } = self;
        let others = work.keys().filter(|id| !unwound.contains(id));
        let order: Vec<&u64> = unwound.iter().chain(others).collect();
        if order.is_empty() {
            return None;
        }
        let named: Vec<String> = order.iter().take(NAMED_MAX).filter_map(|id| work.get(id).map(text_of)).collect();
        let more = order.len().saturating_sub(NAMED_MAX);
        Some(if more > 0 { format!("{} and {more} more", named.join("; ")) } else { named.join("; ") })
    }
}

/// The text of one piece of work. A panic of its closure does not end the actor's task, which reports an exit with it.
fn text_of(describe: &Describe) -> String {
    catch_panic(describe).unwrap_or_else(|reason| format!("work without a description ({reason})"))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn work_is_described_until_its_guard_is_dropped() {
        let work = Arc::new(ActorWork::default());

        let guards = work.scope(|| (1..=7).map(|n| in_progress(move || format!("request {n}"))).collect::<Vec<_>>());

        let text = work.describe().expect("seven are open");
        assert_eq!(work.take().as_ref(), Some(&text), "describing forgets nothing");
        assert_eq!(text, "request 1; request 2; request 3; request 4; request 5 and 2 more");
        drop(guards);
        assert_eq!(work.take(), None, "taken once");
        work.scope(|| drop(in_progress(|| "done".into())));
        assert_eq!(work.take(), None);
        drop(in_progress(|| "outside of an actor".into()));
    }

    #[test]
    fn work_that_panicked_comes_first() {
        let work = Arc::new(ActorWork::default());

        let _other = work.scope(|| in_progress(|| "another".into()));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = work.scope(|| in_progress(|| "this one".into()));
            panic!("a test's panic");
        }));

        assert!(panicked.is_err());
        assert_eq!(work.take().as_deref(), Some("this one; another"));
    }

    #[test]
    fn description_that_panics_hides_no_other() {
        let work = Arc::new(ActorWork::default());
        let _guards = work.scope(|| (in_progress(|| panic!("a test's panic")), in_progress(|| "another".into())));

        for text in [work.describe(), work.take()] {
            let text = text.expect("two are open");
            assert!(text.starts_with("work without a description (") && text.ends_with("; another"), "{text}");
        }
    }
}
