//! Webhooks: subscriptions that administrators create, change and test. The actors deliver the events.
pub mod delivery;
pub mod endpoint_health;
mod rotation;
pub mod signature;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::{EventId, WebhookId};
use futures::lock::Mutex;
use outbox::topics::{WEBHOOK_TOPIC, webhook_topics};
use ports::Error;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::clock::{Clock, Rng};
use ports::endpoint::WebhookClient;
use ports::endpoint::webhooks::{AttemptOutcome, Webhook, WebhookDelivery, WebhookSecret, WebhookStore};
use ports::operators::RedriveMode;

use crate::contract::rfc3339;
use crate::error::QueryError;
use crate::operators::dead_letters::{
    DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, DeadLetterPosition, DeadLetters, RedriveReport,
};
use delivery::AttemptVerdict;
pub use values::{WebhookStart, WebhookValues};

/// Most topics, and most types, of a webhook.
pub const NAMES_MAX: usize = 32;
/// Attempts to change a webhook that is changed concurrently.
const CHANGE_ATTEMPTS: u32 = 5;

/// Limits of the section `[webhooks]`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most webhooks. 100: each one is a consumer of its own in every instance.
    pub webhooks_max: usize,
    /// How long requests are also signed with the former secret after a rotation.
    pub secret_overlap: Duration,
    /// `broker.topic_prefix`, used unchanged.
    pub topic_prefix: String,
    /// Topics that the service publishes to; those that do not exist yet are created with the first webhook.
    pub own_topics: Vec<String>,
}

/// Why a webhook could not be created or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// A value is not valid.
    #[error("{field} {message}")]
    Invalid {
        /// Member of the request.
        field: &'static str,
        /// The requirement, as the end of a sentence that begins with the name.
        message: String,
    },
    /// There is no such webhook, its state does not allow the action, or the store or the broker failed.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<Error> for WebhookError {
    fn from(error: Error) -> Self {
        Self::Query(error.into())
    }
}

/// Result of a test event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestReport {
    /// The id that the endpoint received.
    pub message_id: String,
    /// Status of the response; `None` without one.
    pub status: Option<u16>,
    /// Why it was not accepted.
    pub error: Option<String>,
    /// Time until the response or the failure.
    pub duration: Duration,
}

/// The parts of the service that the webhooks use.
pub struct WebhookPorts {
    /// Persists subscriptions and delivery logs.
    pub store: Arc<dyn WebhookStore>,
    /// Sets the first offsets of a new webhook's group.
    pub groups: Arc<dyn ConsumerGroups>,
    /// Checks that a webhook's topics exist.
    pub topics: Arc<dyn TopicReader>,
    /// Checks URLs and sends test events.
    pub client: Arc<dyn WebhookClient>,
    /// The webhooks' dead letters.
    pub dead_letters: Arc<DeadLetters>,
    /// Stamps creations and changes, and the ends of secrets.
    pub clock: Arc<dyn Clock>,
    /// Ids of webhooks and test events.
    pub rng: Arc<dyn Rng>,
}

/// Creates, changes, tests and lists webhooks.
///
/// A method that names a webhook fails with [`QueryError::NotFound`] if there is none with this id; every asynchronous method
/// fails with [`QueryError::Unavailable`] or [`QueryError::Unknown`] where the store or the broker does. Redrives have the errors and the
/// cancellation of [`DeadLetters`]. A dropped list has no effect; a dropped creation, change or deletion may still take effect, also after the
/// drop; a dropped test may send its event without a record of the delivery.
pub struct Webhooks {
    ports: WebhookPorts,
    options: Options,
    /// Held from the count of the webhooks until another one is saved, so that concurrent creates of this instance keep the limit.
    creation: Mutex<()>,
}

/// The base of the topics that all webhooks share.
pub fn shared_base(prefix: &str) -> String {
    format!("{prefix}{WEBHOOK_TOPIC}")
}

impl Webhooks {
    /// Administrators' actions on webhooks.
    pub fn new(ports: WebhookPorts, options: Options) -> Self {
        Self { ports, options, creation: Mutex::default() }
    }

    /// Every webhook with its latest delivery, in the order of their creation.
    pub async fn list(&self) -> Result<Vec<(Webhook, Option<WebhookDelivery>)>, QueryError> {
        let webhooks = self.ports.store.webhooks().await?;
        let with_latest = webhooks.into_iter().map(async |webhook| {
            let latest = self.ports.store.deliveries(webhook.id).await?.into_iter().next();
            Ok((webhook, latest))
        });
        futures::future::try_join_all(with_latest).await
    }

