//! Where scans begin: a transaction that is still running makes no claim slower, and no event of it is lost, whenever it commits.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::Status;
use ports::orders::OrderStore;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch, FencedOutcome, OutboxStore};
use ports::partitions::{LeaseFence, PartitionNo, ProducerSessionId};
use postgres::Postgres;
use tokio_postgres::Client;

use crate::relay::fixture::{RelayFixture, batch, claim, settlement};
use crate::support::{reopened, until};

/// A step of a writer: it gets its transaction's number, inserts an event, or commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Insert,
    Commit,
    Rollback,
}

/// Inserts an event and its row as a creation does, without its order.
fn insert(partition: u32) -> String {
    format!(
        "WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
             payload) VALUES (gen_random_uuid(), gen_random_uuid(), {partition}, 1, now(), 0, 0, 'ORDER_CREATED', 'orders', 'eu', 'x')
           RETURNING id, key, partition)
         INSERT INTO outbox (partition, id, key, bytes) SELECT partition, id, key, 1 FROM e"
    )
}

/// All orders in which writers with these steps can be interleaved: per position the writer whose next step it is.
fn interleavings(left: &[usize]) -> Vec<Vec<usize>> {
    if left.iter().all(|steps| *steps == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for writer in (0..left.len()).filter(|writer| left[*writer] > 0) {
        let mut rest = left.to_vec();
        rest[writer] -= 1;
        for mut tail in interleavings(&rest) {
            tail.insert(0, writer);
            all.push(tail);
        }
    }
    all
}

async fn run(client: &Client, step: Step, partitions: &[u32]) {
    let text = match step {
        // As in a create: writing the order assigns the transaction's number before an event draws its id.
        Step::Begin => "BEGIN; SELECT pg_current_xact_id()".to_string(),
        Step::Insert => partitions.iter().map(|partition| insert(*partition)).collect::<Vec<_>>().join(";"),
        Step::Commit => "COMMIT".into(),
        Step::Rollback => "ROLLBACK".into(),
    };
    client.batch_execute(&text).await.unwrap();
}

/// The open batch of each partition.
type OpenBatches = BTreeMap<usize, ClaimedBatch>;

/// Claims after the settlement of the open batch, if there is one. Returns the counter after the settlement, and the claim's result.
async fn settle_and_claim(
    store: &Postgres,
    fence: LeaseFence,
    open: Option<&ClaimedBatch>,
    limit: u32,
) -> (u64, ClaimOutcome) {
    let Some(open) = open else { return (fence.counter, claim(store, &fence, limit).await.unwrap()) };
    let session = ProducerSessionId("session".into());
    let next = Claim { fence: fence.clone(), session, limit, kind: ClaimKind::Ordinary };
    let result = store.settle_and_claim(settlement(&fence, open), next).await.unwrap();
    let FencedOutcome::Done { counter, .. } = result.settled else { panic!("the batch is open") };
    (counter, result.claimed.unwrap())
}

impl RelayFixture {
    /// Claims and settles what is due in these partitions until nothing is, each claim in one round with the settlements before it. Returns
    /// the number of rows.
    async fn relay_in_mixed_rounds(&mut self, partitions: &[usize], limit: u32, open: &mut OpenBatches) -> usize {
        let mut relayed = 0;
        loop {
            let calls = partitions.iter().map(|partition| {
                let (fence, open) = (self.fences[*partition].clone(), open.get(partition));
                settle_and_claim(&self.store, fence, open, limit)
            });
            let results = futures::future::join_all(calls).await;
            let before = relayed;
            for (partition, (counter, claimed)) in partitions.iter().zip(results) {
                self.fences[*partition].counter = counter;
                open.remove(partition);
                match claimed {
                    ClaimOutcome::Batch(batch) => {
                        relayed += batch.rows.len();
                        self.fences[*partition].counter = batch.token;
                        open.insert(*partition, batch);
                    }
                    ClaimOutcome::NoneDue { .. } => {}
                    ClaimOutcome::Fenced => panic!("partition {partition} is fenced"),
                }
            }
            if relayed == before {
                return relayed;
            }
        }
    }

    /// Claims and settles what is due in these partitions, in one round, until nothing is. Returns the number of rows.
    async fn relay(&mut self, partitions: &[usize], limit: u32) -> usize {
        let mut relayed = 0;
        loop {
            let claims = partitions.iter().map(|partition| claim(&self.store, &self.fences[*partition], limit));
            let mut open = Vec::new();
            for (partition, claimed) in partitions.iter().zip(futures::future::join_all(claims).await) {
                match claimed.unwrap() {
                    ClaimOutcome::Batch(batch) => open.push((*partition, batch)),
                    ClaimOutcome::NoneDue { .. } => {}
                    ClaimOutcome::Fenced => panic!("partition {partition} is fenced"),
                }
            }
            if open.is_empty() {
                return relayed;
            }
            for (partition, batch) in open {
                relayed += batch.rows.len();
                self.fences[partition].counter = batch.token;
                self.settle(partition, &batch).await;
            }
        }
    }
}

/// After every step of every interleaving everything that is committed is claimed, whether the scans take all rows or one at a time, one
/// partition or two in a round.
async fn relay_every_interleaving(writers: &[&[Step]], partitions: &[usize], limit: u32) {
    for mixed_rounds in [false, true] {
        relay_interleavings(writers, partitions, limit, mixed_rounds).await;
    }
}

async fn relay_interleavings(writers: &[&[Step]], partitions: &[usize], limit: u32, mixed_rounds: bool) {
    let (mut fixture, mut open) = (RelayFixture::new().await, OpenBatches::new());
    let numbers: Vec<u32> = partitions.iter().map(|partition| *partition as u32).collect();
    let mut clients = Vec::new();
    for _ in writers {
        clients.push(fixture.database.client().await);
    }
    let lengths: Vec<usize> = writers.iter().map(|steps| steps.len()).collect();
    for order in interleavings(&lengths) {
        let (mut next, mut inserted) = (vec![0; writers.len()], vec![0; writers.len()]);
        for (number, writer) in order.iter().enumerate() {
            let step = writers[*writer][next[*writer]];
            next[*writer] += 1;
            run(&clients[*writer], step, &numbers).await;
            inserted[*writer] += usize::from(step == Step::Insert) * partitions.len();
            let due = if step == Step::Commit { inserted[*writer] } else { 0 };
            let relayed = match mixed_rounds {
                false => fixture.relay(partitions, limit).await,
                true => fixture.relay_in_mixed_rounds(partitions, limit, &mut open).await,
            };
            assert_eq!(relayed, due, "{order:?}, step {number}, mixed rounds: {mixed_rounds}");
        }
    }
}

const WRITER: &[Step] = &[Step::Begin, Step::Insert, Step::Commit];
const LONG_WRITER: &[Step] = &[Step::Begin, Step::Insert, Step::Insert, Step::Commit];

#[tokio::test]
async fn no_event_is_lost_in_any_interleaving_of_two_writers() {
    relay_every_interleaving(&[LONG_WRITER, LONG_WRITER], &[0], 100).await;
    relay_every_interleaving(&[LONG_WRITER, LONG_WRITER], &[0], 1).await;
}

#[tokio::test]
async fn no_event_is_lost_in_any_interleaving_of_two_partitions() {
    relay_every_interleaving(&[LONG_WRITER, LONG_WRITER], &[0, 1], 100).await;
    relay_every_interleaving(&[WRITER, LONG_WRITER], &[0, 1], 1).await;
}

#[tokio::test]
async fn no_event_is_lost_while_another_writer_rolls_back() {
    let rolled_back: &[Step] = &[Step::Begin, Step::Insert, Step::Rollback];
    let elsewhere: &[Step] = &[Step::Begin, Step::Commit];
    relay_every_interleaving(&[LONG_WRITER, rolled_back], &[0], 100).await;
    relay_every_interleaving(&[WRITER, WRITER, elsewhere], &[0], 100).await;
}

/// Index entries that scans of `outbox` have read. The store's sessions report them when they end.
async fn index_reads(client: &Client) -> i64 {
    let text = "SELECT coalesce(sum(idx_tup_read), 0)::int8 FROM pg_stat_user_indexes WHERE relname = 'outbox'";
    client.query_one(text, &[]).await.unwrap().get(0)
}

/// What a held transaction does.
#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    WriterElsewhere,
    WriterOfTheOutbox,
    Reader,
}

