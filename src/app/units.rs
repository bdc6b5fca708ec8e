//! Durations and sizes as people write them, `250ms` or `64KiB`: one parser for the configuration, the API and the command line.
use std::time::Duration;

/// Longest duration that is accepted, a century: sums of durations stay far from overflow and fit into every store's intervals.
const DURATION_MAX_MS: u64 = 36_500 * 86_400_000;

/// Parses `250ms`, `5s`, `10m`, `1h`, `7d` or a bare `0`, at most 36500 days.
///
/// # Errors
/// The accepted forms, as the end of a sentence with "must be".
pub fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let millis = scaled(text, |unit| match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    });
    match millis {
        Some(millis) if millis <= DURATION_MAX_MS => Ok(Duration::from_millis(millis)),
        Some(_) => Err("a duration of at most 36500d".to_owned()),
        None => Err("a duration such as 250ms, 5s, 10m, 1h, 7d or 0".to_owned()),
    }
}

/// Parses `64KiB`, `1MiB`, `1GiB` or a number of bytes.
///
/// # Errors
/// The accepted forms, as the end of a sentence with "must be".
pub fn size(text: &str) -> Result<usize, String> {
    let bytes = scaled(text, |unit| match unit {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    });
    let fits = bytes.filter(|bytes| *bytes < u64::MAX).and_then(|bytes| usize::try_from(bytes).ok());
    fits.ok_or_else(|| "a size such as 64KiB, 1MiB or a number of bytes".to_owned())
}

/// A whole number followed directly by its unit; `u64::MAX` where the product is larger.
fn scaled(text: &str, factor: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some(number.parse::<u64>().ok()?.saturating_mul(factor(unit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_end_at_a_century() {
        let cases = [
            ("250ms", Some(250)),
            ("5s", Some(5_000)),
            ("10m", Some(600_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("36500d", Some(DURATION_MAX_MS)),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("1.5s", None),
            ("5 s", None),
            ("1y", None),
            ("", None),
            ("99999999999999999999s", None),
            ("9999999999999999999d", None),
            ("36501d", None),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text).ok(), millis.map(Duration::from_millis), "{text:?}");
        }
        assert_eq!(duration("36501d").expect_err("too long"), "a duration of at most 36500d");
    }

    #[test]
    fn sizes_are_bytes_or_binary_multiples() {
        let cases = [
            ("1MiB", Some(1 << 20)),
            ("64KiB", Some(1 << 16)),
            ("100", Some(100)),
            ("100B", Some(100)),
            ("1MB", None),
            ("KiB", None),
            ("", None),
            ("99999999999999999GiB", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text).ok(), bytes, "{text:?}");
        }
    }
}
