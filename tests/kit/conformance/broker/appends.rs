//! Cases of `Broker`: records appended without a watermark.
use ports::Error;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, fixture};

pub(super) async fn appended_records_are_visible_at_once_and_in_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let records = fixture.records([("k", "1"), ("k", "2"), ("k", "3")]);

    let positions = fixture.append(records.clone()).await;

    let visible = fixture.visible().await;
    assert_eq!(visible.iter().map(|message| &message.record).collect::<Vec<_>>(), records.iter().collect::<Vec<_>>());
    assert_eq!(visible.into_iter().map(|message| message.position).collect::<Vec<_>>(), positions);
}

pub(super) async fn an_append_is_all_or_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let records = vec![fixture.factory.record("a", "1"), fixture.too_large("b"), fixture.factory.record("c", "3")];

    let result = fixture.append_result(records).await;

    assert!(matches!(result, Err(Error::Rejected(_))), "{result:?}");
    assert_eq!(fixture.values().await, [""; 0]);
    assert_eq!(backend.broker().append(Vec::new()).await.expect("an empty append succeeds"), []);
}

pub(super) async fn an_append_does_not_change_watermarks<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    fixture.published(&session, fixture.batch(P0, 3, fixture.records([("a", "1")]))).await;

    fixture.append(fixture.records([("a", "2")])).await;

    assert_eq!(fixture.watermark(&session, P0).await, Some(3));
    assert_eq!(fixture.values().await, ["1", "2"]);
}
