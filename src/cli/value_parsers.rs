//! Parsers of argument values; each error names the accepted values.
use std::time::Duration;

use app::port_types::{EventKey, FailureType, OperatorAction, PartitionNo, RowId, RowStatus, check_type};
use app::units;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use domain::EventId;

/// A parser of one of these names, which help texts and completions list. With `ignore_case` of the argument, any case is accepted.
fn one_of<T: Clone + Send + Sync + 'static>(values: Vec<(&'static str, T)>) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.iter().map(|(name, _)| *name).collect::<Vec<_>>()).map(move |text| {
        let value = values.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
        value.expect("the text is one of the names").1.clone()
    })
}

pub(super) fn row_status() -> impl TypedValueParser<Value = RowStatus> {
    one_of(RowStatus::ALL.map(|status| (status.as_str(), status)).to_vec())
}

pub(super) fn failure_type() -> impl TypedValueParser<Value = FailureType> {
    one_of(FailureType::ALL.map(|failure| (failure.as_str(), failure)).to_vec())
}

/// An event type, as rows carry it.
pub(super) fn event_type(text: &str) -> Result<String, String> {
    check_type(text)
        .map(|()| text.to_owned())
        .map_err(|_| "a type must not be empty or contain control characters".to_owned())
}

pub(super) fn operator_action() -> impl TypedValueParser<Value = OperatorAction> {
    one_of(OperatorAction::ALL.map(|action| (action.as_str(), action)).to_vec())
}

pub(super) fn row_id(text: &str) -> Result<RowId, String> {
    text.parse().map_err(|_| "a row's id is a number, as `outbox list` shows it".to_owned())
}

/// A partition of the outbox, as `outbox partitions` shows it.
pub(super) fn partition() -> impl TypedValueParser<Value = PartitionNo> {
    clap::value_parser!(u32).range(..=i64::from(i32::MAX)).map(PartitionNo)
}

pub(super) fn event_key(text: &str) -> Result<EventKey, String> {
    EventKey::parse(text).map_err(|error| error.to_string())
}

pub(super) fn event_id(text: &str) -> Result<EventId, String> {
    EventId::parse(text).ok_or_else(|| "an event id is a hyphenated UUID".to_owned())
}

/// The limit of a list or a redrive: with 0, a command would report that there is nothing.
pub(super) fn at_least_one() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..)
}

/// A duration of at least one second: the shortest useful measurement or token lifetime.
pub(super) fn at_least_one_second(text: &str) -> Result<Duration, String> {
    let duration = units::duration(text)?;
    if duration < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_an_invalid_value_names_the_accepted_ones() {
        assert_eq!(event_type("com.example/moved v2").as_deref(), Ok("com.example/moved v2"));
        assert!(event_type("").is_err_and(|refused| refused.contains("empty")));
        assert_eq!(event_key("customer 7").map(|key| key.to_string()).as_deref(), Ok("customer 7"));
        assert!(event_key(&"k".repeat(1_025)).is_err_and(|refused| refused.contains("1024")));
        assert_eq!(row_id("17"), Ok(17));
        assert!(row_id("x").is_err_and(|refused| refused.contains("number")));
        for (text, seconds) in [("1s", Some(1)), ("1000ms", Some(1)), ("1m", Some(60)), ("999ms", None), ("0", None)] {
            assert_eq!(at_least_one_second(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
