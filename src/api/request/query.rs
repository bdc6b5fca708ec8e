//! Query strings and forms, parsed strictly: a repeated parameter or one that is not UTF-8 is an error.
use std::borrow::Cow;

use crate::error::Problem;

/// A parsed query string. Unknown parameters are ignored unless [`Query::reject_unknown`] is called.
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>);

impl<'a> Query<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let pair = |pair: &'a str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A name that cannot be decoded is kept as it is, so that it is refused as an unknown one.
            (decoded(name).unwrap_or(Cow::Borrowed(name)), decoded(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// Refuses unknown parameters. Operator routes call it: a misspelt filter must not select every row.
    ///
    /// # Errors
    /// 400 that names the first unknown parameter and the known ones.
    pub(crate) fn reject_unknown(&self, known: &[&str]) -> Result<(), Problem> {
        reject_unknown_names(self.0.iter().map(|(name, _)| &**name), known)
    }

    /// The value of a parameter that may occur once.
    ///
    /// # Errors
    /// 400 when it occurs twice or its value is not percent-encoded UTF-8.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.0.iter().filter(|(found, _)| found == name);
        let Some((_, value)) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::field(name, "must be given only once"));
        }
        value.as_deref().map(Some).ok_or_else(|| Problem::field(name, "must be percent-encoded UTF-8"))
    }

    /// Every value of a parameter that may occur several times.
    ///
    /// # Errors
    /// 400 when a value is not percent-encoded UTF-8.
    pub(crate) fn all(&self, name: &str) -> Result<impl Iterator<Item = &str>, Problem> {
        let values: Option<Vec<&str>> =
            self.0.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_deref()).collect();
        values.map(Vec::into_iter).ok_or_else(|| Problem::field(name, "must be percent-encoded UTF-8"))
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
    fn a_name_that_cannot_be_decoded_is_unknown() {
        for text in ["top%ZZic=x", "topic%=x", "%ff=x"] {
            assert!(Query::parse(text).reject_unknown(&["topic", "top"]).is_err(), "{text}");
        }
        assert!(Query::parse("%74opic=x").reject_unknown(&["topic"]).is_ok());
    }
}