/// Relays many small batches in two partitions while a transaction is held open, and then after it has ended. Returns the index entries
/// that the claims and settlements read before the end, and the rows that came with the end.
async fn reads_during(held: Held) -> (i64, usize) {
    const ROUNDS: usize = 60;
    let mut fixture = RelayFixture::new().await;
    // Dead rows must stay for this comparison to mean something, also without a held transaction.
    fixture.sql("ALTER TABLE outbox SET (autovacuum_enabled = false)").await;
    let holder = fixture.database.client().await;
    let text = match held {
        Held::Nothing => "SELECT 1".to_string(),
        Held::WriterElsewhere => {
            "BEGIN; INSERT INTO outbox_audit (action, operator, reason) VALUES ('a', 'b', 'c')".into()
        }
        Held::WriterOfTheOutbox => format!("BEGIN; SELECT pg_current_xact_id(); {}", insert(0)),
        Held::Reader => "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox".into(),
    };
    holder.batch_execute(&text).await.unwrap();
    let before = index_reads(&fixture.client).await;
    for _ in 0..ROUNDS {
        fixture.create(0, 2).await;
        fixture.create(1, 2).await;
        assert_eq!(fixture.relay(&[0, 1], 100).await, 4, "{held:?}");
    }
    let reads = reads_since(&fixture, before).await;
    holder.batch_execute("COMMIT").await.unwrap();
    let rest = reopened(fixture.database.options("a")).await;
    let late = claim(&rest, &fixture.fences[0], 100).await.unwrap();
    let late = if let ClaimOutcome::Batch(batch) = late { batch.rows.len() } else { 0 };
    (reads, late)
}

