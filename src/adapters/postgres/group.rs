//! One transaction over a group of commits: marks first, then orders, then events, each in one statement over arrays. Who is refused
//! takes no neighbour with it. Events are inserted by statements that read from what was written to the orders, so an id is drawn only
//! after its order is locked, and ids of one key stand in commit order.
use std::collections::{HashMap, HashSet};

use domain::{OrderId, Subject, Version};
use ports::Error;
use ports::orders::{Commit, Committed, IdempotencyMark};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::columns::{EventColumns, MarkColumns, OrderColumns};
use crate::error::{Answer, Trouble};
use crate::session::Transaction;
use crate::store::Core;
use crate::value::{get, order_id};

/// Marks in their order; the answer names those that were free.
const MARKS: &str = "WITH m AS (INSERT INTO mark (subject, key, fingerprint, order_id)
       SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[]) ON CONFLICT DO NOTHING RETURNING subject, key)
     SELECT pg_current_xact_id()::text::bigint, coalesce(array_agg(subject), '{}'), coalesce(array_agg(key), '{}') FROM m";

/// What taken marks mean: a second statement, because the first sees neither a row that was committed while it waited.
const TAKEN: &str =
    "SELECT m.subject, m.key, m.fingerprint, m.order_id FROM unnest($1::text[], $2::text[]) AS u (subject, key)
     JOIN mark m ON m.subject = u.subject AND m.key = u.key";

const UNMARK: &str = "DELETE FROM mark m USING unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[]) AS u (subject, key, fingerprint, order_id)
     WHERE m.subject = u.subject AND m.key = u.key AND m.order_id = u.order_id";

/// The rest of a statement that begins with `WITH o AS (…)`, the orders that were written: their events, in the order of their array.
macro_rules! events {
    () => {
        ", e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
             traceparent, tracestate, payload)
           SELECT v.event_id, v.key, v.partition, v.sequence, v.occurred_at, v.hlc_millis, v.hlc_counter, v.type, v.topic, v.region,
             v.traceparent, v.tracestate, v.payload
           FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int4[], $5::int8[], $6::timestamptz[], $7::int8[], $8::int8[], $9::text[],
             $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[]) WITH ORDINALITY AS v (order_id, event_id, key, partition,
             sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, traceparent, tracestate, payload, place)
           JOIN o ON o.id = v.order_id ORDER BY v.place RETURNING id, key, partition, octet_length(payload) AS bytes),
         q AS (INSERT INTO outbox (id, key, partition, bytes) SELECT id, key, partition, coalesce(bytes, 0) FROM e)
         SELECT pg_current_xact_id()::text::bigint, coalesce(array_agg(id), '{}') FROM o"
    };
}

const CREATE: &str = concat!(
    "WITH o AS (INSERT INTO orders (id, owner, status, version, created_at, updated_at, items, total, region, hlc_millis, hlc_counter)
       SELECT u.id, u.owner, u.status, u.version, u.created_at, u.updated_at, u.items::json, u.total::numeric, u.region, u.hlc_millis,
         u.hlc_counter
       FROM unnest($15::uuid[], $16::text[], $17::text[], $18::int8[], $19::timestamptz[], $20::timestamptz[], $21::text[], $22::text[],
         $23::text[], $24::int8[], $25::int8[]) AS u (id, owner, status, version, created_at, updated_at, items, total, region,
         hlc_millis, hlc_counter) ON CONFLICT (id) DO NOTHING RETURNING id)",
    events!()
);

/// Locks orders in the order of their ids and tells their versions.
const LOCK: &str =
    "SELECT pg_current_xact_id()::text::bigint, coalesce(array_agg(id), '{}'), coalesce(array_agg(version), '{}')
     FROM (SELECT id, version FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE) o";

/// What never changes is not written again.
const CHANGE: &str = concat!(
    "WITH o AS (UPDATE orders t SET status = u.status, version = u.version, updated_at = u.updated_at, region = u.region,
         hlc_millis = u.hlc_millis, hlc_counter = u.hlc_counter
       FROM unnest($15::uuid[], $16::text[], $17::int8[], $18::timestamptz[], $19::text[], $20::int8[], $21::int8[])
         AS u (id, status, version, updated_at, region, hlc_millis, hlc_counter) WHERE t.id = u.id RETURNING t.id)",
    events!()
);

const STANDING: &str = "SELECT id, version FROM orders WHERE id = ANY($1)";

/// What became of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This.
    Told(Committed),
    /// Its mark was taken and is gone again: once more.
    NotYet,
}

/// What became of a group.
pub(crate) enum Outcome {
    /// It is durable; a verdict for each.
    Done(Vec<Verdict>),
    /// Nothing was changed.
    Failed(Trouble),
    /// COMMIT was sent and its answer never came.
    Unknown {
        /// The transaction's own id.
        xid: i64,
        /// Why there was no answer.
        error: Error,
    },
}

