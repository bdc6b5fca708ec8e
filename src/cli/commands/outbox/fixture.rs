//! Rows for the tests of the outbox commands.
use app::port_types::{EventKey, FailureType, PartitionNo, RowDiagnosis, RowStatus, RowView};
use domain::{EventId, Timestamp};

/// The key of every row here.
pub(super) const KEY: &str = "0197a1f0-0000-7000-8000-00000000000a";

pub(super) fn parked_row() -> RowView {
    RowView {
        id: 6,
        event_id: EventId::new_v7(Timestamp::from_millis(1_000), [1; 10]),
        key: EventKey::parse(KEY).expect("a key"),
        event_type: "ORDER_CREATED".into(),
        partition: PartitionNo(7),
        status: RowStatus::Parked,
        lease_owner: None,
        lease_version: 5,
        retry_count: 12,
        next_attempt_at: None,
        last_attempt_at: Some(Timestamp::from_millis(2_000)),
        failure_type: Some(FailureType::Network),
        last_failure_reason: Some("connection refused".into()),
        created_at: Timestamp::from_millis(1_000),
        sent_at: None,
    }
}

/// The diagnosis of a row whose partition has no owner and before which no other row waits.
pub(super) fn diagnosis(row: RowView) -> RowDiagnosis {
    RowDiagnosis { row, head: None, owner: None, epoch: 4, deaths: 0, sent_to: None, by_fallback: false }
}
