//! The claim's SQL restates the size of a batch; this holds it to the cases of the crate `outbox`: claimed alone, and several in one round.
use outbox::cases::{ClaimSizeCase, claim_size_cases};
use ports::outbox::ClaimOutcome;

use crate::relay::fixture::{LEASE, RelayFixture, claim};

/// Replaces the rows of partition $3 by one row per element of $1, its deaths, each of another key; closes the open batch.
const RESET: &str = "WITH gone AS (DELETE FROM outbox WHERE partition = $3),
     closed AS (UPDATE outbox_lease SET in_flight = NULL, lane = NULL, claim_epoch = NULL, claimer = NULL, died = false, trial = false,
       first_id = NULL, last_id = NULL, open_ids = NULL WHERE partition = $3)
     INSERT INTO outbox (partition, id, key, bytes, deaths)
     SELECT $3, $2 + d.number, gen_random_uuid(), 1, d.deaths FROM unnest($1::int2[]) WITH ORDINALITY AS d (deaths, number)";

async fn reset(fixture: &mut RelayFixture, partition: i32, first_id: i64, case: &ClaimSizeCase) {
    let deaths: Vec<i16> = case.deaths.iter().map(|deaths| i16::try_from(*deaths).unwrap()).collect();
    fixture.client.execute(RESET, &[&deaths, &first_id, &partition]).await.unwrap();
    fixture.fences[partition as usize] = fixture.acquire(partition as u32, LEASE).await.fence;
}

fn assert_taken(claimed: ClaimOutcome, first_id: i64, case: &ClaimSizeCase) {
    let ClaimOutcome::Batch(batch) = claimed else { panic!("rows are due: {case:?}") };
    let expected: Vec<i64> = (1..=case.taken as i64).map(|offset| first_id + offset).collect();
    assert_eq!(batch.rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{case:?}");
    assert_eq!(batch.more, case.taken < case.deaths.len(), "{case:?}");
}

#[tokio::test]
async fn claimed_rows_follow_the_rule_of_claim_sizes() {
    let mut fixture = RelayFixture::new().await;
    let cases = claim_size_cases();
    assert!(cases.len() > 50);

    for (number, case) in cases.iter().enumerate() {
        let first_id = (number as i64 + 1) * 1_000;
        reset(&mut fixture, 0, first_id, case).await;
        let claimed = claim(&fixture.store, &fixture.fences[0], case.limit).await.unwrap();
        assert_taken(claimed, first_id, case);
    }
}

#[tokio::test]
async fn claims_of_one_round_follow_the_rule_of_claim_sizes() {
    let cases = claim_size_cases();
    // A store for each round: after a claim that left rows behind, the partition would claim alone.
    let mut fixture = RelayFixture::new().await;
    for (number, cases) in cases.chunks(4).enumerate() {
        let first_id = |partition: usize| (number * 4 + partition + 1) as i64 * 1_000;
        for (partition, case) in cases.iter().enumerate() {
            reset(&mut fixture, partition as i32, first_id(partition), case).await;
        }
        fixture.reopen().await;
        let claims = cases
            .iter()
            .enumerate()
            .map(|(partition, case)| claim(&fixture.store, &fixture.fences[partition], case.limit));
        let claimed = fixture.in_one_round(claims).await;
        let partitions: Vec<i32> = (0..cases.len() as i32).collect();
        assert_eq!(fixture.writers(&partitions).await, 1);
        for (partition, (case, claimed)) in cases.iter().zip(claimed).enumerate() {
            assert_taken(claimed.unwrap(), first_id(partition), case);
        }
    }
}
