//! The outbox's rules in Lua, checked with the cases that crate `outbox` generates: rows are written in their stored form, a script changes
//! them, and the stored result is compared with the rule's.
use std::collections::HashMap;
use std::time::Duration;

use deadpool_redis::redis as client;
use outbox::cases::{ClaimSizeCase, ResolutionCase, claim_size_cases, resolution_cases};
use outbox::{BatchOutcome, ExclusionOutcome, FencedOutcome, PoisonAction, RowChange, RowId, RowState, RowStatus};
use ports::FailureType;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, Disposition, Exclusion, OutboxStore, PoisonPolicy};
use ports::partitions::{InstanceId, LeaseFence, PartitionNo, ProducerSessionId};
use redis::{RedisStore, StoreOptions};

use crate::support::{command, connection, orders, prefix, store_options, url};

const EVENT: &str = "00000000-0000-4000-8000-000000000001";
const EVENT_TYPE: &str = "order.created";
const METADATA: &str = r#"["order.events",1,0,"region",0,0,null,null]"#;
/// The token of every open batch, and the counter after its claim.
const TOKEN: u64 = 7;

/// A store with the key prefix of its rows and leases.
struct Fixture {
    store: RedisStore,
    prefix: String,
}

impl Fixture {
    async fn with_partitions(partitions: u32) -> Self {
        let prefix = prefix();
        let options = StoreOptions { partitions, ..store_options(&url(), &prefix, "one") };
        Self { store: RedisStore::open(options).await.unwrap(), prefix: format!("{prefix}{{store}}:") }
    }

    fn fence(partition: u32) -> LeaseFence {
        LeaseFence { partition: PartitionNo(partition), owner: InstanceId("one".into()), epoch: 1, counter: TOKEN }
    }

    /// Writes a lease of [`Fixture::fence`] that expires far in the future.
    fn add_lease(&self, pipeline: &mut client::Pipeline, partition: u32) {
        let lease = format!("{}lease:{partition}", self.prefix);
        let fields = [("owner", "one"), ("epoch", "1"), ("counter", "7"), ("expires", "99999999999999")];
        pipeline.hset_multiple(lease, &fields).ignore();
    }

    /// Opens a batch in that lease.
    fn add_batch(&self, pipeline: &mut client::Pipeline, partition: u32, trial: bool) {
        let lease = format!("{}lease:{partition}", self.prefix);
        let trial = if trial { "1" } else { "0" };
        let fields = [("token", "7"), ("lane", "session"), ("claimed", "1"), ("died", "0"), ("trial", trial)];
        pipeline.hset_multiple(lease, &fields).ignore();
    }

    fn add_row(&self, pipeline: &mut client::Pipeline, partition: u32, row: &StoredFields) {
        let StoredFields { id, key, status, attempts, deaths, trial_deaths, blocks_key } = row;
        // A key belongs to one partition.
        let order_id = format!("{}{partition:04x}", &orders()[0].id.to_string()[..32]);
        let key = key.as_ref().unwrap_or(&order_id);
        let fields = [
            ("s", status.to_string()),
            ("p", partition.to_string()),
            ("k", key.clone()),
            ("ev", EVENT.into()),
            ("ty", EVENT_TYPE.into()),
            ("e", METADATA.into()),
            ("y", "x".into()),
            ("c", "1700000000000".into()),
            ("a", attempts.to_string()),
            ("d", deaths.to_string()),
            ("t", trial_deaths.to_string()),
        ];
        let name = format!("{}row:{id}", self.prefix);
        pipeline.hset_multiple(&name, &fields).ignore();
        if *blocks_key {
            pipeline.hset(&name, "h", 1).ignore();
        }
        let mut sets =
            vec![format!("live:{partition}"), format!("status:{status}"), "all".into(), format!("queue:{key}")];
        if *status == "IN_FLIGHT" {
            pipeline.hset(&name, "tok", TOKEN).ignore();
            sets.push(format!("flight:{partition}"));
        } else {
            // Rows are written in the order of their ids: the key's first one stays.
            let due = format!("{}due:{partition}", self.prefix);
            pipeline.cmd("ZADD").arg(due).arg("NX").arg(*id).arg(key).ignore();
        }
        for set in sets {
            pipeline.zadd(format!("{}{set}", self.prefix), id, id).ignore();
        }
    }

