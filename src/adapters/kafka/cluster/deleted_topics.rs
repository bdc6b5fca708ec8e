//! Topics of the installation that were deleted while the service runs: all but the watermark topic are created again.
use ports::Error;

use crate::cluster::client::ClusterClient;
use crate::options::DeliveryGuarantee;

impl ClusterClient {
    /// The first topic of the relay that the cluster does not have.
    pub(crate) fn missing_topic(&self) -> Result<Option<String>, Error> {
        for name in self.options.own_topics() {
            if self.topic_layout(&name)?.is_none() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Ensures the topics without which the relay cannot work, after all of them existed. A watermark topic that was deleted is not created:
    /// a batch that was published and is still open would look unpublished, and would be published twice.
    ///
    /// # Errors
    /// As `ensure_topics`; [`Error::Broken`] also where the watermark topic was deleted.
    pub(crate) async fn restore_own_topics(&self) -> Result<(), Error> {
        let names = self.options.own_topics();
        if self.options.guarantee != DeliveryGuarantee::ExactlyOnce || !self.has_any_topic()? {
            return self.ensure_topics(&names).await;
        }
        let watermarks = self.options.watermark_topic();
        let others: Vec<String> = names.into_iter().filter(|name| *name != watermarks).collect();
        self.ensure_topics(&others).await?;
        if let Some(layout) = self.topic_layout(&watermarks)? {
            return self.check_topic(&watermarks, &layout).await;
        }
        let command = self.creation_command(&watermarks, self.broker_ids()?.len());
        Err(Error::Broken(format!(
            "topic {watermarks} was deleted, and a running service does not create it again: without its watermarks, a batch that was published and is still open is published once more. Compare the events that are IN_FLIGHT with their topics; then run {command} and restart all instances, which register their transactional ids in it"
        )))
    }

    /// Whether the cluster has a topic of the installation. One with none of them is another cluster, or one that has lost all records: its
    /// watermarks decide nothing.
    fn has_any_topic(&self) -> Result<bool, Error> {
        for name in self.options.all_topics() {
            if self.topic_layout(&name)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
