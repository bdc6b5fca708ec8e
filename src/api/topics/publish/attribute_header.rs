//! The value of a CloudEvents attribute in a header: a double-quoted string is unescaped first, then the value is percent-decoded once.
use std::borrow::Cow;

/// The value of an attribute; `None` if it is not UTF-8.
pub(super) fn decoded(text: &str) -> Option<String> {
    percent_decoded(&unquoted(text))
}

/// The content of a value that is a quoted string of RFC 9110 as a whole; any other value as it is.
fn unquoted(text: &str) -> Cow<'_, str> {
    let Some(quoted) = text.strip_prefix('"') else { return Cow::Borrowed(text) };
    let mut content = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' if characters.as_str().is_empty() => return Cow::Owned(content),
            '"' => break,
            '\\' => content.extend(characters.next()),
            other => content.push(other),
        }
    }
    Cow::Borrowed(text)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_unquoted_and_then_percent_decoded() {
        let cases = [
            ("a", Some("a")),
            ("Euro%20%E2%82%AC", Some("Euro €")),
            ("100%", Some("100%")),
            ("%zz", Some("%zz")),
            ("%ff", None),
            (r#""7""#, Some("7")),
            (r#""""#, Some("")),
            (r#""a \"b\" \\ c""#, Some(r#"a "b" \ c"#)),
            (r#""Euro%20%E2%82%AC""#, Some("Euro €")),
            ("%227%22", Some(r#""7""#)),
            (r#""7"#, Some(r#""7"#)),
            (r#""7\""#, Some(r#""7\""#)),
            (r#""a" "b""#, Some(r#""a" "b""#)),
            (r#"a "b""#, Some(r#"a "b""#)),
        ];
        for (text, expected) in cases {
            assert_eq!(decoded(text).as_deref(), expected, "{text}");
        }
    }
}
