//! The suites detect every flaw: each makes at least one case fail.
use kit::Reference;
use kit::broken::check_all_flaws;

#[tokio::test]
async fn every_flaw_around_the_reference_is_detected() {
    let report = check_all_flaws::<Reference>().await;

    println!("{report}");
    assert!(report.undetected.is_empty(), "{report}");
}
