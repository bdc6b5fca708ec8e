//! Places an order: gate → key → Order::place → one commit of order, event and mark → key completed.
use std::sync::Arc;

use domain::{Items, NewOrder, Order, Subject};
use ports::idempotency::BeginOutcome;
use ports::orders::{Commit, Committed, IdempotencyMark, NewRow};
use sha2::{Digest, Sha256};

use super::context::{CommandContext, CommitProgress};
use crate::dispatch::{CreateOrder, Created, KeyedIntent};
use crate::error::CommandError;

/// What became of it, with the rows to publish directly where there is no outbox.
#[derive(Clone, Debug)]
pub struct CreateOutcome {
    /// The answer.
    pub created: Created,
    /// The rows that were committed; empty for a replay.
    pub rows: Vec<NewRow>,
}

/// SHA-256 of what is asked for, as parsed: the order of members and unknown members do not count.
pub fn fingerprint(items: &Items) -> [u8; 32] {
    let mut hash = Sha256::new();
    for line in items.as_slice() {
        hash.update((line.name().len() as u64).to_be_bytes());
        hash.update(line.name());
        hash.update(line.quantity().to_be_bytes());
        hash.update(line.price().mantissa().to_be_bytes());
        hash.update(line.price().scale().to_be_bytes());
    }
    hash.finalize().into()
}

/// Places an order, once per key.
///
/// # Errors
/// As [`CommandError`] says; every one but `Unknown` means that nothing changed and that the key is not used up.
pub async fn create_order(
    desk: &CommandContext,
    command: CreateOrder,
    reach: &CommitProgress,
) -> Result<CreateOutcome, CommandError> {
    desk.gate.pass().map_err(CommandError::Gated)?;
    let Some(intent) = command.intent.clone() else {
        return place(desk, command, reach).await;
    };
    match begin(desk, &command, &intent, reach).await? {
        Some(replayed) => Ok(replayed),
        None => place_keyed(desk, command, intent, reach).await,
    }
}

/// Takes the key, or answers with what it made before. The quick line may be away: then the durable mark decides alone.
async fn begin(
    desk: &CommandContext,
    command: &CreateOrder,
    intent: &KeyedIntent,
    reach: &CommitProgress,
) -> Result<Option<CreateOutcome>, CommandError> {
    let begun = desk.idempotency.begin(&command.subject, &intent.key, &intent.fingerprint, desk.options.key_lock).await;
    match begun {
        // Whoever took it may have died after its commit: then the mark knows the answer.
        Ok(BeginOutcome::InProgress) => {
            return durable(desk, command, intent).await?.map(Some).ok_or(CommandError::KeyRunning);
        }
        Ok(BeginOutcome::Completed { order_id, fingerprint }) => {
            if fingerprint.is_some_and(|seen| seen != intent.fingerprint) {
                return Err(CommandError::KeyReused);
            }
            // COMPLETED naming an order that the store does not have counts as absent.
            if let Some(order) = desk.orders.find(order_id).await? {
                return Ok(Some(replay(order)));
            }
        }
        Ok(BeginOutcome::Acquired) => reach.take_key(),
        Err(_) => {}
    }
    let answer = durable(desk, command, intent).await;
    if !matches!(answer, Ok(None)) {
        free(desk, &command.subject, intent, answer.as_ref().ok().and_then(Option::as_ref)).await;
    }
    answer
}

/// What the durable mark says that the key made.
async fn durable(
    desk: &CommandContext,
    command: &CreateOrder,
    intent: &KeyedIntent,
) -> Result<Option<CreateOutcome>, CommandError> {
    match desk.orders.find_mark(&command.subject, &intent.key, desk.options.key_keep).await? {
        None => Ok(None),
        Some(mark) => replay_of(desk, &mark, intent).await.map(Some),
    }
}

async fn place_keyed(
    desk: &CommandContext,
    command: CreateOrder,
    intent: KeyedIntent,
    reach: &CommitProgress,
) -> Result<CreateOutcome, CommandError> {
    let subject = command.subject.clone();
    let outcome = place(desk, command, reach).await;
    // An unknown outcome keeps the key locked: the client that repeats it finds the durable mark, or a free key after the lock.
    if !matches!(outcome, Err(CommandError::Unknown(_))) {
        free(desk, &subject, &intent, outcome.as_ref().ok()).await;
    }
    outcome
}

/// Completes the key with what it made, or gives it back. A quick line that fails here only forgets; the mark remembers.
async fn free(desk: &CommandContext, subject: &Subject, intent: &KeyedIntent, made: Option<&CreateOutcome>) {
    let _ = match made {
        Some(made) => {
            let id = made.created.order.id;
            let keep = desk.options.key_keep;
            desk.idempotency.complete(subject, &intent.key, &intent.fingerprint, id, keep).await
        }
        None => desk.idempotency.abandon(subject, &intent.key).await,
    };
}

async fn place(
    desk: &CommandContext,
    command: CreateOrder,
    reach: &CommitProgress,
) -> Result<CreateOutcome, CommandError> {
    let now = desk.clock.now();
    let (order, event) = Order::place(NewOrder {
        id: desk.order_id(now),
        event_id: desk.event_id(now),
        owner: command.subject.clone(),
        items: command.items,
        region: desk.options.region.clone(),
        now,
    });
    let mark = command.intent.as_ref().map(|intent| IdempotencyMark {
        subject: command.subject,
        key: Arc::clone(&intent.key),
        fingerprint: intent.fingerprint,
        order_id: order.id,
    });
    let rows = vec![desk.options.row(&event, command.trace)];
    let events = if desk.options.outbox { rows.clone() } else { Vec::new() };
    reach.mark();
    let committed = desk.orders.commit(Commit { order: order.clone(), expected: None, events, mark }).await;
    match committed {
        Ok(Committed::Done) => {
            let order = Arc::new(order);
            desk.show(&order).await;
            Ok(CreateOutcome { created: Created { order, replayed: false }, rows })
        }
        Ok(Committed::KeyUsed(mark)) => {
            reach.clear();
            let intent = command.intent.as_ref().ok_or_else(|| CommandError::Unknown("a mark without a key".into()))?;
            replay_of(desk, &mark, intent).await
        }
        Ok(Committed::Stale { .. } | Committed::Missing) => {
            reach.clear();
            Err(CommandError::Unavailable("the new order's id is taken; try again".into()))
        }
        Err(error) => {
            if !error.outcome_unknown() {
                reach.clear();
            }
            Err(error.into())
        }
    }
}

async fn replay_of(
    desk: &CommandContext,
    mark: &IdempotencyMark,
    intent: &KeyedIntent,
) -> Result<CreateOutcome, CommandError> {
    if mark.fingerprint != intent.fingerprint {
        return Err(CommandError::KeyReused);
    }
    let order = desk.orders.find(mark.order_id).await?;
    order
        .map(replay)
        .ok_or_else(|| CommandError::Unavailable(format!("order {} of this key cannot be read", mark.order_id)))
}

fn replay(order: Order) -> CreateOutcome {
    CreateOutcome { created: Created { order: Arc::new(order), replayed: true }, rows: Vec::new() }
}
