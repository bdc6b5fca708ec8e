//! What goes into the store's scripts and what comes out of them.
use deadpool_redis::redis::Value;
use domain::Timestamp;
use ports::Error;

/// Arguments of a script.
#[derive(Default)]
pub(super) struct Words(pub(super) Vec<Vec<u8>>);

impl Words {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn text(mut self, text: impl AsRef<str>) -> Self {
        self.0.push(text.as_ref().as_bytes().to_vec());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.push(bytes.to_vec());
        self
    }

    pub(super) fn number(self, number: impl std::fmt::Display) -> Self {
        self.text(number.to_string())
    }
}

/// An answer, read part by part. Anything that our scripts do not say is a broken store.
pub(super) struct Reply(Vec<Value>);

impl Reply {
    /// The parts of a list.
    pub(super) fn of(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(parts) => Ok(Self(parts)),
            Value::Nil => Ok(Self(Vec::new())),
            other => Err(strange(&other)),
        }
    }

    /// An answer of one part.
    pub(super) fn one(value: Value) -> Self {
        Self(vec![value])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The lists in a list of lists.
    pub(super) fn lists(self) -> Result<Vec<Reply>, Error> {
        self.0.into_iter().map(Reply::of).collect()
    }

    /// One part, moved out.
    pub(super) fn take(&mut self, at: usize) -> Value {
        self.0.get_mut(at).map(std::mem::take).unwrap_or_default()
    }

    /// Bytes, where there are any.
    pub(super) fn bytes(&mut self, at: usize) -> Result<Option<Vec<u8>>, Error> {
        match self.take(at) {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::SimpleString(text) => Ok(Some(text.into_bytes())),
            Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
            other => Err(strange(&other)),
        }
    }

    /// A text; empty where there is none.
    pub(super) fn text(&mut self, at: usize) -> Result<String, Error> {
        let bytes = self.bytes(at)?.unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| broken("a text is not UTF-8"))
    }

    /// A text, where there is one that says something.
    pub(super) fn maybe(&mut self, at: usize) -> Result<Option<String>, Error> {
        self.text(at).map(|text| Some(text).filter(|text| !text.is_empty()))
    }

    /// A number; zero where there is none.
    pub(super) fn number<T: std::str::FromStr + Default>(&mut self, at: usize) -> Result<T, Error> {
        Ok(self.maybe_number(at)?.unwrap_or_default())
    }

    /// A number, where there is one.
    pub(super) fn maybe_number<T: std::str::FromStr>(&mut self, at: usize) -> Result<Option<T>, Error> {
        let Some(text) = self.maybe(at)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| broken(format!("{text:?} is no number")))
    }

    /// Whether a part says 1.
    pub(super) fn flag(&mut self, at: usize) -> Result<bool, Error> {
        Ok(self.text(at)? == "1")
    }

    /// A time, where there is one.
    pub(super) fn time(&mut self, at: usize) -> Result<Option<Timestamp>, Error> {
        Ok(self.maybe_number(at)?.map(Timestamp::from_millis))
    }
}

pub(super) fn broken(what: impl std::fmt::Display) -> Error {
    Error::Broken(format!("what stands in Redis is not of this store: {what}"))
}

fn strange(value: &Value) -> Error {
    broken(format!("an answer of another shape: {value:?}"))
}
