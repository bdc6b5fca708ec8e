//! Murmur2 as Java's Kafka clients compute it: a copy of its own, so that the suites do not depend on the code under test.

/// The topic partition that Java's default partitioner chooses for a key.
pub fn topic_partition(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// The 32-bit hash with Kafka's seed.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).expect("keys are shorter than 4 GiB");
    let mut hash = 0x9747_b28c ^ length;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0_u32, |tail, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `UtilsTest.testMurmur2` of Apache Kafka.
    #[test]
    fn the_examples_of_apache_kafka_match() {
        let examples: [(&[u8], i32); 5] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ];

        for (key, hash) in examples {
            assert_eq!(murmur2(key) as i32, hash, "{}", String::from_utf8_lossy(key));
        }
    }
}
