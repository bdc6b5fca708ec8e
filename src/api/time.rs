//! Times as clients see them: RFC 3339 in UTC with `Z` and milliseconds.
use domain::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// `2026-01-31T12:00:00.000Z`; a point beyond the calendar prints as the epoch.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let point = jiff::Timestamp::from_millisecond(at.millis()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    PRINTER.timestamp_to_string(&point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_z_and_milliseconds() {
        assert_eq!(rfc3339(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp::from_millis(1_769_860_800_120)), "2026-01-31T12:00:00.120Z");
    }
}
