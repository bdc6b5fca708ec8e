//! The checksum that the codec computes of a value that it encodes. The relay recognises by it a value that has not changed since, and sends it
//! without parsing it again: parsing would be a fifth of the service's work for an event.
use domain::EventId;
use ports::outbox::EventKey;

/// Version of the rules of [`validate`](super::validate). Raise it with every change that refuses a value which was accepted before: values that
/// were encoded under earlier rules are then checked in full.
const RULES: u8 = 1;

/// CRC-32C of the value and of its row's event id, key and type: a value that was copied to another row is checked in full. It detects damage, and
/// changes by programs that do not maintain the checksum. It does not detect a change by a program that computes it too.
pub fn checksum(event_id: EventId, key: &EventKey, event_type: &str, value: &[u8]) -> u32 {
    let group = key.group();
    let parts: [&[u8]; 5] =
        [&event_id.bytes(), &group, key.text().unwrap_or("").as_bytes(), event_type.as_bytes(), value];
    parts.iter().fold(crc32c::crc32c(&[RULES]), |sum, part| crc32c::crc32c_append(sum, part))
}