/// Closes the store, and returns the index entries that its sessions have read. A session reports them before it leaves `pg_stat_activity`.
async fn reads_since(fixture: &RelayFixture, before: i64) -> i64 {
    fixture.store.close().await.unwrap();
    let sessions =
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'posthaste %'";
    until("the sessions to end", async || fixture.client.query(sessions, &[]).await.unwrap().is_empty().then_some(()))
        .await;
    index_reads(&fixture.client).await - before
}

#[tokio::test]
async fn statements_planned_on_an_empty_table_do_not_read_the_backlog_of_others() {
    const BACKLOG: i64 = 20_000;
    let mut fixture = RelayFixture::new().await;
    fixture.sql("ALTER TABLE outbox SET (autovacuum_enabled = false)").await;
    fixture.sql("VACUUM FULL ANALYZE outbox").await;
    for partitions in [&[0, 1][..], &[0], &[1]] {
        for partition in partitions {
            fixture.create(*partition as u32, 1).await;
        }
        assert_eq!(fixture.relay(partitions, 100).await, partitions.len());
    }
    let backlog = format!(
        "INSERT INTO outbox (partition, id, key, bytes) SELECT 3, 1000000 + g, gen_random_uuid(), 1 FROM generate_series(1, {BACKLOG}) g"
    );
    fixture.sql(&backlog).await;
    let before = index_reads(&fixture.client).await;

    for _ in 0..10 {
        fixture.create(0, 1).await;
        fixture.create(1, 1).await;
        assert_eq!(fixture.relay(&[0, 1], 100).await, 2);
    }

    let reads = reads_since(&fixture, before).await;
    assert!(reads < BACKLOG / 2, "{reads} index entries");
}

/// Longer than all other tests of this binary together, also on a machine that other work keeps busy (seven minutes were seen).
const QUIET_ATTEMPT_WITHIN: Duration = Duration::from_secs(1_800);

#[tokio::test]
async fn transactions_that_are_still_running_make_no_claim_read_more() {
    let (alone, late) = reads_during(Held::Nothing).await;
    assert_eq!(late, 0);
    for (held, expected) in [(Held::WriterElsewhere, 0), (Held::WriterOfTheOutbox, 1), (Held::Reader, 0)] {
        // Transactions of other tests' databases that end meanwhile add reads, each once. The other tests end before the deadline, so that
        // one attempt at least is undisturbed.
        let (started, mut fewest) = (Instant::now(), i64::MAX);
        while fewest > alone * 3 / 2 && started.elapsed() < QUIET_ATTEMPT_WITHIN {
            let (reads, late) = reads_during(held).await;
            assert_eq!(late, expected, "{held:?}");
            fewest = fewest.min(reads);
        }
        assert!(fewest <= alone * 3 / 2, "{held:?}: {fewest} index entries instead of {alone}");
    }
}

