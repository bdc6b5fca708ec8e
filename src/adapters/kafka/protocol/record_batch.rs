//! A record batch of format 2 (KIP-98), encoded from the port's records without a copy of each.
use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
use ports::broker::RecordHeaders;

use crate::options::Compression;

/// Bytes of a batch before its records.
pub(crate) const BATCH_OVERHEAD: usize = 61;
/// Offsets in a batch at which the part begins that the length counts, and the part that the checksum covers.
const LENGTH_FROM: usize = 12;
const CHECKSUM_FROM: usize = 21;
/// The attribute of records that belong to a transaction.
const TRANSACTIONAL: i16 = 0x10;

/// One record to encode.
#[derive(Clone, Copy)]
pub(crate) struct RecordParts<'a> {
    pub(crate) key: Option<&'a [u8]>,
    /// `None` deletes the key from a compacted topic.
    pub(crate) value: Option<&'a [u8]>,
    /// `None` for a record without headers.
    pub(crate) headers: Option<&'a RecordHeaders>,
    /// In milliseconds since 1970, by the producer's clock.
    pub(crate) timestamp: i64,
}

/// The producer that writes a batch, and the sequence number of the batch's first record in the partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchProducer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) first_sequence: i32,
}

/// Encodes records of one topic partition as one batch of a transaction.
pub(crate) fn encode(records: &[RecordParts<'_>], producer: BatchProducer, compression: Compression) -> Bytes {
    let first = records.first().map_or(0, |record| record.timestamp);
    let latest = records.iter().map(|record| record.timestamp).max().unwrap_or(first);
    let size = records.iter().map(size_max).sum::<usize>();
    let mut batch = BytesMut::with_capacity(BATCH_OVERHEAD + size);
    batch.put_i64(0); // the broker assigns the offset
    batch.put_i32(0); // the length, written below
    batch.put_i32(-1); // the epoch of the partition's leader: only the broker knows it
    batch.put_i8(2); // the format
    batch.put_u32(0); // the checksum, written below
    batch.put_i16(TRANSACTIONAL | if compression == Compression::Lz4 { 3 } else { 0 });
    batch.put_i32(records.len() as i32 - 1);
    batch.put_i64(first);
    batch.put_i64(latest);
    batch.put_i64(producer.id);
    batch.put_i16(producer.epoch);
    batch.put_i32(producer.first_sequence);
    batch.put_i32(records.len() as i32);
    match compression {
        Compression::None => put_records(&mut batch, records, first),
        Compression::Lz4 => {
            let mut plain = BytesMut::with_capacity(size);
            put_records(&mut plain, records, first);
            put_lz4(&mut batch, &plain);
        }
    }
    let length = (batch.len() - LENGTH_FROM) as i32;
    batch[8..LENGTH_FROM].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32c::crc32c(&batch[CHECKSUM_FROM..]);
    batch[CHECKSUM_FROM - 4..CHECKSUM_FROM].copy_from_slice(&checksum.to_be_bytes());
    batch.freeze()
}

/// An upper limit of the bytes that a record takes in a batch, without compression.
pub(crate) fn size_max(record: &RecordParts<'_>) -> usize {
    const VARINT_MAX: usize = 5;
    let headers = record.headers.map_or(0, |headers| headers.encoded().len());
    // Length, attributes, timestamp, offset, lengths of key and value, number of headers.
    VARINT_MAX
        + 1
        + 10
        + 4 * VARINT_MAX
        + record.key.map_or(0, <[u8]>::len)
        + record.value.map_or(0, <[u8]>::len)
        + headers
}

fn put_records(buffer: &mut BytesMut, records: &[RecordParts<'_>], first_timestamp: i64) {
    for (offset, record) in (0..).zip(records) {
        let headers = record.headers.map(RecordHeaders::written).unwrap_or_default();
        let delta = record.timestamp - first_timestamp;
        let numbers = varint_size(delta) + varint_size(offset) + varint_size(headers.len() as i64);
        let parts = nullable_bytes_size(record.key) + nullable_bytes_size(record.value) + headers.encoded().len();
        put_varint(buffer, (1 + numbers + parts) as i64);
        buffer.put_i8(0); // the attributes, which have no meaning yet
        put_varint(buffer, delta);
        put_varint(buffer, offset);
        put_nullable_bytes(buffer, record.key);
        put_nullable_bytes(buffer, record.value);
        put_varint(buffer, headers.len() as i64);
        buffer.extend_from_slice(headers.encoded());
    }
}

fn put_nullable_bytes(buffer: &mut BytesMut, bytes: Option<&[u8]>) {
    put_varint(buffer, bytes.map_or(-1, |bytes| bytes.len() as i64));
    buffer.extend_from_slice(bytes.unwrap_or_default());
}

fn nullable_bytes_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(varint_size(-1), |bytes| varint_size(bytes.len() as i64) + bytes.len())
}

/// Writes a number as a zigzag varint, which takes few bytes near zero.
fn put_varint(buffer: &mut BytesMut, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        buffer.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    buffer.put_u8(rest as u8);
}

/// The bytes that [`put_varint`] writes: one for each seven bits.
pub(crate) fn varint_size(value: i64) -> usize {
    (zigzag(value) | 1).ilog2() as usize / 7 + 1
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// LZ4's frame format with independent blocks, which Kafka requires.
fn put_lz4(batch: &mut BytesMut, plain: &[u8]) {
    let info = FrameInfo::new().block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, batch.writer());
    encoder.write_all(plain).expect("a buffer in memory takes every byte");
    encoder.finish().expect("a buffer in memory takes every byte");
}

#[cfg(test)]
mod tests {
    use kafka_protocol::records::{Compression as Kind, RecordBatchDecoder};

    use super::*;

    fn decoded(compression: Compression, values: &[&str]) -> Vec<(String, String, i64, i64, i32)> {
        let headers: RecordHeaders = [("h", "1"), (ports::broker::NULL_KEY, "")].into_iter().collect();
        let records: Vec<RecordParts<'_>> = (0..)
            .zip(values)
            .map(|(index, value)| RecordParts {
                key: Some(b"key"),
                value: Some(value.as_bytes()),
                headers: Some(&headers),
                timestamp: 1_000 - index,
            })
            .collect();
        let producer = BatchProducer { id: 7, epoch: 3, first_sequence: 40 };
        let mut batch = encode(&records, producer, compression);
        let decompress = |bytes: &mut Bytes, kind: Kind| {
            let mut plain = Vec::new();
            match kind {
                Kind::Lz4 => std::io::copy(&mut lz4_flex::frame::FrameDecoder::new(&**bytes), &mut plain)?,
                _ => std::io::copy(&mut &**bytes, &mut plain)?,
            };
            Ok(Bytes::from(plain))
        };
        let set = RecordBatchDecoder::decode_with_custom_compression(&mut batch, Some(decompress)).expect("legal");
        let text = |bytes: &Option<Bytes>| String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
        set.records
            .iter()
            .map(|record| {
                assert!(record.transactional && (record.producer_id, record.producer_epoch) == (7, 3));
                let header = record.headers.values().next().expect("it has a header");
                (text(&record.value), text(header), record.timestamp, record.offset, record.sequence)
            })
            .collect()
    }

    #[test]
    fn lengths_take_as_many_bytes_as_zigzag_varints_do() {
        assert_eq!([0, 63, 64, 8_191, 8_192, 1_048_575].map(varint_size), [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn record_without_a_value_is_not_one_with_an_empty_value() {
        let record = |value| RecordParts { key: Some(b"k"), value, headers: None, timestamp: 0 };
        let producer = BatchProducer { id: 7, epoch: 3, first_sequence: 0 };

        let mut batch = encode(&[record(None), record(Some(&[]))], producer, Compression::None);

        let set = RecordBatchDecoder::decode(&mut batch).expect("legal");
        let values = set.records.into_iter().map(|record| record.value).collect::<Vec<_>>();
        assert_eq!(values, [None, Some(Bytes::new())]);
    }

    #[test]
    fn batch_decodes_to_its_records_with_and_without_compression() {
        let long = "x".repeat(200_000);
        for compression in [Compression::None, Compression::Lz4] {
            let expected = [("a", 0), ("", 1), (&*long, 2)]
                .map(|(value, offset)| (value.to_owned(), "1".to_owned(), 1_000 - offset, offset, 40 + offset as i32));

            assert_eq!(decoded(compression, &["a", "", &long]), expected);
        }
    }

    #[test]
    fn size_max_is_never_exceeded() {
        let headers: RecordHeaders = vec![("name", [7; 300]); 20].into_iter().collect();
        for length in [0, 63, 64, 8_191, 8_192, 1_100_000] {
            let value = vec![1; length];
            let record =
                RecordParts { key: Some(b"k"), value: Some(&value), headers: Some(&headers), timestamp: i64::MAX };

            let batch = encode(&[record], BatchProducer { id: 1, epoch: 0, first_sequence: 0 }, Compression::None);

            assert!(batch.len() <= BATCH_OVERHEAD + size_max(&record), "{length}");
        }
    }
}
