//! The records of a transaction by topic partition, and which of them go into the next Produce request: one batch for each partition.
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::protocol::record_batch::{BATCH_OVERHEAD, RecordParts, size_max};

/// A record and its index among the outcomes of the transaction.
type IndexedRecord<'a> = (usize, RecordParts<'a>);

/// Records of one topic partition that are sent as one record batch.
pub(crate) struct Chunk<'a> {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: u32,
    pub(crate) indexes: Vec<usize>,
    pub(crate) records: Vec<RecordParts<'a>>,
}

struct PartitionQueue<'a> {
    topic: Arc<str>,
    partition: u32,
    records: VecDeque<IndexedRecord<'a>>,
}

/// The unsent records of a transaction, in the order of each partition.
#[derive(Default)]
pub(crate) struct PartitionQueues<'a> {
    queues: Vec<PartitionQueue<'a>>,
    queue_indexes: HashMap<(Arc<str>, u32), usize>,
    /// Index of the queue with the watermarks, all of which have the same topic partition.
    watermark_queue: Option<usize>,
}

impl<'a> PartitionQueues<'a> {
    /// Appends a watermark. Indexes ascend.
    pub(crate) fn push_watermark(&mut self, topic: &Arc<str>, partition: u32, index: usize, record: RecordParts<'a>) {
        self.watermark_queue = Some(self.push(topic, partition, index, record));
    }

    /// Appends a record; returns the index of its queue. Indexes ascend.
    pub(crate) fn push(&mut self, topic: &Arc<str>, partition: u32, index: usize, record: RecordParts<'a>) -> usize {
        let queues = &mut self.queues;
        let queue = *self.queue_indexes.entry((Arc::clone(topic), partition)).or_insert_with(|| {
            queues.push(PartitionQueue { topic: Arc::clone(topic), partition, records: VecDeque::new() });
            queues.len() - 1
        });
        queues[queue].records.push_back((index, record));
        queue
    }

    /// Every topic partition that has or had records, topic by topic.
    pub(crate) fn partitions(&self) -> Vec<(Arc<str>, u32)> {
        let mut partitions: Vec<_> =
            self.queues.iter().map(|queue| (Arc::clone(&queue.topic), queue.partition)).collect();
        partitions.sort();
        partitions
    }

    /// The next chunk of each partition: as many records as a batch of this size certainly holds, and at least one. Watermarks wait for the round
    /// with the last records: if a transaction ends between two rounds, no watermark is visible without all records of its batch.
    pub(crate) fn next_round(&mut self, batch_bytes_max: usize) -> Vec<Chunk<'a>> {
        let (mut chunks, mut is_last) = (Vec::new(), true);
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if Some(index) != self.watermark_queue {
                chunks.push(queue.take(batch_bytes_max, usize::MAX));
                is_last &= queue.records.is_empty();
            }
        }
        if let Some(index) = self.watermark_queue.filter(|_| is_last) {
            chunks.push(self.queues[index].take(batch_bytes_max, usize::MAX));
        }
        chunks.retain(|chunk| !chunk.indexes.is_empty());
        chunks
    }

    /// The record with the lowest index, alone.
    pub(crate) fn next_record(&mut self) -> Vec<Chunk<'a>> {
        let first_index =
            |queue: &&mut PartitionQueue<'a>| queue.records.front().map_or(usize::MAX, |(index, _)| *index);
        let next = self.queues.iter_mut().filter(|queue| !queue.records.is_empty()).min_by_key(first_index);
        next.map(|queue| queue.take(0, 1)).into_iter().collect()
    }
}

impl<'a> PartitionQueue<'a> {
    fn take(&mut self, bytes_max: usize, records_max: usize) -> Chunk<'a> {
        let (mut bytes, mut indexes, mut records) = (BATCH_OVERHEAD, Vec::new(), Vec::new());
        while let Some((index, record)) = self.records.front() {
            bytes += size_max(record);
            if !indexes.is_empty() && (bytes > bytes_max || indexes.len() >= records_max) {
                break;
            }
            indexes.push(*index);
            records.push(*record);
            self.records.pop_front();
        }
        Chunk { topic: Arc::clone(&self.topic), partition: self.partition, indexes, records }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: [u8; 100] = [0; 100];

