//! `WakeChannel` by publish and subscribe: instances announce partitions with due rows or without an owner. Announcements are coalesced:
//! the first is sent at once, those of the next few milliseconds are sent as one.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::aio::PubSub;
use deadpool_redis::redis::{Client, RedisError, RedisResult, Value, cmd};
use futures::StreamExt;
use ports::Error;
use ports::partitions::InstanceId;
use ports::partitions::wake::{WakeChannel, WakeUp, format_wake_ups, parse_wake_ups};
use tokio::time::timeout;

use crate::connection::error::call_error;
use crate::store::client::{RedisStore, StoreInner};

/// Shortest time between two announcements.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(5);
/// First delay before the next attempt to subscribe; each further one doubles it.
const RESUBSCRIBE_DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before the next attempt to subscribe.
const RESUBSCRIBE_DELAY_MAX: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Starts the task that announces this instance's partitions and the task that receives those of other instances.
    pub(crate) fn start_wake_channel(&self, instance: &InstanceId) -> RedisResult<()> {
        let client = Client::open(self.inner.redis.inner.server.clone())?;
        let (inner, wake) = (Arc::downgrade(&self.inner), &self.inner.wake);
        let (outgoing, sender) = (Arc::clone(&wake.outgoing), instance.clone());
        let announcer = tokio::spawn(async move {
            loop {
                let wake_ups = outgoing.take().await;
                let Some(inner) = inner.upgrade() else { return };
                inner.publish_wake_ups(&sender, &wake_ups).await;
                drop(inner);
                tokio::time::sleep(ANNOUNCE_INTERVAL).await;
            }
        });
        let (incoming, own_id) = (Arc::clone(&wake.incoming), instance.clone());
        let maintenance = Arc::clone(&self.inner.redis.inner.maintenance);
        let options = &self.inner.redis.inner.options;
        let limits = SubscriptionLimits {
            connect: options.connect_timeout,
            silence: options.heartbeat_interval,
            response: options.response_timeout,
        };
        let (channel, partitions) = (self.inner.wake_channel(), self.inner.partitions);
        let subscriber = tokio::spawn(async move {
            let (mut delay, mut refusal) = (RESUBSCRIBE_DELAY_MIN, SubscriptionRefusal::default());
            loop {
                let receive = |message: &str| incoming.add(parse_wake_ups(message, &own_id, partitions));
                match subscribe(&client, &channel, &limits).await {
                    Ok(connection) => {
                        refusal.end();
                        delay = RESUBSCRIBE_DELAY_MIN;
                        receive_until_lost(connection, &limits, receive).await;
                    }
                    Err(error) => refusal.record(&error),
                }
                // The shared connection is most likely lost too, and another process that claims this instance id looks for it.
                maintenance.notify_one();
                // Announcements during this delay are lost; the polls find their rows.
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(RESUBSCRIBE_DELAY_MAX);
            }
        });
        wake.tasks.lock().extend([announcer, subscriber]);
        Ok(())
    }
}

impl StoreInner {
    fn wake_channel(&self) -> String {
        format!("{}wakes", self.prefix)
    }

    async fn publish_wake_ups(&self, instance: &InstanceId, wake_ups: &[WakeUp]) {
        let mut publish = cmd("PUBLISH");
        publish.arg(self.wake_channel()).arg(format_wake_ups(instance, wake_ups));
        // A lost announcement only delays: the polls of other instances find the rows.
        let _: Result<u64, _> = self.redis.inner.store_command("wake", publish).await;
    }
}

/// Time-outs of a subscription.
struct SubscriptionLimits {
    /// Longest time until it is established.
    connect: Duration,
    /// Time without a message after which the server must answer a PING.
    silence: Duration,
    /// Longest wait for that answer.
    response: Duration,
}

/// Whether the server refuses the subscription, so that the log has one line about it. A server that does not answer is reported by the shared
/// connection.
#[derive(Default)]
struct SubscriptionRefusal {
    is_logged: bool,
}

impl SubscriptionRefusal {
    fn record(&mut self, error: &RedisError) {
        let error = call_error("subscribe to the wake-ups", error);
        if matches!(error, Error::Broken(_)) && !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(
                event = "wake_listener_interrupted",
                %error,
                "Redis refuses the wake-ups of other instances; their events wait for the poll: {error}"
            );
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_logged) {
            tracing::info!(event = "wake_listener_regained", "the instance listens for wake-ups again");
        }
    }
}

async fn subscribe(client: &Client, channel: &str, limits: &SubscriptionLimits) -> RedisResult<PubSub> {
    let connect = async {
        let mut connection = client.get_async_pubsub().await?;
        connection.subscribe(channel).await?;
        RedisResult::Ok(connection)
    };
    timeout(limits.connect, connect).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Receives messages until the connection ends or the server stops answering: a connection that a firewall dropped, or whose server lost
/// its power, never ends by itself.
async fn receive_until_lost(connection: PubSub, limits: &SubscriptionLimits, receive: impl Fn(&str)) {
    let (mut sink, mut messages) = connection.split();
    loop {
        match timeout(limits.silence, messages.next()).await {
            Ok(Some(message)) => receive(&message.get_payload::<String>().unwrap_or_default()),
            Ok(None) => return,
            Err(_) => match timeout(limits.response, sink.ping::<Value>()).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            },
        }
    }
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

#[async_trait]
impl WakeChannel for RedisStore {
    fn notify(&self, wake_up: WakeUp) {
        self.inner.wake.outgoing.add([wake_up]);
    }

    async fn notified(&self) -> Vec<WakeUp> {
        self.inner.wake.incoming.take().await
    }
}
