//! The contract of the order topic as the relay applies it.
use std::sync::Arc;

use ports::orders::event_key;
use ports::outbox::ClaimedRow;

use super::checksum::checksum;
use super::codec::validate;
use super::framing::{FRAME_BYTES, SchemaIds};
use crate::relay::value_contract::{TopicContracts, ValueContract};

/// Every value is an event of a registered type and version, and the event of its row. One that has the checksum of its encoding is not parsed.
#[derive(Clone, Copy, Debug)]
struct OrderValueContract {
    /// Registry ids of the schemas; with them, values have a frame for consumers that use a schema registry.
    schemas: Option<SchemaIds>,
}

/// The contract of order events for their topic, named in full.
pub fn order_values(topic: Arc<str>, schemas: Option<SchemaIds>) -> TopicContracts {
    TopicContracts::default().with(topic, Arc::new(OrderValueContract { schemas }))
}

impl ValueContract for OrderValueContract {
    fn check(&self, row: &ClaimedRow, payload: &[u8]) -> Result<(), String> {
        if row.contract_checksum.is_some_and(|sum| sum == checksum(row.event_id, &row.key, &row.event_type, payload)) {
            return Ok(());
        }
        let event = validate(payload).map_err(|error| error.to_string())?;
        let of_row = event.event_id == row.event_id
            && event_key(event.order_id) == row.key
            && event.event_type.as_str() == &*row.event_type;
        if of_row { Ok(()) } else { Err("its value is of another event than its row".into()) }
    }

    fn frame_bytes(&self) -> usize {
        self.schemas.map_or(0, |_| FRAME_BYTES)
    }

    fn framed(&self, payload: &Arc<[u8]>) -> Arc<[u8]> {
        self.schemas.map_or_else(|| Arc::clone(payload), |schemas| schemas.framed(payload))
    }
}
