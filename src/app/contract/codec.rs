//! Values of events: encoding in a schema version, decoding of any version, and the check of the whole contract.
use domain::OrderEvent;

use super::event::{ContractError, DecodedEvent, LATEST, schema_version};
use super::framing::unframed;
use super::registry::contract;
use super::{v1, v2};

/// Encodes an event in a released schema version; the latest one for a version that its type does not have.
pub fn encode(event: &OrderEvent, version: u32) -> Vec<u8> {
    contract(event.event_type, version).map_or_else(|_| v2::encode(event), |contract| contract.encode(event))
}

/// Decodes a value of any readable version, framed or not.
///
/// # Errors
/// The same as [`validate`]; such a message goes to the dead-letter topic without a retry.
pub fn decode(value: &[u8]) -> Result<DecodedEvent, ContractError> {
    let (_, value) = unframed(value);
    validate(value)
}

/// Decodes a value without a frame and checks its whole contract: each member, the total, and the state that the type allows.
///
/// # Errors
/// Why the value is not an event of its type and version.
pub fn validate(value: &[u8]) -> Result<DecodedEvent, ContractError> {
    let event = read_any_version(value)?;
    contract(event.event_type, event.schema_version)?.check(&event)?;
    Ok(event)
}

fn read_any_version(value: &[u8]) -> Result<DecodedEvent, ContractError> {
    // Nearly every value has the latest version. Others are parsed twice, so that the error is that of their own version.
    match v2::decode(value) {
        Ok(event) if event.schema_version == LATEST => return Ok(event),
        Err(error @ ContractError::Illegal(_)) => return Err(error),
        Ok(_) | Err(_) => {}
    }
    match schema_version(value)? {
        1 => v1::decode(value),
        2 => v2::decode(value),
        other => Err(ContractError::Version(other)),
    }
}
