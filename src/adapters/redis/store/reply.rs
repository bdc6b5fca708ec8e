//! The replies of the store's scripts, read element by element. A reply that the scripts do not return is an [`Error::Broken`].
use deadpool_redis::redis::Value;
use domain::Timestamp;
use ports::Error;

/// A list that a script returned. Reading an element moves it out; an absent element reads as empty.
pub(crate) struct Reply(Vec<Value>);

impl Reply {
    /// The elements of a list; nil is the empty list.
    pub(crate) fn from_value(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(elements) => Ok(Self(elements)),
            Value::Nil => Ok(Self(Vec::new())),
            other => Err(unexpected_type(&other)),
        }
    }

    /// A reply of one element.
    pub(crate) fn single(value: Value) -> Self {
        Self(vec![value])
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn lists(self) -> Result<Vec<Reply>, Error> {
        self.0.into_iter().map(Reply::from_value).collect()
    }

    /// One element, moved out of the reply.
    pub(crate) fn take(&mut self, index: usize) -> Value {
        self.0.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// The bytes of an element; `None` if it is nil.
    pub(crate) fn bytes(&mut self, index: usize) -> Result<Option<Vec<u8>>, Error> {
        match self.take(index) {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::SimpleString(text) => Ok(Some(text.into_bytes())),
            Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
            other => Err(unexpected_type(&other)),
        }
    }

    /// The text of an element; empty if it is nil.
    pub(crate) fn text(&mut self, index: usize) -> Result<String, Error> {
        let bytes = self.bytes(index)?.unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| broken("a text is not UTF-8"))
    }

    /// The text of an element; `None` if it is nil or empty.
    pub(crate) fn optional_text(&mut self, index: usize) -> Result<Option<String>, Error> {
        self.text(index).map(|text| Some(text).filter(|text| !text.is_empty()))
    }

    /// The number of an element; zero if it is nil or empty.
    pub(crate) fn number<T: std::str::FromStr + Default>(&mut self, index: usize) -> Result<T, Error> {
        Ok(self.optional_number(index)?.unwrap_or_default())
    }

    /// The number of an element; `None` if it is nil or empty.
    pub(crate) fn optional_number<T: std::str::FromStr>(&mut self, index: usize) -> Result<Option<T>, Error> {
        let Some(text) = self.optional_text(index)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| broken(format!("{text:?} is not a number")))
    }

    /// Whether an element is 1.
    pub(crate) fn flag(&mut self, index: usize) -> Result<bool, Error> {
        Ok(self.text(index)? == "1")
    }

    /// The time of an element; `None` if it is nil or empty.
    pub(crate) fn time(&mut self, index: usize) -> Result<Option<Timestamp>, Error> {
        Ok(self.optional_number(index)?.map(Timestamp::from_millis))
    }
}

/// The error of data that this store does not write.
pub(crate) fn broken(detail: impl std::fmt::Display) -> Error {
    Error::Broken(format!("Redis contains data that this store did not write: {detail}"))
}

fn unexpected_type(value: &Value) -> Error {
    broken(format!("a reply of another type: {value:?}"))
}
