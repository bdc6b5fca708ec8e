//! Addresses, and lines for a shell: made so that nothing in them is taken for more than a text.
use std::fmt::Write;

/// An address with its parameters; empty ones are left out.
pub(super) fn link(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    let mut joint = '?';
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{joint}{name}={}", encoded(value));
        joint = '&';
    }
    text
}

/// Percent-encoded, so that it can stand anywhere in an address.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => encoded.push(byte.into()),
            _ => {
                // As above.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Whether a target is a page of the console, and nothing that a browser could take for another place.
pub(super) fn is_within(target: &str) -> bool {
    let rest = target.strip_prefix("/console");
    let plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    plain && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

/// A word for a shell.
pub(super) fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'/' | b':');
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A command with its options; those without a value are left out.
pub(super) fn command(words: &str, options: &[(&str, &str)]) -> String {
    options
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .fold(words.to_owned(), |line, (name, value)| format!("{line} --{name} {}", quoted(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts_in_addresses_and_shells() {
        assert_eq!(link("/console", &[("a", ""), ("b", "x y&\"ü"), ("c", "/d")]), "/console?b=x%20y%26%22%C3%BC&c=/d");
        assert_eq!(quoted("01-ab/3"), "01-ab/3");
        assert_eq!(quoted("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(command("posthaste dlt list", &[("key", ""), ("type", "A B")]), "posthaste dlt list --type 'A B'");
    }

    #[test]
    fn only_the_consoles_own_pages_are_returned_to() {
        for good in ["/console", "/console?x=1", "/console/outbox?status=PARKED&after=3"] {
            assert!(is_within(good), "{good}");
        }
        for bad in
            ["", "/", "//evil", "/consoleevil", "https://evil/console", "/console\\..", "/console/\r\nx: y", "console"]
        {
            assert!(!is_within(bad), "{bad}");
        }
    }
}
