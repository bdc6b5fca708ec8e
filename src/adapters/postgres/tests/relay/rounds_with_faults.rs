//! Rounds that wait for locks, lose their callers or their connection, or run while the store closes.
use std::time::Duration;

use kit::wait::scaled;
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RedriveMode, RowFilter};
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, RowStatus};
use ports::partitions::{InstanceId, LeaseFence, PartitionLeases, ProducerSessionId};
use postgres::{Options, Postgres};

use crate::proxy::{Cut, Proxy};
use crate::relay::fixture::{LEASE, LOCK_WAIT, RelayFixture, acquire, batch, claim, settlement};
use crate::support::{reopened, until};

#[tokio::test]
async fn leases_that_expire_while_a_round_waits_drop_out_of_it() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    for partition in [0, 1] {
        fixture.fences[partition] = fixture.acquire(partition as u32, Duration::from_millis(900)).await.fence;
    }
    let holder = fixture.database.client().await;
    holder
        .batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition IN (1, 2) ORDER BY partition FOR UPDATE")
        .await
        .unwrap();

    let calls = fixture.in_one_round(fixture.fences.iter().map(|fence| claim(&fixture.store, fence, 100)));
    let release = async {
        until("both leases to expire", async || {
            let text = "SELECT 1 FROM outbox_lease HAVING count(*) FILTER (WHERE expires_at < clock_timestamp()) = 2";
            fixture.client.query_opt(text, &[]).await.unwrap()
        })
        .await;
        fixture.until_waiting_for("transactionid").await;
        holder.batch_execute("ROLLBACK").await.unwrap();
    };
    let (claimed, ()) = tokio::join!(calls, release);

    let claimed: Vec<_> = claimed.into_iter().map(Result::unwrap).collect();
    assert!(
        matches!(
            claimed[..],
            [ClaimOutcome::Fenced, ClaimOutcome::Fenced, ClaimOutcome::Batch(_), ClaimOutcome::Batch(_)]
        ),
        "{claimed:?}"
    );
}

/// The statement reads the rows with the snapshot from before its wait; only the counter shows what was committed meanwhile.
#[tokio::test]
async fn partition_that_changed_while_a_round_waits_drops_out_of_it() {
    let fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let holder = fixture.database.client().await;
    let change = "BEGIN; UPDATE outbox_lease SET counter = counter + 1 WHERE partition = 1;
         UPDATE outbox_lease SET expires_at = expires_at + interval '1 s' WHERE partition = 2";
    holder.batch_execute(change).await.unwrap();

    let claims = fixture.in_one_round(fixture.fences.iter().map(|fence| claim(&fixture.store, fence, 100)));
    let commit = async {
        fixture.until_waiting_for("transactionid").await;
        let block = "UPDATE outbox SET status = 2 WHERE partition = 1;
             INSERT INTO outbox_waiting SELECT partition, key, id, now() + interval '1 hour', true, false FROM outbox WHERE partition = 1;
             COMMIT";
        holder.batch_execute(block).await.unwrap();
    };
    let (claims, ()) = tokio::join!(claims, commit);

    let claimed: Vec<_> = claims.into_iter().map(Result::unwrap).collect();
    assert!(
        matches!(
            claimed[..],
            [ClaimOutcome::Batch(_), ClaimOutcome::Fenced, ClaimOutcome::Batch(_), ClaimOutcome::Batch(_)]
        ),
        "{claimed:?}"
    );
    assert_eq!(fixture.writers(&[0, 2, 3]).await, 1);
    use RowStatus::{Failed, InFlight};
    assert_eq!(fixture.statuses().await, [InFlight, Failed, InFlight, InFlight]);
}