    /// The webhook with this id.
    pub async fn find(&self, id: WebhookId) -> Result<Webhook, QueryError> {
        let webhooks = self.ports.store.webhooks().await?;
        webhooks.into_iter().find(|webhook| webhook.id == id).ok_or(QueryError::NotFound)
    }

    /// The latest deliveries of a webhook, newest first.
    pub async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, QueryError> {
        self.find(id).await?;
        Ok(self.ports.store.deliveries(id).await?)
    }

    /// Creates a webhook. `random` becomes its secret, unless the caller gives one.
    ///
    /// # Errors
    /// A value is not valid, a topic does not exist, or there are as many webhooks as permitted.
    pub async fn create(
        &self,
        topics: Vec<String>,
        values: WebhookValues,
        start: WebhookStart,
        secret: Option<String>,
        random: [u8; 32],
    ) -> Result<Webhook, WebhookError> {
        let now = self.ports.clock.now();
        let text = secret.unwrap_or_else(|| signature::encode_secret(random));
        check_secret(&text)?;
        let webhook = Webhook {
            id: WebhookId::new_v7(now, self.ports.rng.entropy()),
            version: 1,
            url: values.url.ok_or_else(|| invalid("url", "is required".into()))?,
            topics,
            types: values.types.unwrap_or_default(),
            ordered: values.ordered.unwrap_or(true),
            active: values.active.unwrap_or(true),
            disabled_reason: None,
            description: values.description.unwrap_or_default(),
            secrets: vec![WebhookSecret { text, valid_until: None }],
            created_at: now,
            updated_at: now,
        };
        self.check_values(&webhook)?;
        self.check_topics(&webhook.topics).await?;
        let _creation = self.creation.lock().await;
        let (found, max) = (self.ports.store.webhooks().await?.len(), self.options.webhooks_max);
        if found >= max {
            let message = format!("there are {found} webhooks, and webhooks.max permits {max}");
            return Err(QueryError::Conflict(message).into());
        }
        let mut read_from_end = webhook_topics(&self.options.topic_prefix);
        if start == WebhookStart::End {
            read_from_end.extend(webhook.topics.iter().cloned());
        }
        self.ports.groups.begin_at_end(&webhook.group(), &read_from_end).await?;
        self.ports.store.save_webhook(&webhook).await?;
        Ok(webhook)
    }

    /// Changes a webhook. Its topics stay: a group that has members accepts no first offsets for others.
    ///
    /// # Errors
    /// A value is not valid, or the change is based on another version.
    pub async fn change(&self, id: WebhookId, values: WebhookValues) -> Result<Webhook, WebhookError> {
        self.update(id, async |webhook| {
            values.clone().apply(webhook)?;
            self.check_values(webhook)
        })
        .await
    }

    /// Replaces the secret. The former one signs as well until the overlap has passed.
    ///
    /// # Errors
    /// The secret is not valid, or as many as permitted sign already.
    pub async fn rotate(
        &self,
        id: WebhookId,
        secret: Option<String>,
        random: [u8; 32],
    ) -> Result<Webhook, WebhookError> {
        let text = secret.unwrap_or_else(|| signature::encode_secret(random));
        check_secret(&text)?;
        self.update(id, async |webhook| {
            let now = self.ports.clock.now();
            let rotated = rotation::rotate(&webhook.secrets, text.clone(), now, self.options.secret_overlap);
            webhook.secrets = rotated.map_err(|first_end| {
                let count = webhook.secrets.len();
                QueryError::Conflict(format!(
                    "{count} secrets sign the requests; the first of them ends at {}",
                    rfc3339(first_end)
                ))
            })?;
            Ok(())
        })
        .await
    }

    /// Deletes a webhook. Its dead letters stay in their topic.
    pub async fn delete(&self, id: WebhookId) -> Result<(), QueryError> {
        if self.ports.store.delete_webhook(id).await? { Ok(()) } else { Err(QueryError::NotFound) }
    }

    /// Sends a test event now, also to an inactive webhook, and records it among the deliveries.
    pub async fn test(&self, id: WebhookId) -> Result<TestReport, QueryError> {
        let webhook = self.find(id).await?;
        // The endpoint compares the time in the signature with its own clock.
        let (at, started) = (self.ports.clock.wall(), self.ports.clock.now());
        let message_id = EventId::new_v7(at, self.ports.rng.entropy()).to_string();
        let request = delivery::test_request(&webhook, &message_id, at);
        let result = self.ports.client.post(&webhook.url, request).await;
        let error = match delivery::verdict(&result) {
            AttemptVerdict::Accepted => None,
            AttemptVerdict::Gone => Some(delivery::GONE.to_owned()),
            AttemptVerdict::Failed { failure, .. } => Some(failure.reason),
        };
        let duration = self.ports.clock.now().since(started);
        let report = TestReport { message_id, status: result.ok(), error, duration };
        let record = WebhookDelivery {
            webhook: id,
            message_id: report.message_id.clone(),
            topic: String::new(),
            key: String::new(),
            event_type: delivery::TEST_TYPE.to_owned(),
            attempt: 1,
            at,
            duration: report.duration,
            status: report.status,
            outcome: if report.error.is_none() { AttemptOutcome::Delivered } else { AttemptOutcome::Failed },
            error: report.error.clone(),
        };
        self.ports.store.record_deliveries(&[record]).await?;
        Ok(report)
    }

