//! Places an order: check the gate, begin the key, `Order::place`, one commit of order, event and record, end the key.
use std::sync::Arc;

use domain::{Items, NewOrder, Order};
use ports::orders::idempotency::BeginOutcome;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, NewRow};
use sha2::{Digest, Sha256};

use super::context::{CommandContext, CommitProgress};
use super::idempotency_key::IdempotencyGuard;
use crate::dispatch::{CreateOrder, CreatedOrder, IdempotencyKey};
use crate::error::CommandError;

/// Result of a create, with the rows to publish directly where there is no outbox.
#[derive(Clone, Debug)]
pub struct CreateOutcome {
    /// The order, and whether it is a replay.
    pub created: CreatedOrder,
    /// Committed rows; empty when the order was placed by an earlier request.
    pub rows: Vec<NewRow>,
}

/// SHA-256 of the parsed items: the order of JSON members and unknown members do not count.
pub fn fingerprint(items: &Items) -> [u8; 32] {
    let mut hash = Sha256::new();
    for item in items.as_slice() {
        hash.update((item.name().len() as u64).to_be_bytes());
        hash.update(item.name());
        hash.update(item.quantity().to_be_bytes());
        hash.update(item.price().mantissa().to_be_bytes());
        hash.update(item.price().scale().to_be_bytes());
    }
    hash.finalize().into()
}

/// Places an order, once per idempotency key. `key` is the guard of the command's key.
///
/// # Errors
/// Every [`CommandError`] but `Unknown` means that nothing was changed and that the key can be used again.
pub async fn create_order(
    context: &CommandContext,
    command: CreateOrder,
    key: Option<IdempotencyGuard>,
    progress: &CommitProgress,
) -> Result<CreateOutcome, CommandError> {
    context.gate.check().map_err(CommandError::Gated)?;
    let Some(key) = key else {
        return place(context, command, progress).await;
    };
    if let Some(replayed) = begin(context, &key).await? {
        return Ok(replayed);
    }
    let result = place(context, command, progress).await;
    // After an unknown outcome, too: the client repeats the request, and then finds the durable record, or places the order. Should the commit still
    // run in the store, the record is unique there, so one of the two commits.
    end(&key, result.as_ref().ok()).await;
    result
}

/// Locks the key, or returns the order that an earlier request placed. Without the key store the durable record decides alone.
async fn begin(context: &CommandContext, key: &IdempotencyGuard) -> Result<Option<CreateOutcome>, CommandError> {
    match key.begin().await {
        // The request that holds the lock may have died after its commit; then the durable record names the order.
        Ok(BeginOutcome::InProgress) => {
            return find_durable(context, key).await?.map(Some).ok_or(CommandError::KeyRunning);
        }
        Ok(BeginOutcome::Completed { order_id, fingerprint }) => {
            // A completed key whose order the store does not have counts as unused. So does one that names another caller's order: the keys
            // of an earlier service have no subject.
            let order = context.orders.find(order_id).await?;
            if let Some(order) = order.filter(|order| order.owner == *key.subject()) {
                if fingerprint.is_some_and(|stored| stored != key.idempotency_key().fingerprint) {
                    return Err(CommandError::KeyReused);
                }
                return Ok(Some(replay(context, order).await));
            }
        }
        Ok(BeginOutcome::Acquired) | Err(_) => {}
    }
    let result = find_durable(context, key).await;
    if !matches!(result, Ok(None)) {
        end(key, result.as_ref().ok().and_then(Option::as_ref)).await;
    }
    result
}

/// Finds the order that the key's durable record names.
async fn find_durable(context: &CommandContext, key: &IdempotencyGuard) -> Result<Option<CreateOutcome>, CommandError> {
    match context.orders.find_idempotency_record(key.subject(), &key.idempotency_key().key, key.keep()).await? {
        None => Ok(None),
        Some(idempotency_record) => replay_of(context, &idempotency_record, key.idempotency_key()).await.map(Some),
    }
}

/// Completes the key with the placed order, or abandons it.
async fn end(key: &IdempotencyGuard, outcome: Option<&CreateOutcome>) {
    match outcome {
        Some(outcome) => key.complete(outcome.created.order.id).await,
        None => key.abandon().await,
    }
}

async fn place(
    context: &CommandContext,
    command: CreateOrder,
    progress: &CommitProgress,
) -> Result<CreateOutcome, CommandError> {
    let now = context.clock.now();
    let (order, event) = Order::place(NewOrder {
        id: context.order_id(now),
        event_id: context.event_id(now),
        owner: command.subject.clone(),
        items: command.items,
        region: context.options.region.clone(),
        now,
        physical_time: context.physical_time(now),
        received: context.regional_clock.latest(),
    });
    let idempotency_record = command.idempotency_key.as_ref().map(|idempotency_key| IdempotencyRecord {
        subject: command.subject,
        key: Arc::clone(&idempotency_key.key),
        fingerprint: idempotency_key.fingerprint,
        order_id: order.id,
    });
    let rows = vec![context.options.row(&event, command.trace, command.request_id)];
    let events = if context.options.outbox { rows.clone() } else { Vec::new() };
    let call = progress.begin_commit()?;
    let committed =
        context.orders.commit(Commit { order: order.clone(), expected: None, events, idempotency_record }).await;
    drop(call);
    match committed {
        Ok(CommitOutcome::Done) => {
            let order = Arc::new(order);
            context.update_cache(&order, now).await;
            Ok(CreateOutcome { created: CreatedOrder { order, replayed: false }, rows })
        }
        Ok(CommitOutcome::KeyUsed(idempotency_record)) => {
            progress.nothing_changed();
            let idempotency_key = command.idempotency_key.as_ref();
            let idempotency_key = idempotency_key
                .ok_or_else(|| CommandError::Unknown("the store reported a key that was not sent".into()))?;
            replay_of(context, &idempotency_record, idempotency_key).await
        }
        Ok(CommitOutcome::Stale { .. } | CommitOutcome::Missing) => {
            progress.nothing_changed();
            Err(CommandError::Unavailable("the new order's id is taken; try again".into()))
        }
        Err(error) => {
            if error.outcome_unknown() {
                context.evict_lists(&order.owner).await;
            } else {
                progress.nothing_changed();
            }
            Err(error.into())
        }
    }
}

async fn replay_of(
    context: &CommandContext,
    idempotency_record: &IdempotencyRecord,
    idempotency_key: &IdempotencyKey,
) -> Result<CreateOutcome, CommandError> {
    if idempotency_record.fingerprint != idempotency_key.fingerprint {
        return Err(CommandError::KeyReused);
    }
    let unreadable =
        || CommandError::Unavailable(format!("order {} of this key cannot be read", idempotency_record.order_id));
    let order = context.orders.find(idempotency_record.order_id).await?.ok_or_else(unreadable)?;
    Ok(replay(context, order).await)
}

/// The order of an earlier request. That may have ended without a reply after its commit, so lists from before it are evicted.
async fn replay(context: &CommandContext, order: Order) -> CreateOutcome {
    context.evict_lists(&order.owner).await;
    CreateOutcome { created: CreatedOrder { order: Arc::new(order), replayed: true }, rows: Vec::new() }
}
