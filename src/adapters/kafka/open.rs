//! The adapter as a whole: opened without waiting, shared by clones, closed with the last of them.
use std::sync::Arc;

use parking_lot::Mutex;
use ports::Error;
use ports::partitions::ProducerSessionId;
use tokio::sync::oneshot;

use crate::client;
use crate::contact::Contact;
use crate::keeper::{Ask, Keeper};
use crate::lanes::Lanes;
use crate::look::Look;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::replicas::Replicas;

/// Apache Kafka as our broker. Clones share one set of connections.
#[derive(Clone)]
pub struct Kafka {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: Arc<Options>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) lanes: Lanes,
    /// The lane that appends, once somebody has.
    pub(crate) append: tokio::sync::Mutex<Option<ProducerSessionId>>,
    pub(crate) keeper: Keeper,
    /// Reads watermarks; an operator who reads a long topic must not hold an acquisition back.
    pub(crate) watermarks: Look,
    /// Reads topics for operators, once one looks.
    topics: Mutex<Option<Arc<Look>>>,
}

impl Kafka {
    /// Opens the adapter. It does not wait for a broker: until one is there, every call answers [`Error::Unreachable`]. What must be
    /// made or checked there, is when it is first reached.
    ///
    /// # Errors
    /// Only for options that can never work.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let options = Arc::new(options);
        let contact = Arc::new(Contact::default());
        client::asking(&options).create_native_config().map_err(|error| OpenError::Options(error.to_string()))?;
        let inner = Inner {
            lanes: Lanes::new(Arc::clone(&options), Arc::clone(&contact)),
            append: tokio::sync::Mutex::default(),
            keeper: Keeper::start(Arc::clone(&options), Arc::clone(&contact))?,
            watermarks: Look::start(Arc::clone(&options), Arc::clone(&contact), "kafka-watermarks")?,
            topics: Mutex::default(),
            options,
            contact,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Makes the topics that are missing, with the partitions and the retention of the options, and checks those that are there. Without
    /// names, those of the installation. May be repeated. A service need not call it: it is done whenever a broker is first reached.
    ///
    /// # Errors
    /// [`Error::Broken`] names the topic and what to do where one is missing and may not be made, or is not as it must be.
    pub async fn ensure_topics(&self, names: &[&str]) -> Result<(), Error> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.inner.keeper.ask(|answer| Ask::Ensure { names, answer }).await
    }

    /// How often the installation's topics are kept, and on how many brokers. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where no broker answers.
    pub async fn replicas(&self) -> Result<Replicas, Error> {
        self.inner.keeper.ask(|answer| Ask::Replicas { answer }).await
    }
}

impl Inner {
    /// The look into topics, started if there is none: most services never need its connections.
    pub(crate) fn topics(&self) -> Result<Arc<Look>, Error> {
        let mut topics = self.topics.lock();
        if let Some(look) = &*topics {
            return Ok(Arc::clone(look));
        }
        let look = Look::start(Arc::clone(&self.options), Arc::clone(&self.contact), "kafka-topics");
        let look = look.map_err(|error| Error::Overloaded(error.to_string()))?;
        Ok(Arc::clone(topics.insert(Arc::new(look))))
    }
}

/// A thread of ours has ended, which happens only when the adapter is dropped.
pub(crate) fn gone() -> Error {
    Error::Unreachable("the broker's client was shut down".into())
}

/// Runs a call that blocks on a thread of its own. Rare calls only: lanes that open, fences.
pub(crate) async fn aside<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (answer, told) = oneshot::channel();
    // Nobody listens any more where the caller was dropped; what was done stands all the same.
    let work = move || drop(answer.send(call()));
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| Error::Overloaded(format!("no thread for {name}: {error}")))?;
    told.await.unwrap_or_else(|_| Err(gone()))
}
