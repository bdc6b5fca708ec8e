//! Query strings and forms, parsed strictly: a repeated parameter, or a name or value that cannot be decoded, is an error.
use std::borrow::Cow;

use crate::error::Problem;

/// A parsed query string. Unknown parameters are ignored unless [`Query::reject_unknown`] is called. Every read is an error when a name
/// cannot be decoded: it might be the name that is read.
pub(crate) struct Query<'a> {
    /// A value that cannot be decoded is `None`.
    parameters: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>,
    undecodable_name: Option<&'a str>,
}

impl<'a> Query<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let (mut parameters, mut undecodable_name) = (Vec::new(), None);
        for pair in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match decoded(name) {
                Some(name) => parameters.push((name, decoded(value))),
                None => undecodable_name = undecodable_name.or(Some(name)),
            }
        }
        Self { parameters, undecodable_name }
    }

    fn parameters(&self) -> Result<impl Iterator<Item = (&str, Option<&str>)>, Problem> {
        match self.undecodable_name {
            Some(name) => Err(not_decodable(name)),
            None => Ok(self.parameters.iter().map(|(name, value)| (&**name, value.as_deref()))),
        }
    }

    /// Refuses unknown parameters. Operator routes call it: a misspelt filter must not select every row.
    ///
    /// # Errors
    /// 400 that names the first unknown parameter and the known ones.
    pub(crate) fn reject_unknown(&self, known: &[&str]) -> Result<(), Problem> {
        reject_unknown_names(self.parameters()?.map(|(name, _)| name), known)
    }

    /// The value of a parameter that may occur once.
    ///
    /// # Errors
    /// 400 when it occurs twice, or its value or any name is not percent-encoded UTF-8.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.parameters()?.filter(|(found, _)| *found == name);
        let Some((_, value)) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::field(name, "must be given only once"));
        }
        value.map(Some).ok_or_else(|| not_decodable(name))
    }

    /// Every value of a parameter that may occur several times.
    ///
    /// # Errors
    /// 400 when a value or any name is not percent-encoded UTF-8.
    pub(crate) fn all(&self, name: &str) -> Result<impl Iterator<Item = &str>, Problem> {
        let values: Option<Vec<&str>> =
            self.parameters()?.filter(|(found, _)| *found == name).map(|(_, value)| value).collect();
        values.map(Vec::into_iter).ok_or_else(|| not_decodable(name))
    }

    /// As [`Query::get`], but an empty value counts as absent.
    pub(crate) fn non_empty(&self, name: &str) -> Result<Option<&str>, Problem> {
        Ok(self.get(name)?.filter(|value| !value.is_empty()))
    }

    /// An integer, clamped to the range of `i64`.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Problem> {
        let Some(text) = self.get(name)? else { return Ok(None) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Problem::field(name, "must be an integer"));
        }
        let clamped = if text.starts_with('-') { i64::MIN } else { i64::MAX };
        Ok(Some(text.parse().unwrap_or(clamped)))
    }
}

/// Refuses the first name that is not in `known`; the error lists the known ones.
pub(crate) fn reject_unknown_names<'a>(
    mut names: impl Iterator<Item = &'a str>,
    known: &[&str],
) -> Result<(), Problem> {
    match names.find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Problem::field(name, format!("is not a known name; expected one of {}", known.join(", ")))),
    }
}

fn not_decodable(name: &str) -> Problem {
    Problem::field(name, "must be percent-encoded UTF-8")
}

fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_may_occur_once() {
        let query = Query::parse("a=1&b=x%20y+z&c=%ff&d=1&d=2&e&f=-7&g=99999999999999999999&h=1.0");

        assert_eq!(query.get("a").unwrap(), Some("1"));
        assert_eq!(query.get("b").unwrap(), Some("x y z"));
        assert!(query.get("c").is_err());
        assert!(query.get("d").is_err());
        assert_eq!(query.non_empty("e").unwrap(), None);
        assert_eq!(query.integer("f").unwrap(), Some(-7));
        assert_eq!(query.integer("g").unwrap(), Some(i64::MAX));
        assert!(query.integer("h").is_err());
        assert!(query.integer("e").is_err());
        assert_eq!(query.integer("z").unwrap(), None);
    }

    #[test]
    fn a_name_that_cannot_be_decoded_is_refused() {
        for text in ["top%ZZic=x", "topic%=x", "top=1&%ff=x"] {
            let query = Query::parse(text);
            assert!(query.reject_unknown(&["topic", "top"]).is_err(), "{text}");
            assert!(query.get("top").is_err() && query.all("topic").is_err(), "{text}");
        }
        assert!(Query::parse("%74opic=x").reject_unknown(&["topic"]).is_ok());
    }
}
