//! The suites: one per port, one case per promise. A case is a sentence about the port; it panics where the sentence is false.
//!
//! A backend crate writes one line per port and gets one `#[test]` per case:
//! ```text
//! kit::conformance_suite!(outbox, MyBackend);
//! ```
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use crate::backend::Backend;

/// What no case should need; a backend that hangs fails its case instead of the whole run.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// Expands to the cases of one suite for one backend.
#[macro_export]
macro_rules! conformance_suite {
    ($suite:ident, $backend:ty) => {
        mod $suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::$suite!($backend);
        }
    };
}

/// Names the cases of a suite. The `$` it is given lets it write a macro that has parameters of its own.
macro_rules! suite {
    ($d:tt $suite:ident: $($case:ident),+ $(,)?) => {
        /// The suite's cases.
        pub const CASES: &[&str] = &[$(stringify!($case)),+];

        /// Runs one case on a fresh backend. It panics where the promise is broken.
        pub async fn run<B: $crate::Backend>(case: &str) {
            let backend = B::fresh().await;
            match case {
                $(stringify!($case) => Box::pin($case(&backend)).await,)+
                other => panic!("no such case: {other}"),
            }
        }

        /// Runs every case, each on a fresh backend, and says which fail.
        pub async fn all<B: $crate::Backend>() -> $crate::conformance::Report {
            let mut report = $crate::conformance::Report::new(stringify!($suite));
            for case in CASES {
                report.add(case, $crate::conformance::outcome(run::<B>(case)).await);
            }
            report
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $suite {
            ($d backend:ty) => {
                $(#[test]
                fn $case() {
                    $crate::conformance::in_runtime::<$d backend>($crate::conformance::$suite::run::<$d backend>(stringify!($case)));
                })+
            };
        }
    };
}

pub mod broker;
mod broker_aborts;
pub mod cache;
mod given;
pub mod idempotency;
pub mod inbox;
pub mod operators;
mod operators_acts;
mod order_pages;
pub mod orders;
pub mod outbox;
mod outbox_blocks;
mod outbox_claims;
mod outbox_deaths;
mod outbox_exclusions;
mod outbox_settlements;
pub mod partitions;
mod partitions_handover;
pub mod probe;
pub mod rate_limit;
pub mod redrives;
pub mod source;
pub mod topics;
mod worker;

/// Runs a case in the backend's runtime.
#[doc(hidden)]
pub fn in_runtime<B: Backend>(case: impl Future<Output = ()>) {
    B::runtime().block_on(limited(case));
}

/// What a case said when it failed, if it failed.
#[doc(hidden)]
pub async fn outcome(case: impl Future<Output = ()>) -> Option<String> {
    AssertUnwindSafe(limited(case)).catch_unwind().await.err().map(|panic| words(&*panic))
}

/// Ends a case that hangs, measured outside the runtime: a case may move the runtime's own clock as it likes.
async fn limited(case: impl Future<Output = ()>) {
    let (ended, watched) = mpsc::channel::<()>();
    let (alarm, rung) = oneshot::channel();
    std::thread::spawn(move || {
        if watched.recv_timeout(CASE_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The case may have ended in this very moment: then nobody listens, and nobody needs to.
            let _ = alarm.send(());
        }
    });
    let case = Box::pin(case);
    // Whichever is dropped here is over: a case that hangs is given up, an alarm that was not needed never rings.
    tokio::select! {
        () = case => drop(ended),
        Ok(()) = rung => panic!("the case hangs"),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// What a suite found out about a backend.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which suite.
    pub suite: &'static str,
    /// Cases that passed.
    pub passed: Vec<String>,
    /// Cases that failed, and what they said.
    pub failed: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn new(suite: &'static str) -> Self {
        Self { suite, passed: Vec::new(), failed: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: &str, failure: Option<String>) {
        match failure {
            None => self.passed.push(case.to_owned()),
            Some(failure) => self.failed.push((case.to_owned(), failure)),
        }
    }

    /// Panics with all that failed, if anything did.
    pub fn assert_green(&self) {
        assert!(self.failed.is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} passed, {} failed", self.suite, self.passed.len(), self.failed.len())?;
        self.failed.iter().try_for_each(|(case, failure)| writeln!(f, "  {case}: {failure}"))
    }
}
