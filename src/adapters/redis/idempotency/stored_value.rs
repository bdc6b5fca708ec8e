//! The text form of an idempotency key's value and of a durable record. Its first part names the format: a service that reads an unknown
//! format does not change the key, and the durable record decides.
//!
//! `v3|IN_PROGRESS|<fingerprint>|<boot id>|<instance>` and `v3|COMPLETED|<fingerprint>|<order id>`. Earlier releases wrote
//! `V2|<state>|<order id>|<millis>`, before that a bare order id or `IN_FLIGHT:<anything>`; those have no fingerprint.
use std::fmt::Write;

use domain::OrderId;
use ports::orders::idempotency::BeginOutcome;

/// The value of a key in use by this run of this instance. An instance id may contain any character, so it comes last.
pub(crate) fn in_progress(fingerprint: &[u8; 32], boot_id: &str, instance: &str) -> String {
    format!("v3|IN_PROGRESS|{}|{boot_id}|{instance}", hex(fingerprint))
}

/// The value of a completed key, and of a durable record.
pub(crate) fn completed(fingerprint: &[u8; 32], order_id: OrderId) -> String {
    format!("v3|COMPLETED|{}|{order_id}", hex(fingerprint))
}

/// Parses a value; `None` if its format is unknown.
pub(crate) fn parse(text: &str) -> Option<BeginOutcome> {
    let completed =
        |id: &str, fingerprint| Some(BeginOutcome::Completed { order_id: OrderId::parse(id)?, fingerprint });
    if text.starts_with("IN_FLIGHT:") {
        return Some(BeginOutcome::InProgress);
    }
    let mut parts = text.splitn(4, '|');
    match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        ("v3" | "V2", Some("IN_PROGRESS"), _, _) => Some(BeginOutcome::InProgress),
        ("v3", Some("COMPLETED"), Some(fingerprint), Some(id)) => completed(id, Some(unhex(fingerprint)?)),
        ("V2", Some("COMPLETED"), Some(id), _) => completed(id, None),
        (id, None, None, None) => completed(id, None),
        _ => None,
    }
}

/// Parses a value under an earlier service's own key: every form without a fingerprint, and the bare states `IN_PROGRESS` and
/// `COMPLETED:<order id>`. `None` if its format is unknown.
pub(crate) fn parse_legacy(text: &str) -> Option<BeginOutcome> {
    if text.starts_with("IN_FLIGHT") || text.starts_with("IN_PROGRESS") {
        return Some(BeginOutcome::InProgress);
    }
    parse(text.strip_prefix("COMPLETED").map_or(text, |id| id.trim_start_matches([':', '|'])))
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, index) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[index..index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    #[test]
    fn every_format_is_parsed_and_unknown_formats_are_not() {
        let order_id = OrderId::new_v7(Timestamp::from_millis(1_700_000_000_000), [7; 10]);
        let fingerprint = std::array::from_fn(|index| index as u8);
        let order = |fingerprint| Some(BeginOutcome::Completed { order_id, fingerprint });

        let cases = [
            (in_progress(&fingerprint, "00ff", "host:8080|odd"), Some(BeginOutcome::InProgress)),
            (completed(&fingerprint, order_id), order(Some(fingerprint))),
            (order_id.to_string(), order(None)),
            ("IN_FLIGHT:host-1|x".into(), Some(BeginOutcome::InProgress)),
            ("V2|IN_PROGRESS||1700000000000".into(), Some(BeginOutcome::InProgress)),
            (format!("V2|COMPLETED|{order_id}|1700000000000"), order(None)),
            (format!("v4|COMPLETED|{order_id}"), None),
            (format!("v3|COMPLETED|éé|{order_id}"), None),
            ("v3".into(), None),
            (String::new(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(&text), expected, "{text}");
        }
    }

    #[test]
    fn every_value_of_an_earlier_service_is_understood_or_ignored() {
        let order_id = OrderId::new_v7(Timestamp::from_millis(1_700_000_000_000), [7; 10]);
        let completed = Some(BeginOutcome::Completed { order_id, fingerprint: None });

        let cases = [
            (order_id.to_string(), completed.clone()),
            (format!("COMPLETED:{order_id}"), completed.clone()),
            (format!("COMPLETED|{order_id}"), completed.clone()),
            (format!("V2|COMPLETED|{order_id}|1700000000000"), completed),
            ("IN_FLIGHT:host-1|x".into(), Some(BeginOutcome::InProgress)),
            ("IN_PROGRESS".into(), Some(BeginOutcome::InProgress)),
            ("V2|IN_PROGRESS||1700000000000".into(), Some(BeginOutcome::InProgress)),
            ("COMPLETED".into(), None),
            ("{\"state\":\"COMPLETED\"}".into(), None),
            (String::new(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_legacy(&text), expected, "{text}");
        }
    }
}
