//! The claim's SQL restates the size of a batch; this holds it to the cases of the crate `outbox`.
use std::time::Duration;

use outbox::cases::claim_size_cases;
use ports::outbox::{Claim, ClaimKind, Claimed, OutboxStore};
use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId};

use crate::support::Database;

/// Replaces the rows of partition 0 by one row per element of $1, its deaths, each of another key; closes the open batch.
const RESET: &str = "WITH gone AS (DELETE FROM outbox), closed AS (UPDATE outbox_lease SET in_flight = NULL, lane = NULL,
       claim_epoch = NULL, died = false, trial = false, first_id = NULL, last_id = NULL)
     INSERT INTO outbox (partition, id, key, bytes, deaths)
     SELECT 0, $2 + d.number, gen_random_uuid(), 1, d.deaths FROM unnest($1::int2[]) WITH ORDINALITY AS d (deaths, number)";

#[tokio::test]
async fn claimed_rows_follow_the_rule_of_claim_sizes() {
    let database = Database::migrated().await;
    let (store, client) = (database.store("a").await, database.client().await);
    let (partition, owner) = (PartitionNo(0), InstanceId("a".into()));
    let cases = claim_size_cases();
    assert!(cases.len() > 50);

    for (number, case) in cases.iter().enumerate() {
        let deaths: Vec<i16> = case.deaths.iter().map(|deaths| i16::try_from(*deaths).unwrap()).collect();
        let first_id = (number as i64 + 1) * 1_000;
        client.execute(RESET, &[&deaths, &first_id]).await.unwrap();
        let ttl = Duration::from_secs(600);
        let acquired = store.acquire(partition, &owner, AcquireReason::Uncertain, None, ttl).await.unwrap();
        let Acquisition::Taken(acquired) = acquired else { panic!("{acquired:?}") };

        let session = ProducerSessionId("session".into());
        let claim = Claim { fence: acquired.fence, session, limit: case.limit, kind: ClaimKind::Ordinary };
        let Claimed::Batch(batch) = store.claim(claim).await.unwrap() else { panic!("rows are due: {case:?}") };

        let expected: Vec<i64> = (1..=case.taken as i64).map(|offset| first_id + offset).collect();
        assert_eq!(batch.rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{case:?}");
        assert_eq!(batch.more, case.taken < case.deaths.len(), "{case:?}");
    }
}