    async fn write(&self, pipeline: &client::Pipeline) {
        let () = pipeline.query_async(&mut connection(&url()).await).await.unwrap();
    }

    async fn read_row(&self, id: RowId) -> HashMap<String, String> {
        command(&url(), &["HGETALL", &format!("{}row:{id}", self.prefix)]).await
    }
}

/// The fields of a row that differ between the cases; without a key it has the key of all other rows without one.
struct StoredFields {
    id: RowId,
    key: Option<String>,
    status: &'static str,
    attempts: u32,
    deaths: u32,
    trial_deaths: u32,
    blocks_key: bool,
}

async fn server_time_ms() -> i64 {
    let (seconds, micros): (i64, i64) = command(&url(), &["TIME"]).await;
    seconds * 1_000 + micros / 1_000
}

#[tokio::test]
async fn server_time_is_that_of_the_scripts() {
    let fixture = Fixture::with_partitions(1).await;

    let before = server_time_ms().await;
    let read = fixture.store.server_time().await.unwrap().millis();
    let after = server_time_ms().await;

    assert!(before <= read && read <= after, "{before} {read} {after}");
}

/// Compares a stored row with the rule's change of it.
fn check_resolution(case: &ResolutionCase, row: &HashMap<String, String>, resolved_between: (i64, i64)) {
    let text = |field: &str| row.get(field).map(String::as_str);
    let Some(change) = &case.change else {
        assert_eq!(text("s"), Some(RowStatus::Sent.as_str()), "{case:?}");
        return;
    };
    let number = |field: &str| text(field).unwrap().parse::<u32>().unwrap();
    assert_eq!(text("s"), Some(change.state.status().as_str()), "{case:?}");
    let counts = (number("a"), number("d"), number("t"));
    assert_eq!(counts, (change.attempts, change.deaths, change.trial_deaths), "{case:?}");
    assert_eq!(text("ft"), change.failure_type.map(FailureType::as_str), "{case:?}");
    assert_eq!(text("fr"), change.reason.as_deref(), "{case:?}");
    let due = text("due").map(|due| due.parse::<i64>().unwrap());
    match change.state {
        RowState::Pending => assert_eq!(due, None, "{case:?}"),
        RowState::Failed { due_in } => {
            let (due, due_in) = (due.unwrap(), due_in.as_millis() as i64);
            assert!((resolved_between.0 + due_in..=resolved_between.1 + due_in).contains(&due), "{case:?}: {due}");
            assert_eq!(text("h"), Some("1"), "{case:?}");
        }
        RowState::Parked { blocks_key } => {
            assert_eq!((due, text("hk")), (None, Some(if blocks_key { "1" } else { "0" })), "{case:?}");
        }
    }
}

#[tokio::test]
async fn the_resolve_script_changes_rows_as_the_rule_does() {
    let cases = resolution_cases();
    let mut batches: Vec<(BatchOutcome, Option<PoisonAction>)> =
        cases.iter().map(|case| (case.outcome, case.trial)).collect();
    batches.dedup();
    let fixture = Fixture::with_partitions(batches.len() as u32).await;

    for (partition, (outcome, trial)) in (0..).zip(batches) {
        let cases: Vec<_> = cases.iter().filter(|case| (case.outcome, case.trial) == (outcome, trial)).collect();
        let mut pipeline = client::pipe();
        fixture.add_lease(&mut pipeline, partition);
        fixture.add_batch(&mut pipeline, partition, trial.is_some());
        for ResolutionCase { row, .. } in &cases {
            let fields = StoredFields {
                id: row.id,
                key: Some(format!("00000000-0000-4000-8000-{:012x}", row.id)),
                status: "IN_FLIGHT",
                attempts: row.attempts,
                deaths: row.deaths,
                trial_deaths: row.trial_deaths,
                blocks_key: row.blocks_key,
            };
            fixture.add_row(&mut pipeline, partition, &fields);
        }
        fixture.write(&pipeline).await;

        let before = server_time_ms().await;
        let policy = PoisonPolicy::from_iter([(EVENT_TYPE, trial.unwrap_or_default())]);
        let resolved = fixture.store.resolve(&Fixture::fence(partition), TOKEN, outcome, &policy).await.unwrap();
        let after = server_time_ms().await;

        assert_eq!(resolved.closed, FencedOutcome::Done { counter: TOKEN + 1, rows: cases.len() as u64 });
        let is_parked = |change: &RowChange<()>| change.state.status() == RowStatus::Parked;
        let parked = cases.iter().filter(|case| case.change.as_ref().is_some_and(is_parked)).map(|case| case.row.id);
        assert_eq!(resolved.parked.iter().map(|row| row.id).collect::<Vec<_>>(), parked.collect::<Vec<_>>());
        for case in cases {
            check_resolution(case, &fixture.read_row(case.row.id).await, (before, after));
        }
    }
}

