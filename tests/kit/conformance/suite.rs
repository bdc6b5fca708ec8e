//! The macro that names a suite's cases, the runner of one case, and the report of a whole suite.
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use crate::backend::Backend;
use crate::wait::scaled;

/// Longer than any case takes: a backend that hangs fails its case instead of the whole run.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// Expands to one `#[test]` for each case of one suite, for one backend.
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

/// Defines a suite from its cases. The leading `$` lets it define a macro that has parameters of its own.
macro_rules! suite {
    ($d:tt $suite:ident: $($case:ident),+ $(,)?) => {
        /// The names of the suite's cases.
        pub const CASES: &[&str] = &[$(stringify!($case)),+];

        /// Runs one case on a fresh backend. It panics where the backend breaks the rule.
        pub async fn run<B: $crate::backend::Backend>(case: &str) {
            if let Some(reason) = $crate::conformance::suite::skip_reason::<B>(case) {
                println!("skipped: {case}: {reason}");
                return;
            }
            let backend = B::fresh().await;
            match case {
                $(stringify!($case) => Box::pin($case(&backend)).await,)+
                other => panic!("no such case: {other}"),
            }
        }

        /// Runs every case, each on a fresh backend, and reports the failures.
        pub async fn all<B: $crate::backend::Backend>() -> $crate::conformance::suite::SuiteReport {
            let mut report = $crate::conformance::suite::SuiteReport::new(stringify!($suite));
            for case in CASES {
                if $crate::conformance::suite::skip_reason::<B>(case).is_some() {
                    report.skipped.push((*case).to_owned());
                    continue;
                }
                report.add(case, $crate::conformance::suite::failure(run::<B>(case)).await);
            }
            report
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $suite {
            ($d backend:ty) => {
                $(#[test]
                fn $case() {
                    let case = $crate::conformance::$suite::run::<$d backend>(stringify!($case));
                    $crate::conformance::suite::run_in_runtime::<$d backend>(case);
                })+
            };
        }
    };
}

/// Why the backend skips a case, if it does.
#[doc(hidden)]
pub fn skip_reason<B: Backend>(case: &str) -> Option<&'static str> {
    B::SKIPPED.iter().find(|(skipped, _)| *skipped == case).map(|(_, reason)| *reason)
}

/// Runs a case in the backend's runtime.
#[doc(hidden)]
pub fn run_in_runtime<B: Backend>(case: impl Future<Output = ()>) {
    B::runtime().block_on(with_limit(case));
}

/// The panic message of a case that fails.
#[doc(hidden)]
pub async fn failure(case: impl Future<Output = ()>) -> Option<String> {
    AssertUnwindSafe(with_limit(case)).catch_unwind().await.err().map(|panic| panic_message(&*panic))
}

/// Fails a case that hangs. A thread measures the time, because a case may move the runtime's own clock.
async fn with_limit(case: impl Future<Output = ()>) {
    let (finished, watch) = mpsc::channel::<()>();
    let (expire, expired) = oneshot::channel();
    std::thread::spawn(move || {
        if watch.recv_timeout(scaled(CASE_LIMIT)) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The send fails only if the case finished at this moment, and then it is not needed.
            let _ = expire.send(());
        }
    });
    let case = Box::pin(case);
    // Cancellation: dropping a case that hangs is intended, and dropping `expired` has no effect.
    tokio::select! {
        () = case => drop(finished),
        Ok(()) = expired => panic!("the case hangs"),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// The result of a suite on one backend.
#[derive(Clone, Debug)]
pub struct SuiteReport {
    /// The suite's name, as in `conformance_suite!`.
    pub suite: &'static str,
    /// The names of the cases that passed.
    pub passed: Vec<String>,
    /// The names of the cases that the backend skips.
    pub skipped: Vec<String>,
    /// The cases that failed, each with its panic message.
    pub failed: Vec<(String, String)>,
}

impl SuiteReport {
    pub(crate) fn new(suite: &'static str) -> Self {
        Self { suite, passed: Vec::new(), skipped: Vec::new(), failed: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: &str, failure: Option<String>) {
        match failure {
            None => self.passed.push(case.to_owned()),
            Some(failure) => self.failed.push((case.to_owned(), failure)),
        }
    }

    /// Panics with every failure, unless all cases passed.
    pub fn assert_green(&self) {
        assert!(self.failed.is_empty(), "{self}");
    }
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, skipped, failed) = (self.passed.len(), self.skipped.len(), self.failed.len());
        writeln!(f, "{}: {passed} passed, {skipped} skipped, {failed} failed", self.suite)?;
        self.skipped.iter().try_for_each(|case| writeln!(f, "  {case}: skipped"))?;
        self.failed.iter().try_for_each(|(case, failure)| writeln!(f, "  {case}: {failure}"))
    }
}
