//! The value of a record in a JSON document: what was published, without a change of a number, a member or a line break.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};

/// Deepest nesting of a value that is written as JSON. Parsers often refuse more than 127 levels, and the document around it has some too.
const LEVELS_MAX: u32 = 100;

/// The two members that show a value.
pub(crate) struct RecordValue {
    /// JSON as its own text on one line, any other text as a JSON text, and bytes that are no UTF-8 as hexadecimal digits after `0x`.
    pub(crate) json: Box<RawValue>,
    /// The bytes in base64 where they are no UTF-8.
    pub(crate) base64: Option<String>,
}

impl RecordValue {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { json: on_one_line(text).unwrap_or_else(|| json_text(text)), base64: None },
            Err(_) => Self { json: json_text(&hexadecimal(bytes)), base64: Some(STANDARD.encode(bytes)) },
        }
    }
}

/// JSON with a line for each member and element. Numbers and the order of members stay as they were published; `None` for a text that is no JSON.
pub fn pretty_json(text: &str) -> Option<String> {
    let line = on_one_line(text)?;
    let (mut pretty, mut level, mut in_text, mut is_escaped) = (String::new(), 0, false, false);
    let mut characters = line.get().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '}' | ']' if !in_text => {
                level -= 1;
                // An empty object or array stays on its line.
                if !pretty.ends_with(['{', '[']) {
                    new_line(&mut pretty, level);
                }
            }
            '"' if !is_escaped => in_text = !in_text,
            _ => {}
        }
        is_escaped = in_text && character == '\\' && !is_escaped;
        pretty.push(character);
        match character {
            '{' | '[' if !in_text => {
                level += 1;
                if !matches!(characters.peek(), Some('}' | ']')) {
                    new_line(&mut pretty, level);
                }
            }
            ',' if !in_text => new_line(&mut pretty, level),
            ':' if !in_text => pretty.push(' '),
            _ => {}
        }
    }
    Some(pretty)
}

fn new_line(pretty: &mut String, level: usize) {
    pretty.push('\n');
    pretty.extend(std::iter::repeat_n("  ", level));
}

/// Printable text as it is, other bytes as hexadecimal digits after `0x`.
pub(crate) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => hexadecimal(bytes),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("0x"), |text, byte| text + &format!("{byte:02x}"))
}

fn json_text(text: &str) -> Box<RawValue> {
    to_raw_value(text).expect("a text always serialises")
}

/// JSON without the white space between its tokens, so that it has no line break; `None` for a text that is no JSON.
fn on_one_line(text: &str) -> Option<Box<RawValue>> {
    let json: &RawValue = serde_json::from_str(text).ok()?;
    let (mut in_text, mut is_escaped, mut level) = (false, false, 0);
    let mut line = String::with_capacity(json.get().len());
    for character in json.get().chars() {
        match character {
            ' ' | '\t' | '\r' | '\n' if !in_text => continue,
            '"' if !is_escaped => in_text = !in_text,
            '{' | '[' if !in_text => level += 1,
            '}' | ']' if !in_text => level -= 1,
            _ => {}
        }
        if level > LEVELS_MAX {
            return None;
        }
        is_escaped = in_text && character == '\\' && !is_escaped;
        line.push(character);
    }
    RawValue::from_string(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> (String, Option<String>) {
        let RecordValue { json, base64 } = RecordValue::from_bytes(bytes);
        (json.get().to_owned(), base64)
    }

    #[test]
    fn json_is_its_own_text_on_one_line() {
        let cases = [
            (r#"{"b":1.10,"a":12345678901234567890123,"a":1e400}"#, None),
            ("\n{ \"a b\" :\t[1,\r\n  -0.0 ] }\n", Some(r#"{"a b":[1,-0.0]}"#)),
            (r#"[ "quote \" [ { ", "\\" , " x" ]"#, Some(r#"["quote \" [ { ","\\"," x"]"#)),
            (r#""text""#, None),
            ("null", None),
        ];
        for (text, line) in cases {
            assert_eq!(shown(text.as_bytes()), (line.unwrap_or(text).to_owned(), None));
        }
    }

    #[test]
    fn pretty_json_keeps_numbers_and_the_order_of_members() {
        let text = r#"{"b":12345678901234567890123,"a":[1.10,{}, [],"x\\\",{:[ "], "c" : {"d":null}}"#;
        let pretty = r#"{
  "b": 12345678901234567890123,
  "a": [
    1.10,
    {},
    [],
    "x\\\",{:[ "
  ],
  "c": {
    "d": null
  }
}"#;
        assert_eq!(pretty_json(text).as_deref(), Some(pretty));
        assert_eq!((pretty_json("[ ]").as_deref(), pretty_json("1 2")), (Some("[]"), None));
    }

    #[test]
    fn other_text_stays_text_and_other_bytes_are_in_base64_too() {
        for text in ["two\nlines", "1 2", "{\"a\":}", "", "\0\u{1}tail", "0x00", &"[".repeat(500)] {
            assert_eq!(shown(text.as_bytes()), (serde_json::to_string(text).expect("a text"), None));
        }
        let levels = |count| "[".repeat(count) + &"]".repeat(count);
        assert_eq!(shown(levels(100).as_bytes()).0, levels(100));
        assert_eq!(shown(levels(101).as_bytes()).0, format!("\"{}\"", levels(101)));
        assert_eq!(shown(&[0, 255, 16]), ("\"0x00ff10\"".to_owned(), Some("AP8Q".to_owned())));
    }
}