#[tokio::test]
async fn event_of_a_writer_that_was_held_for_long_is_found_when_it_commits() {
    let mut fixture = RelayFixture::new().await;
    let holder = fixture.database.client().await;
    run(&holder, Step::Begin, &[]).await;
    run(&holder, Step::Insert, &[0, 1]).await;
    // More rounds than samples are remembered.
    for _ in 0..200 {
        fixture.create(0, 1).await;
        fixture.create(1, 1).await;
        assert_eq!(fixture.relay(&[0, 1], 100).await, 2);
    }
    run(&holder, Step::Insert, &[0, 1]).await;
    run(&holder, Step::Commit, &[]).await;
    assert_eq!(fixture.relay(&[0, 1], 100).await, 4);
    assert_eq!(fixture.relay(&[0, 1], 100).await, 0);
}

/// Relays rows, sets the ids back while the store stays open, and returns how many of the next `orders` events of each partition are claimed first.
async fn relayed_after(partitions: &[usize], set_back: &str, orders: usize) -> usize {
    let mut fixture = RelayFixture::new().await;
    for _ in 0..5 {
        for partition in partitions {
            fixture.create(*partition as u32, 3).await;
        }
        assert_eq!(fixture.relay(partitions, 100).await, 3 * partitions.len());
    }
    fixture.sql(set_back).await;
    for partition in partitions {
        fixture.create(*partition as u32, orders).await;
    }
    let relayed = fixture.relay(partitions, 100).await;
    fixture.create(0, 1).await;
    assert_eq!(fixture.relay(partitions, 100).await, 1, "the ids of the restored sequence are known");
    relayed
}

#[tokio::test]
async fn events_after_a_restore_into_the_same_server_are_claimed() {
    for partitions in [&[0][..], &[0, 1]] {
        let deleted = "DELETE FROM outbox; DELETE FROM outbox_event; SELECT setval(pg_get_serial_sequence('outbox_event', 'id'), 2)";
        assert_eq!(relayed_after(partitions, deleted, 2).await, 2 * partitions.len());
    }
}

#[tokio::test]
async fn ids_that_have_passed_the_former_ones_since_a_restore_are_all_claimed() {
    for partitions in [&[0][..], &[0, 1]] {
        let truncated = "TRUNCATE outbox, outbox_event RESTART IDENTITY";
        assert_eq!(relayed_after(partitions, truncated, 40).await, 40 * partitions.len());
    }
}

#[tokio::test]
async fn rows_that_a_settled_head_unblocks_are_found_below_the_start() {
    let mut fixture = RelayFixture::new().await;
    let head = fixture.factory.creation("ann", PartitionNo(0));
    let follower = fixture.factory.change(&head.order, Status::Processing, PartitionNo(0));
    for commit in [head, follower] {
        fixture.store.commit(commit).await.unwrap();
    }
    fixture
        .sql(
            "UPDATE outbox SET status = 2 WHERE id = (SELECT min(id) FROM outbox);
             INSERT INTO outbox_waiting SELECT partition, key, id, now() - interval '1 s', true, false FROM outbox WHERE status = 2",
        )
        .await;
    fixture.create(0, 2).await;
    fixture.create(1, 1).await;

    let claims = [0, 1].map(|partition: usize| claim(&fixture.store, &fixture.fences[partition], 100));
    let open: Vec<_> = fixture.in_one_round(claims).await.into_iter().map(|claimed| batch(claimed.unwrap())).collect();
    assert_eq!(open.iter().map(|batch| batch.rows.len()).collect::<Vec<_>>(), [3, 1], "the follower waits");
    let settlements = [0, 1].map(|partition: usize| settlement(&fixture.fences[partition], &open[partition]));
    let settled = fixture.in_one_round(settlements.map(|settlement| fixture.store.settle(settlement))).await;
    for (partition, settled) in settled.into_iter().enumerate() {
        let FencedOutcome::Done { counter, .. } = settled.unwrap() else { panic!("the batch is open") };
        fixture.fences[partition].counter = counter;
    }

    assert_eq!(fixture.relay(&[0, 1], 100).await, 1, "the follower");
}
