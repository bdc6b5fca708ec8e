//! The value and the headers of a record: pretty where they are JSON or text, as hexadecimal digits where they are not.
use app::port_types::RecordHeaders;

use maud::{Markup, html};

use crate::topics::record_value::{pretty_json, readable};

/// Bytes of a hexadecimal dump; the rest is only counted.
const DUMP_BYTES_MAX: usize = 1_024;
const BYTES_PER_LINE: usize = 16;

/// Shows a value: the schema id of its frame and the bytes without the frame, with the raw bytes below them.
pub(crate) fn value_view(value: &[u8], (schema, bytes): (Option<u32>, &[u8])) -> Markup {
    let text = std::str::from_utf8(bytes).ok();
    let (json, text) = (text.and_then(pretty_json), text.filter(|text| is_printable(text)));
    let format = match (&json, text) {
        (Some(_), _) => "JSON",
        (None, Some(_)) => "text",
        (None, None) => "no text",
    };
    html! {
        h3 { "Value" }
        p class="quiet" { (value.len()) " bytes, " (format) @if let Some(schema) = schema { ", schema " (schema) } }
        @match (&json, text) {
            (Some(json), _) => pre tabindex="0" { code { (json) } },
            (None, Some(text)) => pre tabindex="0" { code { (text) } },
            (None, None) => pre tabindex="0" { code { (hex_dump(bytes)) } },
        }
        @if json.is_some() || text.is_some() {
            details id="hex" { summary { "As hexadecimal digits" } pre tabindex="0" { code { (hex_dump(value)) } } }
        }
    }
}

/// The headers by name; big-endian numbers are shown decoded and as digits.
pub(crate) fn header_table(headers: &RecordHeaders) -> Markup {
    html! {
        div class="wide" { table class="cards headers" {
            caption { "Headers" }
            thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
            tbody {
                @for (name, value) in headers {
                    tr { th scope="row" { code { (name) } } td data-label="Value" {
                        code { (readable(value)) } @if let Some(number) = number(name, value) { " " span class="quiet" { "= " (number) } }
                    } }
                }
            }
        } }
    }
}

/// The number in a header of Spring Kafka, which writes partition, offset and timestamp as big-endian bytes. The timestamps of its retry topics
/// have as many bytes as they need.
fn number(name: &str, value: &[u8]) -> Option<i64> {
    if !name.starts_with("kafka_original-") && !name.starts_with("retry_topic-") {
        return None;
    }
    match value.len() {
        4 => value.try_into().ok().map(i32::from_be_bytes).map(i64::from),
        8 => value.try_into().ok().map(i64::from_be_bytes),
        1..8 if name.ends_with("-timestamp") => {
            let sign = if value[0] < 0x80 { 0 } else { -1 };
            Some(value.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
        }
        _ => None,
    }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

fn hex_dump(bytes: &[u8]) -> String {
    let line = |(at, bytes): (usize, &[u8])| {
        let digits = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x} "));
        let text: String =
            bytes.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        format!("{:04x}  {digits:<48} {text}", at * BYTES_PER_LINE)
    };
    let shown = &bytes[..bytes.len().min(DUMP_BYTES_MAX)];
    let mut lines: Vec<String> = shown.chunks(BYTES_PER_LINE).enumerate().map(line).collect();
    if shown.len() < bytes.len() {
        lines.push(format!("… {} more bytes", bytes.len() - shown.len()));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_dumped_and_long_values_cut() {
        assert_eq!(hex_dump(b"\x00Az"), format!("0000  {:<48} .Az", "00 41 7a "));
        assert!(hex_dump(&[0; 1_030]).ends_with("… 6 more bytes"));
    }

    #[test]
    fn numbers_of_spring_headers_are_decoded() {
        assert_eq!(number("kafka_original-offset", &42_i64.to_be_bytes()), Some(42));
        assert_eq!(number("kafka_original-partition", &7_i32.to_be_bytes()), Some(7));
        assert_eq!(
            number("retry_topic-original-timestamp", &1_785_000_000_000_i64.to_be_bytes()[2..]),
            Some(1_785_000_000_000)
        );
        assert_eq!(number("retry_topic-backoff-timestamp", &[0xff]), Some(-1));
        assert_eq!(number("retry_topic-original-topic", b"orders"), None);
        assert_eq!(number("ce_id", b"abcd"), None);
    }

    #[test]
    fn json_is_pretty_and_its_bytes_are_one_click_away() {
        let markup = value_view(br#"{"n":1.10}"#, (None, br#"{"n":1.10}"#)).into_string();
        assert!(markup.contains("&quot;n&quot;: 1.10") && markup.contains("7b 22 6e"), "{markup}");
        assert!(value_view(b"\xff\x00", (None, b"\xff\x00")).into_string().contains("ff 00"));
    }
}