/// A renewal locks the lease rows in the order of their numbers, and the round does so for claims and settlements together.
#[tokio::test]
async fn round_that_waits_for_a_renewal_holds_no_later_lease_row() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let open = fixture.claim_batch(0).await;
    let renewal = fixture.database.client().await;
    renewal.batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition = 0 FOR UPDATE").await.unwrap();

    let blocked_round = fixture.blocked_round().await;
    let mut claimed = Box::pin(claim(&fixture.store, &fixture.fences[2], 10));
    let mut settled = Box::pin(fixture.store.settle(settlement(&fixture.fences[0], &open)));
    assert!(futures::poll!(&mut claimed).is_pending());
    assert!(futures::poll!(&mut settled).is_pending());
    blocked_round.commit().await;
    fixture.until_waiting_for("transactionid").await;
    renewal.batch_execute("SELECT 1 FROM outbox_lease WHERE partition = 2 FOR UPDATE NOWAIT; COMMIT").await.unwrap();

    let (claimed, settled) = tokio::join!(claimed, settled);
    batch(claimed.unwrap());
    assert!(matches!(settled, Ok(FencedOutcome::Done { rows: 1, .. })), "{settled:?}");
    assert_eq!(fixture.writers(&[0, 2]).await, 1);
}

#[tokio::test]
async fn dropped_callers_cancel_neither_the_round_nor_the_others() {
    let fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let blocked_round = fixture.blocked_round().await;
    let mut waiting = Box::pin(claim(&fixture.store, &fixture.fences[0], 10));
    let mut dropped = Box::pin(claim(&fixture.store, &fixture.fences[1], 10));
    let mut other = Box::pin(claim(&fixture.store, &fixture.fences[2], 10));
    assert!(futures::poll!(&mut waiting).is_pending());
    assert!(futures::poll!(&mut dropped).is_pending());
    assert!(futures::poll!(&mut other).is_pending());
    drop(dropped);
    blocked_round.commit().await;
    batch(waiting.await.unwrap());
    batch(other.await.unwrap());
    assert!(fixture.acquire(1, LEASE).await.open_batch.is_none(), "a claim that no caller waits for does not begin");

    // The caller goes away while its statement waits for a lock.
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition = 3 FOR UPDATE").await.unwrap();
    let mut begun = Box::pin(claim(&fixture.store, &fixture.fences[3], 10));
    assert!(futures::poll!(&mut begun).is_pending());
    fixture.until_waiting_for("transactionid").await;
    drop(begun);
    holder.batch_execute("ROLLBACK").await.unwrap();
    until("the claim to take effect", async || {
        let text = "SELECT 1 FROM outbox_lease WHERE partition = 3 AND in_flight IS NOT NULL";
        fixture.client.query_opt(text, &[]).await.unwrap()
    })
    .await;
}

/// While a backlog drains, all partitions have full batches, and a heartbeat that waits behind them would lose the leases.
#[tokio::test]
async fn full_batches_leave_a_connection_for_everything_else() {
    let fixture = RelayFixture::new().await;
    let mut batches = Vec::new();
    for partition in [0, 1] {
        fixture.create(partition, 2).await;
        let first = batch(claim(&fixture.store, &fixture.fences[partition as usize], 1).await.unwrap());
        assert!(first.more, "the batch is full");
        batches.push(first);
    }
    let holder = fixture.database.client().await;
    holder
        .batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition IN (0, 1) ORDER BY partition FOR UPDATE")
        .await
        .unwrap();

    let settle = |partition: usize| fixture.store.settle(settlement(&fixture.fences[partition], &batches[partition]));
    let mut settled = Box::pin(futures::future::join(settle(0), settle(1)));
    assert!(futures::poll!(&mut settled).is_pending());
    fixture.until_waiting_for("transactionid").await;
    fixture.store.depth().await.expect("a connection is free");
    assert!(futures::poll!(&mut settled).is_pending(), "the leases are still locked");
    holder.batch_execute("ROLLBACK").await.unwrap();

    let (first, second) = settled.await;
    assert!([first, second].iter().all(|settled| matches!(settled, Ok(FencedOutcome::Done { .. }))));
}

