//! `WakeChannel` by publish and subscribe: instances announce partitions with due rows or without an owner. Announcements are coalesced:
//! the first is sent at once, those of the next few milliseconds are sent as one.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::{Client, RedisError, RedisResult, Value, cmd};
use futures::StreamExt;
use ports::partitions::InstanceId;
use ports::partitions::wake::{WakeChannel, WakeUp, format_wake_ups, parse_wake_ups};
use tokio::time::timeout;

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
            let mut delay = RESUBSCRIBE_DELAY_MIN;
            loop {
                let receive = |message: &str| incoming.add(parse_wake_ups(message, &own_id, partitions));
                if subscribe(&client, &channel, &limits, receive).await.is_ok() {
                    delay = RESUBSCRIBE_DELAY_MIN;
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

/// Receives messages until the connection ends or the server stops answering: a connection that a firewall dropped, or whose server lost
/// its power, never ends by itself.
async fn subscribe(
    client: &Client,
    channel: &str,
    limits: &SubscriptionLimits,
    receive: impl Fn(&str),
) -> RedisResult<()> {
    let connect = async {
        let mut connection = client.get_async_pubsub().await?;
        connection.subscribe(channel).await?;
        RedisResult::Ok(connection)
    };
    let Ok(connected) = timeout(limits.connect, connect).await else { return Err(timed_out()) };
    let (mut sink, mut messages) = connected?.split();
    loop {
        match timeout(limits.silence, messages.next()).await {
            Ok(Some(message)) => receive(&message.get_payload::<String>().unwrap_or_default()),
            Ok(None) => return Ok(()),
            Err(_) => match timeout(limits.response, sink.ping::<Value>()).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return Ok(()),
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
