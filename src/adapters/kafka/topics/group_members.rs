//! GroupReader: reads the members of a group without joining it.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::connection::broker_contact::{BrokerContact, ContactContext};
use crate::connection::client_config;
use crate::options::Options;

/// What the adapter was doing, as errors name it.
const ACTION: &str = "reading the members of a group";

/// A member of a group, as the group's coordinator describes it. Each client of a group member is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DescribedMember {
    pub(crate) client_id: String,
    /// Address from which the client is connected.
    pub(crate) host: String,
    /// The subscription, as the consumer protocol encodes it; empty while the group rebalances.
    pub(crate) subscription: Vec<u8>,
}

/// A client that reads groups. It has connections to all brokers.
pub(crate) struct GroupReader {
    options: Arc<Options>,
    contact: Arc<BrokerContact>,
    /// `None` only after the drop.
    client: Option<BaseConsumer<ContactContext>>,
}

impl GroupReader {
    pub(crate) fn new(options: &Arc<Options>, contact: &Arc<BrokerContact>) -> Result<Self, Error> {
        let (config, context) = (client_config::metadata(options), ContactContext(Arc::clone(contact)));
        let client = BaseConsumer::from_config_and_context(&config, context);
        let client = Some(client.map_err(|error| contact.map_err(&error, ACTION))?);
        Ok(Self { options: Arc::clone(options), contact: Arc::clone(contact), client })
    }

    /// The members of a group. `None` if no broker describes it: it does not exist, or librdkafka has hidden the error of its coordinator, which may
    /// be unreachable or still load its groups: an answer of another broker replaces that error, and a group's own error comes as an empty state.
    pub(crate) fn read(&self, group: &str) -> Result<Option<Vec<DescribedMember>>, Error> {
        let Some(client) = &self.client else { return Ok(None) };
        let group = self.options.topic(group);
        let list = client.fetch_group_list(Some(&group), self.options.connect_timeout);
        // Serves the callbacks (logs and errors) that librdkafka has queued.
        while client.poll(Duration::ZERO).is_some() {}
        let list = list.map_err(|error| self.contact.map_err(&error, ACTION))?;
        self.contact.record_response();
        let described = list.groups().iter().find(|listed| listed.name() == group && !listed.state().is_empty());
        let members = described.map(|described| {
            let members = described.members().iter().map(|member| DescribedMember {
                client_id: member.client_id().to_owned(),
                host: member.client_host().to_owned(),
                subscription: member.metadata().unwrap_or_default().to_vec(),
            });
            members.collect()
        });
        Ok(members)
    }
}

impl Drop for GroupReader {
    /// librdkafka waits for its threads when a client is dropped, which must not block an async caller.
    fn drop(&mut self) {
        let client = self.client.take();
        // Without a thread the client is dropped here.
        drop(std::thread::Builder::new().name("kafka-group-read".into()).spawn(move || drop(client)));
    }
}
