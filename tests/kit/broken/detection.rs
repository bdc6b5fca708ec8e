//! Runs the suites on broken backends and reports the flaws that no case detects.
use std::fmt;

use crate::backend::Backend;
use crate::broken::backend::{BrokenBackend, FLAW};
use crate::broken::flaw::{Flaw, with_flaws_by_suite};
use crate::conformance;
use crate::conformance::suite::SuiteReport;

macro_rules! define_run_suite {
    ($($suite:ident: $($flaw:ident),+;)+) => {
        /// Runs the suite that must detect this flaw, on backends that have it.
        pub async fn run_suite_with<B: Backend>(flaw: Flaw) -> SuiteReport {
            let suite = async {
                match flaw {
                    $($(Flaw::$flaw)|+ => Box::pin(conformance::$suite::all::<BrokenBackend<B>>()).await,)+
                }
            };
            FLAW.scope(flaw, suite).await
        }
    };
}

with_flaws_by_suite!(define_run_suite);

/// Which flaws the suites detected.
#[derive(Clone, Debug, Default)]
pub struct FlawReport {
    /// Flaws with which every case passed: their suites miss a rule.
    pub undetected: Vec<Flaw>,
    /// The other flaws, each with the cases that failed.
    pub detected: Vec<(Flaw, Vec<String>)>,
}

/// Runs the suites with every flaw around this backend.
pub async fn check_all_flaws<B: Backend>() -> FlawReport {
    let mut report = FlawReport::default();
    for flaw in Flaw::ALL {
        let failed: Vec<String> = run_suite_with::<B>(*flaw).await.failed.into_iter().map(|(case, _)| case).collect();
        if failed.is_empty() {
            report.undetected.push(*flaw);
        } else {
            report.detected.push((*flaw, failed));
        }
    }
    report
}

impl fmt::Display for FlawReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.detected.iter().try_for_each(|(flaw, cases)| writeln!(f, "{flaw:?}: {}", cases.join(", ")))?;
        self.undetected.iter().try_for_each(|flaw| writeln!(f, "{flaw:?}: NOT DETECTED"))
    }
}
