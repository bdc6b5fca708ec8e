//! Appends the records for retry topics and dead letters. The broker may permanently reject a record, for example because it is too large for the
//! topic. Retrying it would block the partition forever, so it is dead-lettered without its value; the value stays at its original position.
use app::consume::forward::without_value;
use outbox::topics::{base_topic, dead_letter_topic, retry_stage};
use ports::Error;
use ports::broker::Record;
use ports::inbox::RetryRouteChange;

use crate::consumer_actor::decisions::ForwardedRecord;
use crate::consumer_actor::forwarding::forwarded_from;
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_log;

impl GroupConsumer {
    /// Appends the records that the broker accepts, and dead-letters those that it permanently refuses.
    ///
    /// # Errors
    /// Returns the broker's error if it may accept the records later. It may have appended some: their topic then contains them twice, as after any
    /// repeated poll.
    pub(super) async fn append_forwards(
        &self,
        forwards: Vec<ForwardedRecord>,
        retry_routes: &mut Vec<RetryRouteChange>,
    ) -> Result<(), Error> {
        let records = forwards.iter().map(|forward| forward.record.clone()).collect();
        let results = self.broker.append_individually(records).await;
        for (forward, result) in forwards.into_iter().zip(results) {
            match result {
                Err(Error::Rejected(reason)) => self.append_refused(forward, &reason, retry_routes).await?,
                result => {
                    result?;
                    self.report_appended(&forward);
                }
            }
        }
        Ok(())
    }

    /// Counts and logs a record that the broker has. Not earlier: a failed append would count, and once more with its repetition.
    fn report_appended(&self, forward: &ForwardedRecord) {
        match &forward.dead_letter {
            None => self.metrics.kafka_consumer_retry_count.inc(),
            Some(_) => self.report_dead_letter(forward),
        }
    }

    fn report_dead_letter(&self, forward: &ForwardedRecord) {
        self.metrics.kafka_consumer_dlq_count.inc();
        if let Some(dead_letter) = &forward.dead_letter {
            message_log::dead_lettered(dead_letter, &forward.record, &self.bus);
        }
    }

    async fn append_refused(
        &self,
        mut forward: ForwardedRecord,
        reason: &str,
        retry_routes: &mut Vec<RetryRouteChange>,
    ) -> Result<(), Error> {
        let if_refused = forward.if_refused.take();
        let record = &forward.record;
        let mut target = record.topic.to_string();
        if retry_stage(&record.topic).is_some() {
            target = dead_letter_topic(base_topic(&record.topic));
            self.replace_entry_of(record, if_refused, retry_routes);
        }
        match self.broker.append(vec![without_value(record, target)]).await {
            Err(Error::Rejected(second)) => message_log::not_dead_lettered(record, &second),
            result => {
                result?;
                self.report_dead_letter(&forward);
                message_log::dead_lettered_without_value(record, reason);
            }
        }
        Ok(())
    }

    /// The record enters no retry topic, so later messages of its key do not wait for it. `by` replaces the entry of its retry route.
    fn replace_entry_of(
        &self,
        record: &Record,
        by: Option<RetryRouteChange>,
        retry_routes: &mut Vec<RetryRouteChange>,
    ) {
        let Some(origin) = forwarded_from(record) else { return };
        let retry_route_key = self.retry_route_key(record);
        let is_entry = |change: &RetryRouteChange| match change {
            RetryRouteChange::Enter { key, offset, .. } => *key == retry_route_key && *offset == origin,
            RetryRouteChange::Leave { .. } => false,
        };
        if let Some(entry) = retry_routes.iter().position(is_entry) {
            retry_routes.splice(entry..=entry, by);
        }
    }
}
