//! The partition of a key: murmur2 as Kafka's Java clients compute it, so that a key has the same partition whichever client publishes.
use crate::ids::PartitionNo;

/// The outbox partition of a key. A `partitions` of zero counts as one.
pub fn of_key(key: &str, partitions: u32) -> PartitionNo {
    PartitionNo(topic_partition(key.as_bytes(), partitions))
}

/// The topic partition that Kafka's default partitioner chooses for a key. A `count` of zero counts as one.
pub fn topic_partition(key: &[u8], count: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % count.max(1)
}

/// MurmurHash2 with the seed and the tail of `org.apache.kafka.common.utils.Utils.murmur2`.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut blocks = data.chunks_exact(4);
    for block in &mut blocks {
        let mut k = u32::from_le_bytes([block[0], block[1], block[2], block[3]]).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let tail = blocks.remainder();
    if !tail.is_empty() {
        hash ^= tail.iter().rev().fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_the_vectors_of_kafkas_own_tests() {
        // From UtilsTest.testMurmur2 of Apache Kafka.
        let vectors: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];

        for (key, hash) in vectors {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }

    #[test]
    fn partitions_are_the_positive_hash_modulo_the_count() {
        let cases = [("abc", 64, 479_470_107 % 64), ("21", 12, ((-973_932_308_i32) & 0x7fff_ffff) % 12), ("21", 1, 0)];

        for (key, count, partition) in cases {
            assert_eq!(topic_partition(key.as_bytes(), count), partition as u32, "{key} of {count}");
            assert_eq!(of_key(key, count), PartitionNo(partition as u32));
        }
        assert_eq!(topic_partition(b"abc", 0), 0);
    }
}
