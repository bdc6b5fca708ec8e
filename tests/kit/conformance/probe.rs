//! The suite of `Probe`: known names, success while the dependency is healthy, an error once it is unreachable.
use crate::backend::Backend;
use crate::conformance::fixture::given::SECOND;

suite! { $ probe:
    every_probe_has_a_known_and_unique_name,
    a_healthy_dependency_passes_its_probe,
    saturation_is_between_zero_and_one,
    an_unreachable_dependency_fails_its_probe,
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
            let report = probe.check().await.unwrap_or_else(|error| panic!("{}: {error}", probe.name()));
            assert!(report.latency < SECOND * 30, "{}: {:?}", probe.name(), report.latency);
        }
    }
}

async fn saturation_is_between_zero_and_one<B: Backend>(backend: &B) {
    for probe in backend.probes() {
        let saturation = probe.saturation();
        assert!(saturation.is_none_or(|share| (0.0..=1.0).contains(&share)), "{}: {saturation:?}", probe.name());
    }
}

async fn an_unreachable_dependency_fails_its_probe<B: Backend>(backend: &B) {
    if !backend.cut_off().await {
        return;
    }

    for probe in backend.probes() {
        assert!(probe.check().await.is_err(), "{}", probe.name());
    }
}