#[tokio::test]
async fn the_claim_script_takes_as_many_rows_as_the_rule_does() {
    let cases = claim_size_cases();
    let fixture = Fixture::with_partitions(cases.len() as u32).await;
    let mut next_id: RowId = 1;

    for (partition, case) in (0..).zip(&cases) {
        let ClaimSizeCase { limit, deaths, taken } = case;
        let first = next_id;
        let mut pipeline = client::pipe();
        fixture.add_lease(&mut pipeline, partition);
        for deaths in deaths {
            let fields = StoredFields {
                id: next_id,
                key: None,
                status: "PENDING",
                attempts: 0,
                deaths: *deaths,
                trial_deaths: 0,
                blocks_key: false,
            };
            fixture.add_row(&mut pipeline, partition, &fields);
            next_id += 1;
        }
        fixture.write(&pipeline).await;

        let session = ProducerSessionId("session".into());
        let claim = Claim { fence: Fixture::fence(partition), session, limit: *limit, kind: ClaimKind::Ordinary };
        let ClaimOutcome::Batch(batch) = fixture.store.claim(claim).await.unwrap() else {
            panic!("nothing claimed: {case:?}")
        };

        let ids: Vec<RowId> = batch.rows.iter().map(|row| row.id).collect();
        assert_eq!(ids, (first..first + *taken as RowId).collect::<Vec<_>>(), "{case:?}");
        assert_eq!(batch.more, *taken < deaths.len(), "{case:?}");
    }
}

#[tokio::test]
async fn a_later_row_of_an_excluded_key_returns_to_pending_without_its_block() {
    let fixture = Fixture::with_partitions(1).await;
    let mut pipeline = client::pipe();
    fixture.add_lease(&mut pipeline, 0);
    fixture.add_batch(&mut pipeline, 0, false);
    for (id, blocks_key) in [(1, false), (2, true)] {
        let key = Some("key".to_owned());
        let fields = StoredFields { id, key, status: "IN_FLIGHT", attempts: 2, deaths: 1, trial_deaths: 0, blocks_key };
        fixture.add_row(&mut pipeline, 0, &fields);
    }
    fixture.write(&pipeline).await;

    let exclusion = Exclusion {
        row: 1,
        attempts: 2,
        disposition: Disposition::Retry(Duration::from_secs(1)),
        failure_type: FailureType::Timeout,
        reason: format!("\0{}", "é".repeat(300)),
    };
    let result = fixture.store.exclude(&Fixture::fence(0), TOKEN, &[exclusion]).await.unwrap();

    assert_eq!(result, ExclusionOutcome::Done { token: TOKEN + 1, rows: 2 });
    let (excluded, later) = (fixture.read_row(1).await, fixture.read_row(2).await);
    assert_eq!((excluded["s"].as_str(), excluded["fr"].clone()), ("FAILED", "é".repeat(256)));
    assert_eq!((later["s"].as_str(), later["a"].as_str(), later.get("h")), ("PENDING", "1", None));
}