    fn queues(partitions_of_records: &[(&str, u32)]) -> PartitionQueues<'static> {
        let mut queues = PartitionQueues::default();
        for (index, (topic, partition)) in partitions_of_records.iter().enumerate() {
            let record = RecordParts { key: Some(b"k"), value: Some(&VALUE), headers: None, timestamp: 0 };
            queues.push(&Arc::from(*topic), *partition, index, record);
        }
        queues
    }

    fn indexes(chunks: &[Chunk<'_>]) -> Vec<(String, u32, Vec<usize>)> {
        chunks.iter().map(|chunk| (chunk.topic.to_string(), chunk.partition, chunk.indexes.clone())).collect()
    }

    #[test]
    fn round_has_one_chunk_for_each_partition_with_records() {
        let mut queues = queues(&[("b", 1), ("a", 0), ("b", 1), ("b", 0)]);

        let round = queues.next_round(1_000_000);

        assert_eq!(indexes(&round), [("b".into(), 1, vec![0, 2]), ("a".into(), 0, vec![1]), ("b".into(), 0, vec![3])]);
        assert!(queues.next_round(1_000_000).is_empty());
        assert_eq!(queues.partitions(), [("a".into(), 0), ("b".into(), 0), ("b".into(), 1)]);
    }

    #[test]
    fn chunks_stay_below_the_size_of_a_batch_and_have_at_least_one_record() {
        let mut queues = queues(&[("a", 0); 5]);
        let record = RecordParts { key: Some(b"k"), value: Some(&VALUE), headers: None, timestamp: 0 };
        let two = BATCH_OVERHEAD + 2 * size_max(&record);

        let rounds: Vec<_> = std::iter::from_fn(|| {
            let round = queues.next_round(two);
            (!round.is_empty()).then(|| round[0].indexes.clone())
        })
        .collect();

        assert_eq!(rounds, [vec![0, 1], vec![2, 3], vec![4]]);
        let mut large = self::queues(&[("a", 0); 2]);
        assert_eq!(large.next_round(1)[0].indexes, [0]);
    }

    #[test]
    fn watermarks_go_in_the_round_with_the_last_records() {
        let record = RecordParts { key: Some(b"k"), value: Some(&VALUE), headers: None, timestamp: 0 };
        let with_watermarks = || {
            let mut queues = queues(&[("b", 0), ("a", 0), ("a", 0)]);
            (3..5).for_each(|index| queues.push_watermark(&Arc::from("w"), 7, index, record));
            queues
        };
        let mut queues = with_watermarks();

        let rounds: Vec<_> =
            std::iter::from_fn(|| Some(indexes(&queues.next_round(1))).filter(|round| !round.is_empty())).collect();

        let chunk = |topic: &str, partition, index| (topic.to_owned(), partition, vec![index]);
        assert_eq!(
            rounds,
            [
                vec![chunk("b", 0, 0), chunk("a", 0, 1)],
                vec![chunk("a", 0, 2), chunk("w", 7, 3)],
                vec![chunk("w", 7, 4)]
            ]
        );
        assert_eq!(with_watermarks().next_round(1_000_000).len(), 3, "one round, if one request holds everything");
    }

    #[test]
    fn records_go_one_by_one_in_the_order_of_their_indexes() {
        let mut queues = queues(&[("b", 1), ("a", 0), ("b", 1)]);

        let order: Vec<_> = (0..4).map(|_| indexes(&queues.next_record())).collect();

        let alone = |topic: &str, partition, index| vec![(topic.to_owned(), partition, vec![index])];
        assert_eq!(order, [alone("b", 1, 0), alone("a", 0, 1), alone("b", 1, 2), vec![]]);
    }
}