    /// Delivers the dead letters of a webhook after a position again; a dry run only counts them. The report says where to continue.
    pub async fn redrive(
        &self,
        id: WebhookId,
        after: Option<DeadLetterCursor>,
        limit: u32,
        mode: RedriveMode,
        audit: &ports::operators::Audit,
    ) -> Result<RedriveReport, QueryError> {
        self.find(id).await?;
        let filter = DeadLetterFilter { webhook: Some(id), after, ..DeadLetterFilter::default() };
        self.ports.dead_letters.redrive(&filter, limit, mode, audit).await
    }

    /// Lists the dead letters of a webhook after a position.
    pub async fn dead_letters(
        &self,
        id: WebhookId,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> Result<DeadLetterPage, QueryError> {
        self.find(id).await?;
        let filter = DeadLetterFilter { webhook: Some(id), after, ..DeadLetterFilter::default() };
        self.ports.dead_letters.list(&filter, limit).await
    }

    /// Delivers one dead letter of a webhook again; a dry run only checks that it can be.
    ///
    /// # Errors
    /// As [`DeadLetters::redrive_one`]; [`QueryError::NotFound`] also for a dead letter of another webhook.
    pub async fn redrive_one(
        &self,
        id: WebhookId,
        position: DeadLetterPosition,
        mode: RedriveMode,
        audit: &ports::operators::Audit,
    ) -> Result<DeadLetter, QueryError> {
        self.find(id).await?;
        if self.ports.dead_letters.find(position).await?.webhook() != Some(id) {
            return Err(QueryError::NotFound);
        }
        self.ports.dead_letters.redrive_one(position, mode, audit).await
    }

    /// The topic whose retry topics and dead letters all webhooks share.
    pub fn shared_topic(&self) -> &str {
        self.ports.dead_letters.topic()
    }

    /// The topics that the service itself publishes to, that of the orders first.
    pub fn own_topics(&self) -> &[String] {
        &self.options.own_topics
    }

    /// Changes a webhook, again from its present state where another change came first.
    async fn update(
        &self,
        id: WebhookId,
        change: impl AsyncFn(&mut Webhook) -> Result<(), WebhookError>,
    ) -> Result<Webhook, WebhookError> {
        for _ in 0..CHANGE_ATTEMPTS {
            let mut webhook = self.find(id).await?;
            change(&mut webhook).await?;
            webhook.version += 1;
            webhook.updated_at = self.ports.clock.now();
            if self.ports.store.save_webhook(&webhook).await? {
                return Ok(webhook);
            }
        }
        Err(QueryError::Conflict("the webhook was changed concurrently; try again".into()).into())
    }

    fn check_values(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        self.ports.client.check_url(&webhook.url).map_err(|message| invalid("url", message))?;
        if webhook.types.len() > NAMES_MAX {
            return Err(invalid("types", format!("must name at most {NAMES_MAX} types")));
        }
        Ok(())
    }

    async fn check_topics(&self, topics: &[String]) -> Result<(), WebhookError> {
        if topics.is_empty() || topics.len() > NAMES_MAX {
            return Err(invalid("topics", format!("must name 1 to {NAMES_MAX} topics")));
        }
        let own = webhook_topics(&self.options.topic_prefix);
        let existing = self.ports.topics.list().await?.into_iter().map(|topic| topic.name);
        let known: BTreeSet<String> = existing.chain(self.options.own_topics.iter().cloned()).collect();
        match topics.iter().find(|topic| own.contains(topic) || !known.contains(&**topic)) {
            None => Ok(()),
            Some(topic) => {
                let names = known.into_iter().filter(|name| !own.contains(name)).collect::<Vec<_>>().join(", ");
                Err(invalid(
                    "topics",
                    format!("must name existing topics, and there is no {topic}; there are: {names}"),
                ))
            }
        }
    }
}

fn invalid(field: &'static str, message: String) -> WebhookError {
    WebhookError::Invalid { field, message }
}

fn check_secret(text: &str) -> Result<(), WebhookError> {
    if signature::is_secret(text) {
        return Ok(());
    }
    Err(invalid("secret", "must be whsec_ and 24 to 64 bytes in base64".to_owned()))
}
