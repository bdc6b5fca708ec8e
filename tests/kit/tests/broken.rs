//! The suites find what is wrong: every flaw makes at least one case fail.
use kit::Reference;
use kit::broken::judge_all;

#[tokio::test]
async fn no_flaw_goes_unnoticed_around_the_reference() {
    let judged = judge_all::<Reference>().await;

    println!("{judged}");
    assert!(judged.unnoticed.is_empty(), "{judged}");
}
