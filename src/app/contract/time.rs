//! RFC 3339 times, the form of all times in events, HTTP bodies and the console.
use domain::Timestamp;

static PRINTER: jiff::fmt::temporal::DateTimePrinter = jiff::fmt::temporal::DateTimePrinter::new().precision(Some(3));

/// Formats a time as RFC 3339 in UTC with milliseconds and `Z`.
pub fn rfc3339(time: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(time.millis()) {
        Ok(stamp) => PRINTER.timestamp_to_string(&stamp),
        // After the year 9999, which no store can hold.
        Err(_) => String::from("9999-12-31T23:59:59.999Z"),
    }
}

/// Parses an RFC 3339 time; digits below a millisecond are dropped.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|stamp| Timestamp::from_millis(stamp.as_millisecond()))
}
