//! JSON bodies. serde_json checks the grammar and fills the target struct, whose members are [`JsonMember`]s: raw texts that the handler
//! interprets one by one, so that all errors are reported together and numbers never pass through a float.
//!
//! serde_json accepts repeated members in ignored values, half surrogate pairs there, and any depth: [`check_members`] refuses these.
use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::error::Problem;

/// Deepest nesting of arrays and objects; the bodies of the contract need three levels.
const DEPTH_MAX: usize = 64;

/// A JSON object body as a struct of [`JsonMember`]s.
///
/// # Errors
/// 400 for malformed JSON, repeated members at any depth, or a body that is not an object.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    read_object(checked(body)?).ok_or_else(|| Problem::bad_request("the body must be a JSON object"))
}

/// The member names of a JSON object body.
///
/// # Errors
/// Fails as [`object`] does.
pub(crate) fn member_names(body: &[u8]) -> Result<Vec<String>, Problem> {
    let members = object::<std::collections::BTreeMap<String, IgnoredAny>>(body)?;
    Ok(members.into_keys().collect())
}

/// A body that is one value or an array of them.
pub(crate) enum Elements<'a> {
    /// The body is not an array.
    One(JsonMember<'a>),
    /// The elements of the array.
    Many(Vec<JsonMember<'a>>),
}

/// A JSON body as its elements.
///
/// # Errors
/// 400 for malformed JSON and repeated members at any depth.
pub(crate) fn elements(body: &[u8]) -> Result<Elements<'_>, Problem> {
    let text = checked(body)?.trim();
    let malformed = |error: serde_json::Error| Problem::bad_request(format!("the body is not valid JSON: {error}"));
    if text.starts_with('[') {
        return serde_json::from_str(text).map(Elements::Many).map_err(malformed);
    }
    serde_json::from_str(text).map(Elements::One).map_err(malformed)
}

/// The value of a member.
pub(crate) enum JsonValue<'a> {
    Null,
    Bool(bool),
    /// The text as the client wrote it.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<JsonMember<'a>>),
    Object,
}

/// The raw JSON text of a value, or a missing member. Unlike `Option<&RawValue>`, `null` is present.
#[derive(Clone, Copy, Default)]
pub(crate) struct JsonMember<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}

impl<'a> JsonMember<'a> {
    /// The value; `None` for a missing member.
    pub(crate) fn value(self) -> Option<JsonValue<'a>> {
        let text = self.0?.get();
        Some(match text.as_bytes()[0] {
            b'n' => JsonValue::Null,
            b't' => JsonValue::Bool(true),
            b'f' => JsonValue::Bool(false),
            b'"' => JsonValue::Text(unescaped(text)?),
            b'[' => JsonValue::Array(serde_json::from_str(text).ok()?),
            b'{' => JsonValue::Object,
            _ => JsonValue::Number(text),
        })
    }

    /// The value; `None` for a missing member and for `null`.
    pub(crate) fn non_null(self) -> Option<JsonValue<'a>> {
        self.value().filter(|value| !matches!(value, JsonValue::Null))
    }

    /// The raw JSON text; `None` for a missing member.
    pub(crate) fn raw(self) -> Option<&'a str> {
        self.0.map(RawValue::get)
    }

    /// The value as a struct that refuses unknown members.
    ///
    /// # Errors
    /// The error, as the end of a sentence that begins with the name of the value.
    pub(crate) fn strict_object<T: Deserialize<'a>>(self) -> Result<T, String> {
        match self.raw().filter(|text| text.starts_with('{')) {
            Some(text) => serde_json::from_str(text).map_err(|error| error.to_string()),
            None => Err("must be a JSON object".to_owned()),
        }
    }

    /// The value as a struct; `None` unless it is an object.
    pub(crate) fn object<T: Deserialize<'a>>(self) -> Option<T> {
        read_object(self.0?.get())
    }
}

/// serde also fills structs from arrays, so the first character decides.
fn read_object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    if text.trim_start().starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

/// The text between the quotes; `None` for half a surrogate pair.
fn unescaped(quoted: &str) -> Option<Cow<'_, str>> {
    if quoted.contains('\\') {
        serde_json::from_str(quoted).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(&quoted[1..quoted.len() - 1]))
    }
}

fn checked(body: &[u8]) -> Result<&str, Problem> {
    let malformed =
        |cause: &dyn std::fmt::Display| Problem::bad_request(format!("the body is not valid JSON: {cause}"));
    let text = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| malformed(&error))?;
    check_members(text).map_err(|reason| malformed(&reason))?;
    Ok(text)
}

