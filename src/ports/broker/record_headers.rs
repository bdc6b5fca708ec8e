//! The headers of a record, all in one buffer: a record of the relay has some fourteen, and the relay sends up to a hundred thousand a second.
use std::borrow::Cow;
use std::fmt;

/// Header of a consumed record whose key is not UTF-8: the bytes of its key. [`Record::key`](super::Record::key) then has replacement characters.
/// Adapters add this header and the next two when they read a record, and write the record without them: they stand for what the broker has.
pub const RAW_KEY: &str = "kafka_raw-key";
/// Header of a consumed record without a key.
pub const NULL_KEY: &str = "kafka_null-key";
/// Header of a consumed record without a value, which is a tombstone in a compacted topic.
pub const NULL_VALUE: &str = "kafka_null-value";

/// Whether an adapter adds this header when it reads a record, to stand for a key or value that [`Record`](super::Record) cannot hold.
pub fn is_virtual_header(name: &str) -> bool {
    [RAW_KEY, NULL_KEY, NULL_VALUE].contains(&name)
}

/// Header names and values in order; a name may repeat.
///
/// The buffer has Kafka's record format (KIP-82): for each header the name and the value, each after its length as a zigzag varint. Kafka's
/// adapter copies it as it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RecordHeaders {
    encoded: Vec<u8>,
    count: usize,
    has_virtual: bool,
}

impl RecordHeaders {
    /// No headers, with space for this many encoded bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { encoded: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Adds a header at the end.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            put_length(&mut self.encoded, part.len());
            self.encoded.extend_from_slice(part);
        }
        self.count += 1;
        self.has_virtual |= is_virtual_header(name);
    }

    /// The headers in order.
    pub fn iter(&self) -> RecordHeaderIter<'_> {
        RecordHeaderIter { rest: &self.encoded }
    }

    /// The value of the first header with this name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(header, _)| *header == name).map(|(_, value)| value)
    }

    /// The value of the last header with this name.
    pub fn last(&self, name: &str) -> Option<&[u8]> {
        self.iter().filter(|(header, _)| *header == name).last().map(|(_, value)| value)
    }

    /// The headers whose names match, in their order.
    pub fn filtered(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        self.iter().filter(|(name, _)| keep(name)).collect()
    }

    /// Keeps the headers whose names match, in their order.
    pub fn retain(&mut self, keep: impl FnMut(&str) -> bool) {
        *self = self.filtered(keep);
    }

    /// The headers as they are written to the broker: without those for which [`is_virtual_header`] is true. Copies only where there is one.
    pub fn written(&self) -> Cow<'_, Self> {
        if self.has_virtual { Cow::Owned(self.filtered(|name| !is_virtual_header(name))) } else { Cow::Borrowed(self) }
    }

    /// Removes all headers and frees their memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Number of headers; a name that repeats counts each time.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if nothing was added, or all of it was removed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a header stands for the record's key or value: see [`is_virtual_header`].
    pub fn has_virtual(&self) -> bool {
        self.has_virtual
    }

    /// The headers in Kafka's record format, without their number.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}

/// Shows the names, and the values as escaped ASCII.
impl fmt::Debug for RecordHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, value.escape_ascii().to_string()))).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Extend<(N, V)> for RecordHeaders {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, headers: I) {
        headers.into_iter().for_each(|(name, value)| self.push(name.as_ref(), value.as_ref()));
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> FromIterator<(N, V)> for RecordHeaders {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let mut all = Self::default();
        all.extend(headers);
        all
    }
}

impl<'a> IntoIterator for &'a RecordHeaders {
    type Item = (&'a str, &'a [u8]);
    type IntoIter = RecordHeaderIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The names and values of [`RecordHeaders`].
#[derive(Clone, Debug)]
pub struct RecordHeaderIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for RecordHeaderIter<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let name = std::str::from_utf8(take_part(&mut self.rest)?).ok()?;
        Some((name, take_part(&mut self.rest)?))
    }
}

/// Writes a length as a zigzag varint: seven bits in each byte, the lowest first. Zigzag doubles a number that is not negative.
fn put_length(buffer: &mut Vec<u8>, length: usize) {
    let mut rest = length << 1;
    while rest >= 0x80 {
        buffer.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    buffer.push(rest as u8);
}

fn take_part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (mut length, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    bytes.split_off(..length >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_return_in_order_with_repeated_names_and_long_values() {
        let long = vec![7; 300_000];
        let all: [(&str, &[u8]); 5] = [("b", b"1"), ("größe", &[0, 255]), ("b", b""), ("", &long[..64]), ("l", &long)];

        let headers: RecordHeaders = all.into_iter().collect();

        assert_eq!(headers.iter().collect::<Vec<_>>(), all);
        assert_eq!((headers.len(), headers.is_empty()), (5, false));
        assert_eq!((headers.first("b"), headers.last("b")), (Some(b"1".as_slice()), Some(b"".as_slice())));
        assert_eq!((headers.first("c"), headers.last("c")), (None, None));
    }

    #[test]
    fn retained_headers_are_counted_and_keep_their_order() {
        let mut headers: RecordHeaders = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")].into_iter().collect();

        headers.retain(|name| name != "b");

        assert_eq!(headers, [("a", "1"), ("a", "3"), ("c", "4")].into_iter().collect());
        headers.clear();
        assert_eq!((headers.len(), headers.iter().next()), (0, None));
    }
}
