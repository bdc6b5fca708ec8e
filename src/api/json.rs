//! JSON read as strictly as the contract has it: numbers keep their text, duplicate members and depth are refused anywhere.
//!
//! serde_json offers the text of a number only through `RawValue`, and looks for duplicates only among members it was told of;
//! a client that sends `price` twice, one of them inside an ignored member, would be misunderstood silently. The grammar is
//! RFC 8259; a property test holds it against serde_json.
use std::borrow::Cow;
use std::collections::HashSet;

/// Deepest nesting; ours needs three levels.
pub(crate) const DEPTH_MAX: usize = 64;
/// Up to so many members are compared pair by pair.
const FEW: usize = 16;

/// One value, borrowed from the text where it can be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    /// As written.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Why a text is no JSON that we take. The message is fit for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not valid JSON: {what} at byte {at}")]
pub(crate) struct Malformed {
    what: &'static str,
    at: usize,
}

impl<'a> Json<'a> {
    /// The member of this name, if the value is an object that has one.
    pub(crate) fn member(&self, name: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }
}

/// Reads one value that fills the whole text.
pub(crate) fn parse(bytes: &[u8]) -> Result<Json<'_>, Malformed> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Malformed { what: "a character that is not UTF-8", at: error.valid_up_to() })?;
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.bad("text after the end"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn bad(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, Malformed> {
        if depth > DEPTH_MAX {
            return Err(self.bad("too deep a nesting"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err(self.bad("an unexpected character")),
            None => Err(self.bad("an unexpected end")),
        }
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, Malformed> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.bad("an unexpected character"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, Malformed> {
        self.at += 1;
        let mut values = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Json::Array(values));
        }
        loop {
            values.push(self.value(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(Json::Array(values));
            }
            if !self.eat(b',') {
                return Err(self.bad("neither a comma nor the end of the array"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, Malformed> {
        let began = self.at;
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            members.push(self.member(depth)?);
            self.space();
            if self.eat(b'}') {
                break;
            }
            if !self.eat(b',') {
                return Err(self.bad("neither a comma nor the end of the object"));
            }
        }
        if has_duplicates(&members) {
            return Err(Malformed { what: "a duplicate member in the object", at: began });
        }
        Ok(Json::Object(members))
    }

    fn member(&mut self, depth: usize) -> Result<(Cow<'a, str>, Json<'a>), Malformed> {
        self.space();
        if self.peek() != Some(b'"') {
            return Err(self.bad("no member name"));
        }
        let name = self.string()?;
        self.space();
        if !self.eat(b':') {
            return Err(self.bad("no colon after the member name"));
        }
        Ok((name, self.value(depth + 1)?))
    }

    fn number(&mut self) -> Result<Json<'a>, Malformed> {
        let began = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            // Either sign, or none.
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.digits()?;
        }
        Ok(Json::Number(&self.text[began..self.at]))
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let began = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == began { Err(self.bad("a digit is missing")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.at += 1;
        let began = self.at;
        let mut unescaped: Option<String> = None;
        let mut copied = began;
        loop {
            match self.peek() {
                None => return Err(self.bad("an unexpected end")),
                Some(b'"') => break,
                Some(0..=0x1f) => return Err(self.bad("a control character in a string")),
                Some(b'\\') => {
                    let text = unescaped.get_or_insert_with(String::new);
                    text.push_str(&self.text[copied..self.at]);
                    let character = self.escape()?;
                    if let Some(text) = &mut unescaped {
                        text.push(character);
                    }
                    copied = self.at;
                }
                Some(_) => self.at += 1,
            }
        }
        let rest = &self.text[copied..self.at];
        self.at += 1;
        Ok(match unescaped {
            None => Cow::Borrowed(rest),
            Some(text) => Cow::Owned(text + rest),
        })
    }

    fn escape(&mut self) -> Result<char, Malformed> {
        self.at += 1;
        let byte = self.peek().ok_or_else(|| self.bad("an unexpected end"))?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.bad("an unknown escape")),
        })
    }

    fn unicode(&mut self) -> Result<char, Malformed> {
        let high = self.hex()?;
        let scalar = if (0xd800..0xdc00).contains(&high) {
            if !(self.eat(b'\\') && self.eat(b'u')) {
                return Err(self.bad("half a surrogate pair"));
            }
            let low = self.hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(self.bad("half a surrogate pair"));
            }
            0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        char::from_u32(scalar).ok_or_else(|| self.bad("half a surrogate pair"))
    }

    fn hex(&mut self) -> Result<u32, Malformed> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let mut value = 0;
        for digit in digits.ok_or_else(|| self.bad("an unexpected end"))? {
            let digit = char::from(*digit).to_digit(16).ok_or_else(|| self.bad("an unknown escape"))?;
            value = value * 16 + digit;
        }
        self.at += 4;
        Ok(value)
    }
}

fn has_duplicates(members: &[(Cow<'_, str>, Json<'_>)]) -> bool {
    if members.len() <= FEW {
        let twice = |at: usize| members[..at].iter().any(|(name, _)| *name == members[at].0);
        return (1..members.len()).any(twice);
    }
    let mut seen = HashSet::with_capacity(members.len());
    !members.iter().all(|(name, _)| seen.insert(name.as_ref()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_json_is_refused() {
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
            "{\"x\":[{\"b\":{},\"b\":{}}]}",
            "\u{feff}{}",
            "[1 2]",
            "{\"a\" 1}",
            "// c\n1",
            &deep,
        ];
        for text in bad {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
        let many: Vec<String> = (0..40).chain([7]).map(|n| format!("\"m{n}\":0")).collect();
        assert!(parse(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
    }

    #[test]
    fn numbers_keep_their_text_and_strings_lose_their_escapes() {
        assert_eq!(parse(b" -0.10E+007 "), Ok(Json::Number("-0.10E+007")));
        assert_eq!(parse(b"1e999999999999"), Ok(Json::Number("1e999999999999")));
        assert_eq!(parse(br#""a\u00e9\ud83d\ude00\n/\/""#), Ok(Json::Text("a\u{e9}\u{1f600}\n//".into())));
        let value = parse(br#"{"b":[true,null,{}]}"#).unwrap();
        assert_eq!(value.member("b"), Some(&Json::Array(vec![Json::Bool(true), Json::Null, Json::Object(vec![])])));
    }

    proptest! {
        /// Same grammar as serde_json's, but for duplicates and numbers out of a float's range, which it refuses or forgets.
        #[test]
        fn the_grammar_is_serde_jsons(text in "[\\[\\]{}:,\"0-9eE.+\\- a\\\\unltrfs]{0,14}") {
            let ours = parse(text.as_bytes());
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            match (&ours, &theirs) {
                (Err(bad), Ok(_)) => prop_assert_eq!(bad.what, "a duplicate member in the object"),
                (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("out of range"), "{} {}", text, error),
                _ => {}
            }
        }
    }
}
