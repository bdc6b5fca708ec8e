//! URLs and shell commands, with their parameters encoded and quoted.
use std::fmt::Write;

/// A path with a query string; empty parameters are left out.
pub(crate) fn link(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    let mut separator = '?';
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{name}={}", percent_encoded(value));
        separator = '&';
    }
    text
}

/// Percent-encodes a parameter's value.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => encoded.push(byte.into()),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Whether a redirect target is a normalised path of a console page, perhaps with a query. Browsers resolve dots, also encoded ones, and
/// read some texts as another origin: such a target may lead away from the console.
pub(crate) fn is_console_page(target: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let normal = |part: &str| !part.is_empty() && part.bytes().any(|byte| byte != b'.') && part.bytes().all(plain);
    let below = match path.strip_prefix("/console") {
        Some("") => true,
        Some(rest) => rest.strip_prefix('/').is_some_and(|rest| rest.split('/').all(normal)),
        None => false,
    };
    below && query.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#'))
}

/// A text as one shell argument.
pub fn shell_quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'/' | b':');
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A command with its options; options without a value are left out.
pub(crate) fn shell_command(command: &str, options: &[(&str, &str)]) -> String {
    options
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .fold(command.to_owned(), |line, (name, value)| format!("{line} --{name} {}", shell_quoted(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_in_urls_and_quoted_in_commands() {
        assert_eq!(link("/console", &[("a", ""), ("b", "x y&\"ü"), ("c", "/d")]), "/console?b=x%20y%26%22%C3%BC&c=/d");
        assert_eq!(shell_quoted("01-ab/3"), "01-ab/3");
        assert_eq!(shell_quoted("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(
            shell_command("posthaste dlt list", &[("key", ""), ("type", "A B")]),
            "posthaste dlt list --type 'A B'"
        );
    }

    #[test]
    fn only_console_pages_are_redirect_targets() {
        for good in ["/console", "/console?x=1", "/console/outbox?status=PARKED&after=3", "/console/dlt/3/17?a=../b"] {
            assert!(is_console_page(good), "{good}");
        }
        let bad = [
            "",
            "/",
            "//evil",
            "/consoleevil",
            "https://evil/console",
            "/console\\..",
            "/console/\r\nx: y",
            "console",
            "/console/",
            "/console//evil",
            "/console/outbox/",
            "/console/..",
            "/console/../orders",
            "/console/./outbox",
            "/console/%2e%2e/orders",
            "/console/.%2E/orders",
            "/console/%2Fevil",
            "/console/x;/../../orders",
            "/console#/../orders",
            "/console?x#y",
        ];
        for bad in bad {
            assert!(!is_console_page(bad), "{bad}");
        }
    }
}
