//! Topics of the installation that were deleted while the service runs: all but the watermark topic are created again.
use ports::Error;

use crate::cluster::client::ClusterClient;
use crate::options::DeliveryGuarantee;

impl ClusterClient {
    /// The first topic of the relay that the cluster does not have.
    pub(crate) fn missing_topic(&self) -> Result<Option<String>, Error> {
        self.first_missing(&self.options.own_topics())
    }

    fn first_missing(&self, names: &[String]) -> Result<Option<String>, Error> {
        for name in names {
            if self.topic_layout(name)?.is_none() {
                return Ok(Some(name.clone()));
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
        let (watermarks, mut names) = (self.options.watermark_topic(), self.options.own_topics());
        let has_lost_watermarks = self.has_lost_watermarks()?;
        names.retain(|name| !has_lost_watermarks || *name != watermarks);
        let is_missing = self.first_missing(&names)?.is_some();
        self.ensure_topics(&names).await?;
        if is_missing {
            self.contact.record_restoration();
        }
        if !has_lost_watermarks {
            return Ok(());
        }
        let command = self.creation_command(&watermarks, self.broker_ids()?.len());
        Err(Error::Broken(format!(
            "topic {watermarks} was deleted, and a running service does not create it again: without its watermarks, a batch that was published and is still open is published once more. Compare the events that are IN_FLIGHT with their topics; then run {command} and restart all instances, which register their transactional ids in it"
        )))
    }

    /// Whether the watermark topic was deleted and decides whether an open batch was published. It decides nothing in a cluster that has
    /// no topic of the installation: that is another cluster, or one that has lost all records.
    fn has_lost_watermarks(&self) -> Result<bool, Error> {
        let watermarks = self.options.watermark_topic();
        if self.options.guarantee != DeliveryGuarantee::ExactlyOnce || self.topic_layout(&watermarks)?.is_some() {
            return Ok(false);
        }
        for name in self.options.event_topics() {
            if self.topic_layout(&name)?.is_some() {
                // Another instance may have created all of them meanwhile.
                return Ok(self.topic_layout(&watermarks)?.is_none());
            }
        }
        Ok(false)
    }
}
