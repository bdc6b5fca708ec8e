//! Cases of `Broker`: records appended without a watermark.
use ports::Error;

use crate::backend::Backend;
use crate::conformance::fixture::given::{P0, given};

pub(super) async fn appended_records_are_visible_at_once_and_in_order<B: Backend>(backend: &B) {
    let given = given(backend);
    let records = given.records([("k", "1"), ("k", "2"), ("k", "3")]);

    let positions = given.append(records.clone()).await;

    let visible = given.visible().await;
    assert_eq!(visible.iter().map(|message| &message.record).collect::<Vec<_>>(), records.iter().collect::<Vec<_>>());
    assert_eq!(visible.into_iter().map(|message| message.position).collect::<Vec<_>>(), positions);
}

pub(super) async fn an_append_is_all_or_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let records = vec![given.factory.record("a", "1"), given.too_large("b"), given.factory.record("c", "3")];

    let result = given.append_result(records).await;

    assert!(matches!(result, Err(Error::Rejected(_))), "{result:?}");
    assert_eq!(given.values().await, [""; 0]);
    assert_eq!(backend.broker().append(Vec::new()).await.expect("an empty append succeeds"), []);
}

pub(super) async fn an_append_does_not_change_watermarks<B: Backend>(backend: &B) {
    let given = given(backend);
    let session = given.session(0).await;
    given.published(&session, given.batch(P0, 3, given.records([("a", "1")]))).await;

    given.append(given.records([("a", "2")])).await;

    assert_eq!(given.watermark(&session, P0).await, Some(3));
    assert_eq!(given.values().await, ["1", "2"]);
}
