//! MemberClient: one client of a group member, with the thread that owns it and the requests to that thread.
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use ports::Error;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::oneshot;

use crate::connection::blocking_call::client_stopped;
use crate::connection::broker_contact::BrokerContact;
use crate::consumer::context::MemberContext;
use crate::consumer::member_request::{MemberReply, MemberRequest};
use crate::consumer::member_thread::MemberThread;
use crate::consumer::offset_commits::OffsetCommits;
use crate::error::map_err;
use crate::options::Options;
use crate::topics::topic_kind::TopicKind;

/// A handle to a client of the group. Dropping it leaves the group.
pub(crate) struct MemberClient {
    topics: Vec<String>,
    requests: Sender<MemberRequest>,
}

impl MemberClient {
    /// Starts a client that joins `group` for these topics, all of one kind.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if no thread can be started; the client's error if it cannot be created.
    pub(crate) fn start(
        options: &Arc<Options>,
        contact: &Arc<BrokerContact>,
        group: &str,
        kind: TopicKind,
        topics: Vec<String>,
    ) -> Result<Self, Error> {
        let action = format!("joining group {group}");
        let config = kind.member_config(options, group);
        let context = MemberContext::new(Arc::clone(contact), topics.clone());
        let consumer = BaseConsumer::from_config_and_context(&config, context);
        let mut consumer: BaseConsumer<MemberContext> = consumer.map_err(|error| map_err(&error, &action))?;
        let (requests, received) = channel();
        let wake = requests.clone();
        // The send fails only after the client's thread has ended, which then needs no wake-up.
        consumer.set_nonempty_callback(move || drop(wake.send(MemberRequest::Wake)));
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&names).map_err(|error| map_err(&error, &action))?;
        let consumer = Arc::new(consumer);
        let no_thread = |error| Error::Overloaded(format!("cannot start a thread for a member of {group}: {error}"));
        let results = requests.clone();
        // The send fails only after the client's thread has ended, which has then failed all its acknowledgements.
        let on_reply = move |reply| drop(results.send(MemberRequest::Offsets(reply)));
        let commits = OffsetCommits::start(Arc::clone(&consumer), on_reply).map_err(no_thread)?;
        let thread = MemberThread::new(consumer, commits, Arc::clone(options), (group, &topics));
        std::thread::Builder::new()
            .name("kafka-member".into())
            .spawn(move || thread.run(&received))
            .map_err(no_thread)?;
        Ok(Self { topics, requests })
    }

    /// Whether the client reads this topic.
    pub(crate) fn reads(&self, topic: &str) -> bool {
        self.topics.iter().any(|name| name == topic)
    }

    /// Sends a request to the client's thread; the result follows on the receiver.
    ///
    /// # Errors
    /// [`Error::Unreachable`] once the thread has ended.
    pub(crate) fn send<T>(
        &self,
        request: impl FnOnce(MemberReply<T>) -> MemberRequest,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        let (reply, result) = oneshot::channel();
        self.requests.send(request(reply)).map_err(|_| client_stopped())?;
        Ok(result)
    }

    /// Sends a request to the client's thread and waits for its result.
    pub(crate) async fn request<T>(&self, request: impl FnOnce(MemberReply<T>) -> MemberRequest) -> Result<T, Error> {
        result_of(self.send(request)?).await
    }
}

impl Drop for MemberClient {
    fn drop(&mut self) {
        // The send fails only when the thread has ended and left the group already.
        drop(self.requests.send(MemberRequest::Leave));
    }
}

/// Waits for the result of a request; a thread that ends answers none.
pub(crate) async fn result_of<T>(result: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
    result.await.unwrap_or_else(|_| Err(client_stopped()))
}