/// Refuses repeated members, half surrogate pairs and deep nesting anywhere in a text that is JSON by grammar.
fn check_members(text: &str) -> Result<(), &'static str> {
    let mut names: Vec<HashSet<Cow<'_, str>>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let mut end = at + 1;
        match byte {
            b'{' | b'[' if names.len() == DEPTH_MAX => return Err("nesting is too deep"),
            b'{' | b'[' => names.push(HashSet::new()),
            b'}' | b']' => drop(names.pop()),
            b'"' => {
                end = string_end(text, at);
                let string = unescaped(&text[at..end]).ok_or("half of a surrogate pair")?;
                let is_name = text[end..].trim_start().starts_with(':');
                if is_name && !names.last_mut().is_some_and(|object| object.insert(string)) {
                    return Err("a member is repeated in its object");
                }
            }
            _ => {}
        }
        at = end;
    }
    Ok(())
}

/// The position after the string that starts at `start`.
fn string_end(text: &str, start: usize) -> usize {
    let mut escaped = false;
    let is_end = |byte: &u8| {
        let end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        end
    };
    let length = text.as_bytes()[start + 1..].iter().position(is_end);
    length.map_or(text.len(), |length| start + length + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow, default)]
        a: JsonMember<'a>,
    }

    #[test]
    fn malformed_bodies_are_refused() {
        let deep = "[".repeat(DEPTH_MAX + 2) + &"]".repeat(DEPTH_MAX + 2);
        let bad = [
            "",
            " ",
            "{",
            "}",
            "{]",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "'a'",
            "01",
            "-",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "0x1",
            "NaN",
            "Infinity",
            "tru",
            "nulll",
            "\"\n\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\u12\"",
            "\"",
            "1 2",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "{\"a\\\\\":1,\"a\\\\\" :2}",
            "{\"x\":[{\"b\":{},\"b\":{}}]}",
            "{\"x\":\"\\ud800\"}",
            "\u{feff}{}",
            "[1 2]",
            "{\"a\" 1}",
            "// c\n1",
            &deep,
        ];
        for text in bad {
            assert!(checked(text.as_bytes()).is_err(), "{text}");
        }
        assert!(checked(b"\"\xff\"").is_err());
        let many: Vec<String> = (0..40).chain([7]).map(|n| format!("\"m{n}\":0")).collect();
        assert!(checked(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
        for good in ["{\"a\":\"a\",\"b\":\"a\"}", "[{\"a\":1},{\"a\":1}]", "{\"a\":{\"a\":\":\\\"\"}}", "[\"a\",\"a\"]"]
        {
            assert!(checked(good.as_bytes()).is_ok(), "{good}");
        }
    }

    #[test]
    fn numbers_keep_their_text_and_strings_lose_their_escapes() {
        let number = |text| match (Body { a: JsonMember(Some(serde_json::from_str(text).unwrap())) }).a.value() {
            Some(JsonValue::Number(number)) => number.to_owned(),
            _ => panic!("{text} is a number"),
        };
        assert_eq!(number(" -0.10E+007 "), "-0.10E+007");
        assert_eq!(number("1e999999999999"), "1e999999999999");
        let text: Body<'_> = object(br#"{"a":"a\u00e9\ud83d\ude00\n\/\/"}"#).unwrap();
        assert!(matches!(text.a.value(), Some(JsonValue::Text(text)) if text == "a\u{e9}\u{1f600}\n//"));
        let absent: Body<'_> = object(br#" {"b":[1e999,null,{}]}"#).unwrap();
        assert!(absent.a.value().is_none());
        let null: Body<'_> = object(br#"{"a":null}"#).unwrap();
        assert!(matches!(null.a.value(), Some(JsonValue::Null)) && null.a.non_null().is_none());
        assert!(object::<Body<'_>>(b"[1]").is_err() && object::<Body<'_>>(b"null").is_err());
    }

    proptest! {
        /// serde_json refuses numbers out of a float's range, which are texts here; it accepts repeated members.
        #[test]
        fn accepted_texts_are_serde_jsons_without_repeated_members(text in "[\\[\\]{}:,\"0-9eE.+\\- a\\\\unltrfs]{0,14}") {
            let ours = checked(text.as_bytes());
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            match (&ours, &theirs) {
                (Err(problem), Ok(_)) => prop_assert!(problem.message().ends_with("repeated in its object"), "{}", text),
                (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("out of range"), "{} {}", text, error),
                _ => {}
            }
        }
    }
}