/// A round through a proxy that cuts its connection at the COMMIT.
async fn round_without_a_reply(
    cut: Cut,
) -> (RelayFixture, Vec<Result<ClaimOutcome, Error>>, Result<FencedOutcome, Error>) {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let open = fixture.claim_batch(0).await;
    let proxy = Proxy::to(&fixture.database.url).await;
    fixture.store.close().await.unwrap();
    let options = fixture.database.options("a");
    fixture.store = reopened(Options {
        url: proxy.url(&fixture.database.url).into(),
        relay_connections: 1,
        relay_lock_timeout: scaled(LOCK_WAIT),
        ..options
    })
    .await;
    // Prepares the statements: the round itself is one request.
    let stale: Vec<LeaseFence> = fixture.fences.iter().map(|fence| LeaseFence { epoch: 0, ..fence.clone() }).collect();
    fixture.in_one_round(stale.iter().skip(1).map(|fence| claim(&fixture.store, fence, 10))).await;
    let settle = |fence: &LeaseFence| fixture.store.settle(settlement(fence, &open));
    fixture.in_one_round([settle(&stale[0]), settle(&LeaseFence { epoch: 0, ..fixture.fences[1].clone() })]).await;

    let blocked_round = fixture.blocked_round().await;
    let mut claims = Box::pin(futures::future::join_all(
        [1, 2, 3].map(|partition| claim(&fixture.store, &fixture.fences[partition], 10)),
    ));
    let mut settled = Box::pin(settle(&fixture.fences[0]));
    assert!(futures::poll!(&mut claims).is_pending());
    assert!(futures::poll!(&mut settled).is_pending());
    proxy.cut_at(b"COMMIT\0", cut);
    blocked_round.commit().await;
    let (claimed, settled) = tokio::join!(claims, settled);
    assert_eq!(proxy.cuts(), 1);
    (fixture, claimed, settled)
}

#[tokio::test]
async fn lost_reply_of_a_round_is_unknown_to_all_its_callers() {
    for cut in [Cut::BeforeRequest, Cut::AfterReply] {
        let (fixture, claimed, settled) = round_without_a_reply(cut).await;

        assert!(claimed.iter().all(|claimed| matches!(claimed, Err(Error::Unknown(_)))), "{cut:?}: {claimed:?}");
        assert!(matches!(settled, Err(Error::Unknown(_))), "{cut:?}: {settled:?}");
        // One transaction: it took effect for all partitions or for none.
        let mut open = Vec::new();
        for partition in [1, 2, 3] {
            open.push(acquire(&fixture.store, partition, LEASE).await.open_batch.is_some());
        }
        let settled = fixture.store.depth().await.unwrap().sent == 1;
        assert!(open.iter().all(|open| *open == settled), "{cut:?}: {open:?} {settled}");
        assert!(cut != Cut::BeforeRequest || !settled);
    }
}

#[tokio::test]
async fn closing_refuses_what_waits_and_finishes_what_runs() {
    let fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition = 0 FOR UPDATE").await.unwrap();
    let mut running = Box::pin(claim(&fixture.store, &fixture.fences[0], 10));
    assert!(futures::poll!(&mut running).is_pending());
    fixture.until_waiting_for("transactionid").await;
    let mut waiting = Box::pin(claim(&fixture.store, &fixture.fences[1], 10));
    assert!(futures::poll!(&mut waiting).is_pending());

    let mut closing = Box::pin(fixture.store.close());
    assert!(futures::poll!(&mut closing).is_pending());
    assert!(matches!(waiting.await, Err(Error::Unreachable(_))));
    holder.batch_execute("ROLLBACK").await.unwrap();

    batch(running.await.unwrap());
    closing.await.unwrap();
    assert!(matches!(claim(&fixture.store, &fixture.fences[2], 10).await, Err(Error::Unreachable(_))));
}

/// Parks every row, and returns their number.
async fn park_all(store: &Postgres, audit: &Audit) -> usize {
    let rows = store.rows(&RowFilter::default(), 1_000).await.unwrap();
    for row in &rows {
        assert_eq!(store.park(row.id, audit).await.unwrap(), OperatorOutcome::Done(1));
    }
    rows.len()
}

fn audit() -> Audit {
    Audit { operator: "olga".into(), reason: "the broker is back".into() }
}

