//! Cases of `OrderStore`: retention and sweep of idempotency records.
use domain::Subject;
use ports::orders::{Commit, OrderFilter};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, HOUR, P0, SECOND, fixture};

pub(super) async fn an_idempotency_record_is_found_until_its_retention_ends<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut creation = fixture.factory.creation("ann", P0);
    let idempotency_record = fixture.factory.idempotency_record(&creation.order, "key");
    creation.idempotency_record = Some(idempotency_record.clone());
    fixture.committed(creation).await;
    let find = async |keep| {
        backend
            .orders()
            .find_idempotency_record(&idempotency_record.subject, "key", keep)
            .await
            .expect("the call succeeds")
    };

    fixture.advance(DAY - HOUR).await;
    assert_eq!(find(DAY).await.as_ref(), Some(&idempotency_record));

    fixture.advance(HOUR + SECOND).await;
    assert_eq!(find(DAY).await, None);
    assert_eq!(find(DAY * 2).await.as_ref(), Some(&idempotency_record), "the idempotency record was not swept");
}

pub(super) async fn a_sweep_deletes_only_old_idempotency_records_up_to_its_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let write = async |key: &str| {
        let mut creation = fixture.factory.creation("ann", P0);
        creation.idempotency_record = Some(fixture.factory.idempotency_record(&creation.order, key));
        fixture.committed(creation).await;
    };
    for key in ["old-1", "old-2", "old-3"] {
        write(key).await;
    }
    fixture.advance(DAY + SECOND).await;
    write("young").await;
    fixture.advance(HOUR).await;

    let sweep = async || backend.orders().sweep_idempotency_records(DAY, 2).await.expect("swept");
    assert_eq!((sweep().await, sweep().await, sweep().await), (2, 1, 0));

    let ann = Subject::new("ann").expect("the name is valid");
    assert_eq!(
        backend.orders().find_idempotency_record(&ann, "old-1", DAY * 9).await.expect("the call succeeds"),
        None
    );
    assert!(backend.orders().find_idempotency_record(&ann, "young", DAY).await.expect("the call succeeds").is_some());
    assert_eq!(
        backend.orders().count(&OrderFilter::default()).await.expect("counted"),
        4,
        "a sweep of idempotency records deletes no order"
    );
}

pub(super) async fn a_swept_key_can_be_used_again<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let marked = || {
        let commit = fixture.factory.creation("ann", P0);
        Commit { idempotency_record: Some(fixture.factory.idempotency_record(&commit.order, "key")), ..commit }
    };
    fixture.committed(marked()).await;
    fixture.advance(DAY + SECOND).await;
    backend.orders().sweep_idempotency_records(DAY, 10).await.expect("swept");

    let second = marked();
    fixture.committed(second.clone()).await;

    let found =
        backend.orders().find_idempotency_record(&second.order.owner, "key", DAY).await.expect("the call succeeds");
    assert_eq!(found, second.idempotency_record);
}
