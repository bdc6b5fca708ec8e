//! The forms in which humans write values.
use std::time::Duration;

/// Reads `250ms`, `5s`, `10m`, `1h`, `7d` or a bare `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "a duration such as 250ms, 5s, 10m, 1h, 7d or 0";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| FORM.to_owned())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(FORM.to_owned()),
    };
    // A century is beyond any reason and keeps sums of durations far from overflow.
    let total = number.checked_mul(millis).filter(|total| *total <= 100 * 365 * 86_400_000);
    total.map(Duration::from_millis).ok_or_else(|| "a duration of at most 36500d".to_owned())
}

/// Reads `64KiB`, `1MiB`, `1GiB` or a number of bytes.
pub(super) fn size(text: &str) -> Result<usize, String> {
    const FORM: &str = "a size such as 64KiB, 1MiB or a number of bytes";
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: usize = number.parse().map_err(|_| FORM.to_owned())?;
    let bytes = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(FORM.to_owned()),
    };
    number.checked_mul(bytes).ok_or_else(|| FORM.to_owned())
}

/// Reads `true` or `false`.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

/// Reads a list separated by commas.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_humans_write_them() {
        let cases = [
            ("250ms", Some(250)),
            ("5s", Some(5_000)),
            ("10m", Some(600_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("1.5s", None),
            ("5 s", None),
            ("", None),
            ("99999999999999999999s", None),
            ("36501d", None),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text).ok(), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_read_as_humans_write_them() {
        for (text, bytes) in
            [("1MiB", Some(1 << 20)), ("64KiB", Some(1 << 16)), ("100", Some(100)), ("1MB", None), ("", None)]
        {
            assert_eq!(size(text).ok(), bytes, "{text:?}");
        }
    }
}
