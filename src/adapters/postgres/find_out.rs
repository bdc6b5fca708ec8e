//! A COMMIT whose answer never came: first its transaction must be over, then what it wrote is looked for. Nothing is guessed.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use domain::{Hlc, OrderId};
use ports::Error;
use ports::orders::{Commit, Committed};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::{Answer, Trouble};
use crate::store::Core;
use crate::value::{event_id, event_uuid, get, order_id, order_uuid};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether the transaction may still commit. One the server has never heard of, or no longer remembers, will not: a server that was
/// failed over to may know nothing of it. Which it has heard of, a number of our own tells: a snapshot's xmax is only one past the last
/// that has ended, and ours may well be younger and still at work.
const OPEN: &str = "SELECT CASE WHEN $1 < pg_current_xact_id()::text::bigint
       THEN coalesce(pg_xact_status($1::text::xid8) = 'in progress', false) ELSE false END";

/// Each commit's answer, as far as it can be found out in time.
pub(crate) async fn find_out(
    core: &Core,
    xid: i64,
    commits: &[&Commit],
    lost: &Error,
) -> Vec<Result<Committed, Error>> {
    let deadline = Instant::now() + core.options.find_out_within;
    loop {
        match look(core, xid, commits).await {
            Ok(Some(found)) => return found,
            Ok(None) | Err(_) if Instant::now() >= deadline => return vec![Err(lost.clone()); commits.len()],
            Ok(None) | Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

async fn look(core: &Core, xid: i64, commits: &[&Commit]) -> Answer<Option<Vec<Result<Committed, Error>>>> {
    let session = core.commits().await?;
    let open = session.read(OPEN, &[(&xid, Type::INT8)]).await?;
    if open.first().map(|row| get::<bool>(row, 0)).transpose()? != Some(false) {
        return Ok(None);
    }
    let events: Vec<Uuid> =
        commits.iter().filter_map(|commit| commit.events.first()).map(|event| event_uuid(event.event_id)).collect();
    let rows = session
        .read("SELECT event_id FROM outbox_event WHERE event_id = ANY($1)", &[(&events, Type::UUID_ARRAY)])
        .await?;
    let events = rows.iter().map(|row| get(row, 0).map(event_id)).collect::<Result<HashSet<_>, Trouble>>()?;
    let orders: Vec<Uuid> = commits.iter().map(|commit| order_uuid(commit.order.id)).collect();
    let text = "SELECT id, version, hlc_millis, hlc_counter, region FROM orders WHERE id = ANY($1)";
    let mut standing = HashMap::new();
    for row in &session.read(text, &[(&orders, Type::UUID_ARRAY)]).await? {
        let hlc = Hlc { millis: get(row, 2)?, counter: get::<i64>(row, 3)? as u32 };
        standing
            .insert(order_id(get(row, 0)?), Stands { version: get::<i64>(row, 1)? as u64, hlc, region: get(row, 4)? });
    }
    let judged = commits.iter().map(|commit| match commit.events.first() {
        // An event's name is its own for ever: where it stands, its transaction did.
        Some(event) if events.contains(&event.event_id) => Found::Committed,
        Some(_) => Found::Not,
        None => without_events(commit, &standing),
    });
    Ok(Some(judged.map(Found::told).collect()))
}

struct Stands {
    version: u64,
    hlc: Hlc,
    region: String,
}

enum Found {
    Committed,
    Not,
    Unclear,
}

impl Found {
    fn told(self) -> Result<Committed, Error> {
        match self {
            Found::Committed => Ok(Committed::Done),
            Found::Not => Err(Error::Unreachable("the connection broke, and the transaction was rolled back".into())),
            Found::Unclear => Err(Error::Unknown("the connection broke, and the order has moved on since".into())),
        }
    }
}

fn without_events(commit: &Commit, standing: &HashMap<OrderId, Stands>) -> Found {
    let order = &commit.order;
    match standing.get(&order.id) {
        None => Found::Not,
        Some(stands) if stands.version < order.version => Found::Not,
        Some(stands) if stands.version > order.version => Found::Unclear,
        Some(stands) if (stands.hlc, stands.region.as_str()) == (order.hlc, order.region.as_str()) => Found::Committed,
        Some(_) => Found::Not,
    }
}
