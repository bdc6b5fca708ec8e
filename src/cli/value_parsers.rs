//! Parsers of argument values; each error names the accepted values.
use std::time::Duration;

use app::port_types::{FailureType, RowId, RowStatus};
use app::units;
use domain::{EventId, EventType, OrderId};

pub(super) fn status(text: &str) -> Result<RowStatus, String> {
    RowStatus::parse(text).ok_or_else(|| "one of PENDING, IN_FLIGHT, FAILED, PARKED, SENT".to_owned())
}

pub(super) fn failure_type(text: &str) -> Result<FailureType, String> {
    FailureType::parse(text).ok_or_else(|| "one of NETWORK, TIMEOUT, VALIDATION, SYSTEM".to_owned())
}

/// The name of an event type, as rows carry it.
pub(super) fn event_type(text: &str) -> Result<String, String> {
    let known = || EventType::ALL.map(EventType::as_str).join(", ");
    EventType::parse(text).map(|kind| kind.as_str().to_owned()).ok_or_else(|| format!("one of {}", known()))
}

pub(super) fn row_id(text: &str) -> Result<RowId, String> {
    text.parse().map_err(|_| "a row's id is a number, as `outbox list` shows it".to_owned())
}

pub(super) fn order_id(text: &str) -> Result<OrderId, String> {
    OrderId::parse(text).ok_or_else(|| "an order id is a hyphenated UUID".to_owned())
}

pub(super) fn event_id(text: &str) -> Result<EventId, String> {
    EventId::parse(text).ok_or_else(|| "an event id is a hyphenated UUID".to_owned())
}

/// A duration of at least one second: the shortest useful measurement or token lifetime.
pub(super) fn a_second_or_more(text: &str) -> Result<Duration, String> {
    let duration = units::duration(text)?;
    if duration < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_refused_value_names_the_accepted_ones() {
        assert_eq!(event_type("ORDER_CREATED").as_deref(), Ok("ORDER_CREATED"));
        let refused = event_type("ORDER_CREATE").expect_err("there is no such type");
        assert!(EventType::ALL.iter().all(|kind| refused.contains(kind.as_str())), "{refused}");
        assert_eq!(row_id("17"), Ok(17));
        assert!(row_id("x").is_err_and(|refused| refused.contains("number")));
        for (text, seconds) in [("1s", Some(1)), ("1000ms", Some(1)), ("1m", Some(60)), ("999ms", None), ("0", None)] {
            assert_eq!(a_second_or_more(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
