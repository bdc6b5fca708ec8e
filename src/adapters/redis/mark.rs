//! What stands under an idempotency key, as text. The first word names the format: a service that meets one it does not know leaves it
//! alone and lets the durable mark decide.
//!
//! `v3|IN_PROGRESS|<fingerprint>|<boot>|<instance>` and `v3|COMPLETED|<fingerprint>|<order id>`. Earlier services wrote
//! `V2|<state>|<order id>|<millis>`, before that a bare order id or `IN_FLIGHT:<anything>`; those carry no fingerprint.
use std::fmt::Write;

use domain::OrderId;
use ports::idempotency::BeginOutcome;

/// A key in use by this life of this instance. Anything may stand in an instance's name, so it comes last.
pub(crate) fn running(fingerprint: &[u8; 32], boot: &str, instance: &str) -> String {
    format!("v3|IN_PROGRESS|{}|{boot}|{instance}", hex(fingerprint))
}

/// A used key.
pub(crate) fn completed(fingerprint: &[u8; 32], order_id: OrderId) -> String {
    format!("v3|COMPLETED|{}|{order_id}", hex(fingerprint))
}

/// Reads a value; `None` where it is in no form we know.
pub(crate) fn read(text: &str) -> Option<BeginOutcome> {
    let done = |id: &str, fingerprint| Some(BeginOutcome::Completed { order_id: OrderId::parse(id)?, fingerprint });
    if text.starts_with("IN_FLIGHT:") {
        return Some(BeginOutcome::InProgress);
    }
    let mut parts = text.splitn(4, '|');
    match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        ("v3" | "V2", Some("IN_PROGRESS"), _, _) => Some(BeginOutcome::InProgress),
        ("v3", Some("COMPLETED"), Some(fingerprint), Some(id)) => done(id, Some(unhex(fingerprint)?)),
        ("V2", Some("COMPLETED"), Some(id), _) => done(id, None),
        (id, None, None, None) => done(id, None),
        _ => None,
    }
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes every write");
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    #[test]
    fn every_form_is_read_and_what_is_strange_is_not_guessed() {
        let order_id = OrderId::at(Timestamp::from_millis(1_700_000_000_000), [7; 10]);
        let fingerprint = std::array::from_fn(|at| at as u8);
        let made = |fingerprint| Some(BeginOutcome::Completed { order_id, fingerprint });

        let cases = [
            (running(&fingerprint, "00ff", "host:8080|odd"), Some(BeginOutcome::InProgress)),
            (completed(&fingerprint, order_id), made(Some(fingerprint))),
            (order_id.to_string(), made(None)),
            ("IN_FLIGHT:host-1|x".into(), Some(BeginOutcome::InProgress)),
            ("V2|IN_PROGRESS||1700000000000".into(), Some(BeginOutcome::InProgress)),
            (format!("V2|COMPLETED|{order_id}|1700000000000"), made(None)),
            (format!("v4|COMPLETED|{order_id}"), None),
            (format!("v3|COMPLETED|éé|{order_id}"), None),
            ("v3".into(), None),
            (String::new(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&text), expected, "{text}");
        }
    }
}
