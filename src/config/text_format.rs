//! A serde format in which every value is text, as in environment variables; the requested type decides how the text is parsed.
//! `5s` is a `Duration`, `a,b` is a list or a tuple, and an empty text is an absent `Option`.
use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// A section with its keys, or the text of one value.
pub(super) enum Node<'a> {
    Section(BTreeMap<&'a str, Node<'a>>),
    Text(&'a str),
}

impl<'a> Node<'a> {
    /// Puts a value at its key: the names of the sections, then that of the value.
    pub(super) fn insert(&mut self, path: &[&'a str], text: &'a str) {
        let Node::Section(keys) = self else { return };
        match path {
            [] => {}
            [key] => drop(keys.insert(key, Node::Text(text))),
            [section, rest @ ..] => {
                keys.entry(section).or_insert_with(|| Node::Section(BTreeMap::new())).insert(rest, text);
            }
        }
    }

    fn text(self) -> Result<&'a str, Error> {
        match self {
            Node::Text(text) => Ok(text),
            Node::Section(_) => Err(Error::custom("a value, not a section")),
        }
    }

    fn parse<T: FromStr>(self, expected: &str) -> Result<T, Error> {
        self.text()?.parse().map_err(|_| Error::custom(expected))
    }

    fn list(self) -> Result<impl Iterator<Item = Node<'a>>, Error> {
        Ok(self.text()?.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Node::Text))
    }
}

macro_rules! parsed {
    ($($method:ident: $visit:ident, $expected:literal;)*) => {$(
        fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parse($expected)?)
        }
    )*};
}

impl<'a> Deserializer<'a> for Node<'a> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Node::Section(keys) => visitor.visit_map(MapDeserializer::new(keys.into_iter())),
            Node::Text(text) => visitor.visit_borrowed_str(text),
        }
    }

    parsed! {
        deserialize_bool: visit_bool, "true or false";
        deserialize_u32: visit_u32, "a whole number";
        deserialize_u64: visit_u64, "a whole number";
        deserialize_f64: visit_f64, "a number";
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Node::Text("") => visitor.visit_none(),
            Node::Text(_) | Node::Section(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.list()?))
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    /// serde's `Duration` requests a struct of seconds and nanoseconds, and also accepts a sequence of both.
    fn deserialize_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name != "Duration" {
            return self.deserialize_any(visitor);
        }
        let duration = app::units::duration(self.text()?).map_err(Error::custom)?;
        visitor.visit_seq(SeqDeserializer::new([duration.as_secs(), duration.subsec_nanos().into()].into_iter()))
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant: StrDeserializer<'a, Error> = self.text()?.into_deserializer();
        visitor.visit_enum(variant)
    }

    forward_to_deserialize_any! {
        <W: Visitor<'a>>
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char str string bytes byte_buf unit unit_struct tuple_struct map identifier ignored_any
    }
}

impl<'a> IntoDeserializer<'a, Error> for Node<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
