//! The suite of `Probe`: known names, success while the dependency is healthy, an error once it is unreachable.
use ports::probe::{Probe, ProbeReport};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{MINUTE, SECOND};
use crate::wait::until_answered;

suite! { $ probe:
    every_probe_has_a_known_and_unique_name,
    a_healthy_dependency_passes_its_probe,
    saturation_is_a_share_of_the_capacity_in_use,
    an_unreachable_dependency_fails_its_probe,
}

/// The report of a healthy dependency, which a busy machine may delay beyond the limit of one probe.
async fn answered(probe: &dyn Probe) -> ProbeReport {
    let result = until_answered(MINUTE, || probe.check()).await;
    result.unwrap_or_else(|error| panic!("{}: {error}", probe.name()))
}

async fn every_probe_has_a_known_and_unique_name<B: Backend>(backend: &B) {
    let mut names: Vec<&str> = backend.probes().iter().map(|probe| probe.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();

    assert!(count > 0 && names.len() == count, "{names:?}");
    assert!(names.iter().all(|name| ["db", "broker", "redis"].contains(name)), "{names:?}");
}

async fn a_healthy_dependency_passes_its_probe<B: Backend>(backend: &B) {
    for probe in backend.probes() {
        for _ in 0..3 {
            let report = answered(&*probe).await;
            assert!(report.latency < SECOND * 120, "{}: {:?}", probe.name(), report.latency);
        }
    }
}

async fn saturation_is_a_share_of_the_capacity_in_use<B: Backend>(backend: &B) {
    for probe in backend.probes() {
        answered(&*probe).await;

        // A store has a pool or a queue, which only the task of its heartbeat uses now.
        let share = probe.saturation();
        assert!(share.is_some() || probe.name() != "db", "a store reports its saturation");
        assert!(share.is_none_or(|share| (0.0..0.75).contains(&share)), "{} is idle: {share:?}", probe.name());
    }
}

async fn an_unreachable_dependency_fails_its_probe<B: Backend>(backend: &B) {
    backend.disconnect().await;

    for probe in backend.probes() {
        assert!(probe.check().await.is_err(), "{}", probe.name());
    }
}