/// Bytes of a commit's events.
pub(crate) fn bytes(commit: &Commit) -> usize {
    commit.events.iter().map(|event| event.payload.len()).sum()
}

/// Orders and marks of a group so far.
#[derive(Default)]
pub(crate) struct Seen {
    orders: HashSet<OrderId>,
    marks: HashSet<(Subject, std::sync::Arc<str>)>,
}

impl Seen {
    /// Adds a commit, unless its order or its mark is there already.
    pub(crate) fn adds(&mut self, commit: &Commit) -> bool {
        let mark = commit.mark.as_ref().map(|mark| (mark.subject.clone(), mark.key.clone()));
        if self.orders.contains(&commit.order.id) || mark.as_ref().is_some_and(|mark| self.marks.contains(mark)) {
            return false;
        }
        self.orders.insert(commit.order.id);
        self.marks.extend(mark);
        true
    }
}

/// Commits a group, sorted by order id, without an order or a mark twice.
pub(crate) async fn commit(core: &Core, commits: &[&Commit]) -> Outcome {
    let (transaction, xid, verdicts) = match write(core, commits).await {
        Ok(written) => written,
        Err(trouble) => return Outcome::Failed(trouble),
    };
    match transaction.commit().await {
        Ok(()) => Outcome::Done(verdicts),
        Err(Trouble::Said(error @ Error::Unknown(_))) => Outcome::Unknown { xid, error },
        Err(trouble) => Outcome::Failed(trouble),
    }
}

async fn write(core: &Core, commits: &[&Commit]) -> Answer<(Transaction, i64, Vec<Verdict>)> {
    let mut work = Work::new(core, commits);
    work.marks().await?;
    work.creations().await?;
    work.changes().await?;
    work.unmark_the_refused().await?;
    let (Some(transaction), Some(xid)) = (work.transaction, work.xid) else {
        return Err(crate::error::broken("a group without a commit"));
    };
    let verdicts = work.verdicts.into_iter().map(|verdict| verdict.unwrap_or(Verdict::NotYet)).collect();
    Ok((transaction, xid, verdicts))
}

/// A group on its way.
struct Work<'a> {
    core: &'a Core,
    commits: &'a [&'a Commit],
    /// What became of each, as far as known.
    verdicts: Vec<Option<Verdict>>,
    transaction: Option<Transaction>,
    xid: Option<i64>,
}