#[tokio::test]
async fn redrive_that_waits_for_a_row_holds_the_lease_of_no_other_partition() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    park_all(&fixture.store, &audit()).await;
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; SELECT 1 FROM outbox WHERE partition = 1 FOR UPDATE").await.unwrap();
    let store = fixture.store.clone();
    let redrive =
        tokio::spawn(async move { store.redrive(&RowFilter::default(), 100, RedriveMode::Execute, &audit()).await });
    fixture.until_waiting_for("transactionid").await;

    fixture.fences[0] = fixture.acquire(0, LEASE).await.fence;
    let claimed = fixture.claim_batch(0).await;
    fixture.settle(0, &claimed).await;
    let heartbeat = fixture.store.heartbeat(&InstanceId("a".into()), LEASE).await;

    assert_eq!(claimed.rows.len(), 1, "the first partition was redriven");
    assert!(heartbeat.is_ok() && !redrive.is_finished(), "{heartbeat:?}");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'transactionid'";
    fixture.sql(end).await;
    let interrupted = redrive.await.unwrap().unwrap_err();
    assert!(interrupted.outcome_unknown(), "{interrupted}");
    assert!(interrupted.to_string().contains("1 rows were made due before"), "{interrupted}");
    holder.batch_execute("ROLLBACK").await.unwrap();
    let rest = fixture.store.redrive(&RowFilter::default(), 100, RedriveMode::Execute, &audit()).await;
    assert_eq!(rest.unwrap(), OperatorOutcome::Done(3));
}

#[tokio::test]
async fn redrive_reads_the_rows_of_a_partition_with_one_statement() {
    let fixture = RelayFixture::new().await;
    fixture.create(0, 20).await;
    fixture.create(2, 20).await;
    let parked = park_all(&fixture.store, &audit()).await;
    let proxy = Proxy::to(&fixture.database.url).await;
    let options = Options { url: proxy.url(&fixture.database.url).into(), ..fixture.database.options("b") };
    let store = Postgres::open(options).await.unwrap();
    assert_eq!(
        store.redrive(&RowFilter::default(), 1, RedriveMode::Execute, &audit()).await.unwrap(),
        OperatorOutcome::Done(1)
    );

    let before = proxy.requests();
    let redriven = store.redrive(&RowFilter::default(), 1_000, RedriveMode::Execute, &audit()).await.unwrap();

    assert_eq!((parked, redriven), (40, OperatorOutcome::Done(39)));
    let requests = proxy.requests() - before;
    assert!(requests < 39, "{requests} requests");
}

/// A crash of the server that undid a claim would make its rows claimable again, although the broker may have committed them.
#[tokio::test]
async fn rounds_that_claim_wait_for_the_disk_also_where_settlements_need_not() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let open = [fixture.claim_batch(0).await, fixture.claim_batch(1).await, fixture.claim_batch(2).await];
    let proxy = Proxy::to(&fixture.database.url).await;
    fixture.store.close().await.unwrap();
    let url = proxy.url(&fixture.database.url).into();
    // After the lock time-out the settlement would not wait for the round that is blocked, and would go without the claim.
    let relay_lock_timeout = scaled(LOCK_WAIT);
    let options = Options { url, relay_lock_timeout, flush_settlements: false, ..fixture.database.options("a") };
    fixture.store = reopened(options).await;
    proxy.cut_at(b"synchronous_commit = off", Cut::BeforeRequest);

    let blocked_round = fixture.blocked_round().await;
    let mut claimed = Box::pin(claim(&fixture.store, &fixture.fences[3], 10));
    let mut settled = Box::pin(fixture.store.settle(settlement(&fixture.fences[0], &open[0])));
    assert!(futures::poll!(&mut claimed).is_pending());
    assert!(futures::poll!(&mut settled).is_pending());
    blocked_round.commit().await;
    let (claimed, settled) = tokio::join!(claimed, settled);
    assert!(matches!((claimed, settled), (Ok(ClaimOutcome::Batch(_)), Ok(FencedOutcome::Done { .. }))));

    let session = ProducerSessionId("session".into());
    let next = Claim { fence: fixture.fences[1].clone(), session, limit: 10, kind: ClaimKind::Ordinary };
    let both = fixture.store.settle_and_claim(settlement(&fixture.fences[1], &open[1]), next).await.unwrap();
    assert!(matches!(both.settled, FencedOutcome::Done { .. }));
    assert_eq!(proxy.cuts(), 0, "no transaction with a claim was without the wait");

    let alone = fixture.store.settle(settlement(&fixture.fences[2], &open[2])).await;
    assert_eq!(proxy.cuts(), 1, "a settlement alone is: {alone:?}");
}
