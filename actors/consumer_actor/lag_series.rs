//! LagSeries: the lag gauge's series of this instance's consumers. A series belongs to the member that reads its topic partition. When
//! the member loses the partition, the series is removed: otherwise its last value would remain, and an alert with it.
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use ports::broker::consumer_groups::Lag;
use telemetry::Metrics;

/// The published series of all members of this instance.
pub struct LagSeries {
    metrics: Arc<Metrics>,
    /// Topic and partition of each series, and the member that reads it.
    readers: Mutex<BTreeMap<(String, u32), u32>>,
}

impl LagSeries {
    /// Starts without published series.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, readers: Mutex::default() }
    }

    /// Publishes the lag of each partition that this member reads, and removes the series of those that it does not read any more.
    /// A partition that another member of this instance has taken over keeps its series.
    pub fn publish(&self, member: u32, lag: &[Lag]) {
        let mut readers = self.readers.lock();
        // A set: with thousands of partitions, a search of the list for each series would hold the relay's thread up for seconds.
        let read: HashSet<(&str, u32)> = lag.iter().map(|lag| (&*lag.topic, lag.partition)).collect();
        let left = readers
            .extract_if(.., |(topic, partition), reader| *reader == member && !read.contains(&(topic, *partition)));
        for ((topic, partition), _) in left {
            self.metrics.kafka_consumer_lag.remove([&topic, &partition.to_string()]);
        }
        for Lag { topic, partition, messages, .. } in lag {
            readers.insert((topic.clone(), *partition), member);
            let messages = i64::try_from(*messages).unwrap_or(i64::MAX);
            self.metrics.kafka_consumer_lag.with([topic, &partition.to_string()]).set(messages);
        }
    }

    /// Removes all series of a member that reads nothing any more.
    pub fn withdraw(&self, member: u32) {
        self.publish(member, &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lag(partition: u32, messages: u64) -> Lag {
        Lag { topic: "order.events".into(), partition, messages, age: Duration::ZERO }
    }

    fn series(metrics: &Metrics) -> Vec<String> {
        let text = metrics.render();
        text.lines().filter(|line| line.starts_with("kafka_consumer_lag{")).map(str::to_owned).collect()
    }

    #[test]
    fn series_of_a_partition_that_went_to_another_instance_is_removed() {
        let metrics = Metrics::new();
        let lags = LagSeries::new(Arc::clone(&metrics));
        lags.publish(0, &[lag(1, 7), lag(2, 9)]);

        lags.publish(0, &[lag(2, 5)]);

        assert_eq!(series(&metrics), ["kafka_consumer_lag{partition=\"2\",topic=\"order.events\"} 5"]);
        lags.withdraw(0);
        assert!(series(&metrics).is_empty());
    }

    #[test]
    fn series_of_a_partition_that_another_member_took_over_stays() {
        let metrics = Metrics::new();
        let lags = LagSeries::new(Arc::clone(&metrics));
        lags.publish(0, &[lag(1, 7)]);
        lags.publish(1, &[lag(1, 6)]);

        lags.publish(0, &[]);

        assert_eq!(series(&metrics), ["kafka_consumer_lag{partition=\"1\",topic=\"order.events\"} 6"]);
    }
}