impl<'a> Work<'a> {
    fn new(core: &'a Core, commits: &'a [&'a Commit]) -> Self {
        Self { core, commits, verdicts: vec![None; commits.len()], transaction: None, xid: None }
    }

    /// Runs a statement of the transaction; the first one begins it and tells its id.
    async fn query(&mut self, text: &str, values: &[crate::value::Value<'_>]) -> Answer<Vec<Row>> {
        if let Some(transaction) = &self.transaction {
            return transaction.query(text, values).await;
        }
        let (transaction, rows) = self.core.commits().await?.begin_with(text, values).await?;
        self.transaction = Some(transaction);
        self.xid = rows.first().map(|row| get(row, 0)).transpose()?;
        Ok(rows)
    }

    fn open(&self, wanted: impl Fn(&Commit) -> bool) -> Vec<usize> {
        (0..self.commits.len()).filter(|at| self.verdicts[*at].is_none() && wanted(self.commits[*at])).collect()
    }

    async fn marks(&mut self) -> Answer<()> {
        let mut marked: Vec<(usize, &IdempotencyMark)> =
            self.commits.iter().enumerate().filter_map(|(at, commit)| Some((at, commit.mark.as_ref()?))).collect();
        if marked.is_empty() {
            return Ok(());
        }
        marked.sort_by(|(_, a), (_, b)| (&a.subject, &a.key).cmp(&(&b.subject, &b.key)));
        let columns = MarkColumns::of(marked.iter().map(|(_, mark)| *mark));
        let rows = self.query(MARKS, &columns.values()).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (subjects, keys): (Vec<String>, Vec<String>) = (get(row, 1)?, get(row, 2)?);
        let free: HashSet<(&str, &str)> =
            subjects.iter().map(String::as_str).zip(keys.iter().map(String::as_str)).collect();
        marked.retain(|(_, mark)| !free.contains(&(mark.subject.as_str(), &*mark.key)));
        if marked.is_empty() { Ok(()) } else { self.taken(&marked).await }
    }

    async fn taken(&mut self, losers: &[(usize, &IdempotencyMark)]) -> Answer<()> {
        let columns = MarkColumns::of(losers.iter().map(|(_, mark)| *mark));
        let rows = self.query(TAKEN, &columns.values()[..2]).await?;
        let mut meant = HashMap::new();
        for row in &rows {
            let (subject, key): (String, String) = (get(row, 0)?, get(row, 1)?);
            meant.insert((subject, key), (get::<Vec<u8>>(row, 2)?, order_id(get(row, 3)?)));
        }
        for (at, mark) in losers {
            let verdict = match meant.get(&(mark.subject.as_str().to_string(), mark.key.to_string())) {
                Some((fingerprint, order_id)) => {
                    let fingerprint = fingerprint
                        .as_slice()
                        .try_into()
                        .map_err(|_| crate::error::broken("a fingerprint of another size"))?;
                    Verdict::Told(Committed::KeyUsed(IdempotencyMark {
                        fingerprint,
                        order_id: *order_id,
                        ..(*mark).clone()
                    }))
                }
                None => Verdict::NotYet,
            };
            self.verdicts[*at] = Some(verdict);
        }
        Ok(())
    }

    async fn creations(&mut self) -> Answer<()> {
        let new = self.open(|commit| commit.expected.is_none());
        if new.is_empty() {
            return Ok(());
        }
        let commits: Vec<&Commit> = new.iter().map(|at| self.commits[*at]).collect();
        let (events, orders) = (EventColumns::of(&commits), OrderColumns::of(&commits)?);
        let values: Vec<_> = events.values().into_iter().chain(orders.creation()).collect();
        let rows = self.query(CREATE, &values).await?;
        let written = written(&rows)?;
        self.judge(&new, &written).await
    }

    async fn changes(&mut self) -> Answer<()> {
        let changed = self.open(|commit| commit.expected.is_some());
        if changed.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = changed.iter().map(|at| crate::value::order_uuid(self.commits[*at].order.id)).collect();
        let rows = self.query(LOCK, &[(&ids, Type::UUID_ARRAY)]).await?;
        let standing = match rows.first() {
            Some(row) => get::<Vec<Uuid>>(row, 1)?.into_iter().map(order_id).zip(get::<Vec<i64>>(row, 2)?).collect(),
            None => HashMap::new(),
        };
        let mut winners = Vec::new();
        for at in changed {
            let commit = self.commits[at];
            match standing.get(&commit.order.id).map(|version| *version as Version) {
                None => self.verdicts[at] = Some(Verdict::Told(Committed::Missing)),
                Some(current) if commit.expected != Some(current) => {
                    self.verdicts[at] = Some(Verdict::Told(Committed::Stale { current }));
                }
                Some(_) => winners.push(at),
            }
        }
        if winners.is_empty() {
            return Ok(());
        }
        let commits: Vec<&Commit> = winners.iter().map(|at| self.commits[*at]).collect();
        let (events, orders) = (EventColumns::of(&commits), OrderColumns::of(&commits)?);
        let values: Vec<_> = events.values().into_iter().chain(orders.change()).collect();
        let rows = self.query(CHANGE, &values).await?;
        let written = written(&rows)?;
        self.judge(&winners, &written).await
    }

    /// Those whose order was written are done; of the others the version says what they are.
    async fn judge(&mut self, asked: &[usize], written: &HashSet<OrderId>) -> Answer<()> {
        let refused: Vec<usize> =
            asked.iter().copied().filter(|at| !written.contains(&self.commits[*at].order.id)).collect();
        for at in asked {
            self.verdicts[*at] = Some(Verdict::Told(Committed::Done));
        }
        if refused.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = refused.iter().map(|at| crate::value::order_uuid(self.commits[*at].order.id)).collect();
        let rows = self.query(STANDING, &[(&ids, Type::UUID_ARRAY)]).await?;
        let mut standing = HashMap::new();
        for row in &rows {
            standing.insert(order_id(get(row, 0)?), get::<i64>(row, 1)? as Version);
        }
        for at in refused {
            let current = standing.get(&self.commits[at].order.id).copied();
            self.verdicts[at] =
                Some(Verdict::Told(current.map_or(Committed::Missing, |current| Committed::Stale { current })));
        }
        Ok(())
    }

    /// A commit that is refused leaves no mark.
    async fn unmark_the_refused(&mut self) -> Answer<()> {
        let refused = |at: &usize| {
            matches!(self.verdicts[*at], Some(Verdict::Told(Committed::Stale { .. } | Committed::Missing)))
        };
        let marks: Vec<&IdempotencyMark> =
            (0..self.commits.len()).filter(refused).filter_map(|at| self.commits[at].mark.as_ref()).collect();
        if marks.is_empty() {
            return Ok(());
        }
        let columns = MarkColumns::of(marks.into_iter());
        self.query(UNMARK, &columns.values()).await.map(|_| ())
    }
}

fn written(rows: &[Row]) -> Answer<HashSet<OrderId>> {
    let Some(row) = rows.first() else { return Ok(HashSet::new()) };
    Ok(get::<Vec<Uuid>>(row, 1)?.into_iter().map(order_id).collect())
}
