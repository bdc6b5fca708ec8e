//! The suite of `Probe`: known names, a sign of life while all is well, an error once it is not.
use super::given::SECOND;
use crate::backend::Backend;

suite! { $ probe:
    every_probe_has_a_known_name_of_its_own,
    a_dependency_that_is_well_gives_a_sign_of_life,
    saturation_is_a_share,
    a_dependency_that_is_cut_off_gives_none,
}

async fn every_probe_has_a_known_name_of_its_own<B: Backend>(backend: &B) {
    let mut names: Vec<&str> = backend.probes().iter().map(|probe| probe.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();

    assert!(count > 0 && names.len() == count, "{names:?}");
    assert!(names.iter().all(|name| ["db", "broker", "redis"].contains(name)), "{names:?}");
}

async fn a_dependency_that_is_well_gives_a_sign_of_life<B: Backend>(backend: &B) {
    for probe in backend.probes() {
        for _ in 0..3 {
            let pulse = probe.check().await.unwrap_or_else(|error| panic!("{}: {error}", probe.name()));
            assert!(pulse.latency < SECOND * 30, "{}: {:?}", probe.name(), pulse.latency);
        }
    }
}

async fn saturation_is_a_share<B: Backend>(backend: &B) {
    for probe in backend.probes() {
        let saturation = probe.saturation();
        assert!(saturation.is_none_or(|share| (0.0..=1.0).contains(&share)), "{}: {saturation:?}", probe.name());
    }
}

async fn a_dependency_that_is_cut_off_gives_none<B: Backend>(backend: &B) {
    if !backend.cut_off().await {
        return;
    }

    for probe in backend.probes() {
        assert!(probe.check().await.is_err(), "{}", probe.name());
    }
}
