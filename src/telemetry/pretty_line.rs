//! The format for people: time, level, event, message, then the fields.

use std::fmt::Write;

use serde_json::Value;
use tracing::Level;

use crate::fact::Fact;

/// `12:03:04.125Z  INFO listening listening for requests address=127.0.0.1:8080`, without colours.
pub(crate) fn plain_line(fact: &Fact) -> String {
    line(fact, |text, _| text.to_owned())
}

/// The same with ANSI colours: the level by its weight, the event bold, the rest of our own marks dim.
pub(crate) fn coloured_line(fact: &Fact) -> String {
    line(fact, |text, style| format!("\x1b[{style}m{text}\x1b[0m"))
}

const BOLD: u8 = 1;
const DIM: u8 = 2;

fn line(fact: &Fact, paint: fn(&str, u8) -> String) -> String {
    let time = fact.time.strftime("%H:%M:%S%.3fZ").to_string();
    let level = format!("{:>5}", fact.level.as_str());
    let mut line = format!(
        "{} {} {}",
        paint(&time, DIM),
        paint(&level, colour(fact.level)),
        paint(&on_one_line(&fact.event), BOLD),
    );
    if fact.message != fact.event {
        line.push(' ');
        line += &on_one_line(&fact.message);
    }
    for (name, value) in &fact.fields {
        line.push(' ');
        line += &paint(&format!("{name}="), DIM);
        push_value(&mut line, value);
    }
    line.push('\n');
    line
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

fn push_value(line: &mut String, value: &Value) {
    let bare =
        |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    let written = match value {
        Value::String(text) if bare(text) => write!(line, "{text}"),
        Value::String(text) => write!(line, "{text:?}"),
        other => write!(line, "{other}"),
    };
    written.expect("a String takes every write");
}

/// Control characters escaped: what a client sends must neither forge a line nor drive the terminal.
fn on_one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_debug())
        } else {
            line.push(c)
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn fact(message: &str, fields: Vec<(&'static str, Value)>) -> Fact {
        Fact {
            time: Timestamp::from_millisecond(1_125).expect("in range"),
            level: Level::INFO,
            event: "listening".to_owned(),
            message: message.to_owned(),
            target: "api",
            fields,
        }
    }

    #[test]
    fn a_line_reads_from_left_to_right_and_quotes_only_what_needs_it() {
        let fields = vec![("address", json!("127.0.0.1:8080")), ("port", json!(8080)), ("note", json!("a b"))];

        let line = plain_line(&fact("for requests", fields));

        assert_eq!(line, "00:00:01.125Z  INFO listening for requests address=127.0.0.1:8080 port=8080 note=\"a b\"\n");
    }

    #[test]
    fn a_missing_message_is_not_said_twice() {
        assert_eq!(plain_line(&fact("listening", vec![])), "00:00:01.125Z  INFO listening\n");
    }

    #[test]
    fn no_control_character_of_a_caller_reaches_the_terminal() {
        let line = coloured_line(&fact("a\n\x1b[2Jb", vec![("id", json!("c\n\x1b[2Jd"))]));

        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.contains("\x1b[2J"), "{line}");
    }
}
