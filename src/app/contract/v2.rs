//! Schema version 2: the event with the order's state after it. Released; never changes.
use std::borrow::Cow;

use domain::item::{ITEMS_MAX, check_name, check_quantity};
use domain::{EventId, EventType, ItemsError, Money, MoneyError, OrderEvent, OrderId, Status};
use serde::{Deserialize, Serialize};

use super::event::{ContractError, DecodedEvent, OrderAfterEvent, member, read};
use super::time::{parse_rfc3339, rfc3339};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventValueV2<'a> {
    schema_version: u32,
    #[serde(borrow)]
    event_id: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    order_id: Cow<'a, str>,
    #[serde(borrow)]
    occurred_at: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    version: u64,
    #[serde(borrow)]
    total: Cow<'a, str>,
    #[serde(borrow)]
    items: Vec<ItemValueV2<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemValueV2<'a> {
    #[serde(borrow)]
    product_name: Cow<'a, str>,
    quantity: u32,
    #[serde(borrow)]
    price: Cow<'a, str>,
}

pub(super) fn encode(event: &OrderEvent) -> Vec<u8> {
    let value = EventValueV2 {
        schema_version: 2,
        event_id: event.id.to_string().into(),
        event_type: event.event_type.as_str().into(),
        order_id: event.order_id.to_string().into(),
        occurred_at: rfc3339(event.occurred_at).into(),
        status: event.status.as_str().into(),
        version: event.version,
        total: event.items.total().to_string().into(),
        items: event
            .items
            .as_slice()
            .iter()
            .map(|item| ItemValueV2 {
                product_name: item.name().into(),
                quantity: item.quantity(),
                price: item.price().to_string().into(),
            })
            .collect(),
    };
    serde_json::to_vec(&value).expect("strings and numbers always serialise")
}

/// Decodes a value and checks every member, the total included.
pub(super) fn decode(bytes: &[u8]) -> Result<DecodedEvent, ContractError> {
    let value: EventValueV2<'_> = read(bytes)?;
    let event = DecodedEvent {
        schema_version: value.schema_version,
        event_id: member("eventId", EventId::parse(&value.event_id))?,
        event_type: member("eventType", EventType::parse(&value.event_type))?,
        order_id: member("orderId", OrderId::parse(&value.order_id))?,
        occurred_at: member("occurredAt", parse_rfc3339(&value.occurred_at))?,
        after: Some(OrderAfterEvent {
            status: member("status", Status::parse(&value.status))?,
            version: value.version,
        }),
    };
    if value.schema_version == 2 {
        check_items(&value)?;
    }
    Ok(event)
}

fn check_items(value: &EventValueV2<'_>) -> Result<(), ContractError> {
    if value.items.is_empty() || value.items.len() > ITEMS_MAX {
        return Err(illegal("items", ItemsError::Count));
    }
    let mut prices = Vec::with_capacity(value.items.len());
    for (index, item) in value.items.iter().enumerate() {
        let at = |name: &str| format!("items[{index}].{name}");
        check_name(&item.product_name).map_err(|error| illegal(&at("productName"), error))?;
        let quantity = check_quantity(item.quantity.into()).map_err(|error| illegal(&at("quantity"), error))?;
        prices.push((amount(&item.price).map_err(|error| illegal(&at("price"), error))?, quantity));
    }
    let total = amount(&value.total).map_err(|error| illegal("total", error))?;
    let sum = Money::total(prices.iter().copied()).map_err(|error| illegal("items", ItemsError::Total(error)))?;
    if total == sum {
        return Ok(());
    }
    Err(ContractError::Illegal(format!("total is {total}, the items add up to {sum}")))
}

/// An amount in plain notation, the only one that events have.
fn amount(text: &str) -> Result<Money, MoneyError> {
    if text.contains('e') { Err(MoneyError::Malformed) } else { Money::parse(text) }
}

fn illegal(field: &str, error: impl std::fmt::Display) -> ContractError {
    ContractError::Illegal(format!("{field} {error}"))
}
