//! The instance id, which one process at a time holds: acquired when the store opens, renewed at the heartbeat's interval, released at the end.
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Value, cmd};
use ports::Error;
use ports::partitions::InstanceIdTakenOver;
use tokio::time::{Instant, sleep};
use uuid::Builder;

use crate::connection::client::Redis;
use crate::store::arguments::ScriptArguments;
use crate::store::call::{millis, run_script};
use crate::store::client::RedisStore;
use crate::store::open_error::StoreOpenError;
use crate::store::options::StoreOptions;
use crate::store::reply::Reply;
use crate::store::scripts::StoreScripts;

/// Time between two searches for the connections of a holder that may reconnect.
const RECONNECT_POLL: Duration = Duration::from_millis(100);

impl RedisStore {
    /// The id of this run of the process, which identifies the holder of the instance id.
    pub(crate) fn boot_id(&self) -> &str {
        &self.inner.redis.inner.boot_id
    }

    /// Stores the address where this process listens, which a second process with the same instance id reports.
    ///
    /// # Errors
    /// The errors of any write to the store.
    pub async fn announce(&self, address: &str) -> Result<(), Error> {
        let Some(id) = &self.inner.held_instance_id else { return Ok(()) };
        let mut set = cmd("HSET");
        set.arg(format!("{}holder:{id}", self.inner.prefix)).arg("address").arg(address);
        self.inner.redis.inner.store_command("announce", set).await
    }

    /// Resolves when another process has taken over the instance id. This process may then no longer act under the id: drain and exit.
    /// Never resolves otherwise. Cancel-safe.
    pub async fn instance_id_taken_over(&self) -> InstanceIdTakenOver {
        let mut receiver = self.inner.instance_id_taken_over.subscribe();
        match receiver.wait_for(Option::is_some).await.map(|value| value.clone()) {
            Ok(Some(taken_over)) => taken_over,
            _ => std::future::pending().await,
        }
    }

    /// Starts the task that renews the instance id. Heartbeats renew it too, but an instance that relays nothing sends none.
    pub(crate) fn start_instance_id_renewal(&self, interval: Duration, dead_after: Duration) {
        let store = Arc::downgrade(&self.inner);
        drop(tokio::spawn(async move {
            loop {
                sleep(interval).await;
                let Some(inner) = store.upgrade() else { return };
                let released = inner.instance_id_released.lock().await;
                if *released {
                    return;
                }
                // The connection reports a server that does not answer.
                let _ = RedisStore { inner: Arc::clone(&inner) }.renew_instance_id(dead_after).await;
            }
        }));
    }

    async fn renew_instance_id(&self, dead_after: Duration) -> Result<(), Error> {
        let Some(id) = &self.inner.held_instance_id else { return Ok(()) };
        let arguments = self.renewal_arguments(id, self.boot_id(), dead_after);
        let mut reply = self.write_list("renew_name", &self.inner.scripts.renew_instance_id, arguments).await?;
        if !reply.flag(0)? {
            self.record_instance_id_taken_over(id, &reply.text(1)?);
        }
        Ok(())
    }

    /// The arguments of a script that renews the instance id `instance`.
    pub(crate) fn renewal_arguments(&self, instance: &str, boot_id: &str, dead_after: Duration) -> ScriptArguments {
        ScriptArguments::new()
            .text(instance)
            .number(millis(dead_after))
            .text(boot_id)
            .number(std::process::id())
            .text(self.installation())
            .number(self.partitions())
    }

    /// Records the loss of `instance` to another process, or to another installation if this Redis has one now. Returns to which.
    pub(crate) fn record_instance_id_taken_over(&self, instance: &str, installation: &str) -> String {
        let by: String = if installation == self.installation() {
            "another process".into()
        } else {
            format!("installation {installation}, made after this Redis had lost installation {}", self.installation())
        };
        self.inner
            .instance_id_taken_over
            .send_replace(Some(InstanceIdTakenOver { instance: instance.to_owned(), by: by.clone() }));
        by
    }

    /// Releases the instance id and closes every connection. Safe to call twice.
    ///
    /// # Errors
    /// The instance id could not be released: it is free once the server has closed our connections.
    pub async fn close(&self) -> Result<(), Error> {
        let mut released = self.inner.instance_id_released.lock().await;
        *released = true;
        let result = match &self.inner.held_instance_id {
            Some(id) => {
                let arguments = ScriptArguments::new().text(id).text(self.boot_id());
                self.write("instance_id_release", &self.inner.scripts.release_instance_id, arguments).await.map(drop)
            }
            None => Ok(()),
        };
        self.inner.redis.close().await;
        result
    }
}

/// The installation that a Redis contains.
pub(crate) struct StoreInstallation {
    pub(crate) id: String,
    pub(crate) partitions: u32,
}

/// The process that holds an instance id.
struct InstanceIdHolder {
    is_caller: bool,
    boot_id: String,
    pid: String,
    address: String,
    is_silent: bool,
}

/// Acquires the instance id, or reports its holder. Writes the installation if there is none.
pub(crate) async fn acquire_instance_id(
    redis: &Redis,
    scripts: &StoreScripts,
    prefix: &str,
    options: &StoreOptions,
) -> Result<StoreInstallation, StoreOpenError> {
    let mut former = String::new();
    loop {
        let (holder, installation) =
            try_acquire(redis, scripts, prefix, options, &former).await.map_err(StoreOpenError::Unavailable)?;
        if holder.is_caller {
            return Ok(installation);
        }
        if reconnects(redis, &holder, options).await.map_err(StoreOpenError::Unavailable)? {
            let instance = options.instance.to_string();
            return Err(StoreOpenError::Held { instance, pid: holder.pid, address: holder.address });
        }
        former = holder.boot_id;
    }
}

async fn try_acquire(
    redis: &Redis,
    scripts: &StoreScripts,
    prefix: &str,
    options: &StoreOptions,
    former: &str,
) -> Result<(InstanceIdHolder, StoreInstallation), Error> {
    let arguments = ScriptArguments::new()
        .text(&options.instance.0)
        .text(&redis.inner.boot_id)
        .text(former)
        .number(std::process::id())
        .text(&options.address)
        .number(millis(options.dead_after))
        .text(random_uuid(options.rng.next_u64(), options.rng.next_u64()))
        .number(options.partitions);
    let mut reply = Reply::from_value(
        run_script(redis, prefix, "instance_id_acquire", &scripts.acquire_instance_id, arguments).await?,
    )?;
    let holder = InstanceIdHolder {
        is_caller: reply.flag(0)?,
        boot_id: reply.text(1)?,
        pid: reply.text(2)?,
        address: reply.text(3)?,
        is_silent: reply.flag(5)?,
    };
    Ok((holder, StoreInstallation { id: reply.text(6)?, partitions: reply.number(7)? }))
}

/// Whether a holder is alive within the reconnect time: it may have lost its connection a moment ago, with its server or its network.
async fn reconnects(redis: &Redis, holder: &InstanceIdHolder, options: &StoreOptions) -> Result<bool, Error> {
    // The holder has released the instance id meanwhile.
    if holder.boot_id.is_empty() {
        return Ok(false);
    }
    let deadline = Instant::now() + options.reconnect_time;
    while !is_alive(redis, holder, options.dead_after).await? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(RECONNECT_POLL).await;
    }
    Ok(true)
}

/// Whether a holder is alive: one of its connections, which end with its process, has sent something in the last `dead_after`. The server keeps the
/// connections of a host without power for minutes (`tcp-keepalive`). Where an ACL hides connections, its heartbeat decides.
async fn is_alive(redis: &Redis, holder: &InstanceIdHolder, dead_after: Duration) -> Result<bool, Error> {
    let clients: Result<Value, Error> =
        redis.inner.store_command("clients", cmd("CLIENT").arg("LIST").to_owned()).await;
    match clients {
        Ok(Value::BulkString(list)) => {
            Ok(has_live_connection(&String::from_utf8_lossy(&list), &holder.boot_id, dead_after))
        }
        Ok(_) | Err(Error::Broken(_)) => Ok(!holder.is_silent),
        Err(error) => Err(error),
    }
}

/// Whether a client of this name is in the server's list and was idle for less than this time.
fn has_live_connection(clients: &str, name: &str, idle_max: Duration) -> bool {
    let field = |client: &str, name: &str| {
        client.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    clients.lines().filter(|client| field(client, "name").is_some_and(|found| found == name)).any(|client| {
        let idle = field(client, "idle").and_then(|seconds| seconds.parse().ok());
        idle.is_none_or(|seconds| Duration::from_secs(seconds) < idle_max)
    })
}

/// A version 4 UUID of these random bits.
fn random_uuid(high: u64, low: u64) -> String {
    Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_alive_while_one_of_its_connections_is_in_use() {
        let client = |name: &str, idle: &str| {
            format!("id=3 addr=127.0.0.1:6 laddr=127.0.0.1:7 name={name} age=90 idle={idle} flags=N\n")
        };
        for (clients, alive) in [
            (client("a", "0"), true),
            (client("a", "14"), true),
            (client("a", "15"), false),
            (client("a", "15") + &client("a", "3"), true),
            (client("ab", "0") + &client("", "0"), false),
            (client("a", "?"), true),
            (String::new(), false),
        ] {
            assert_eq!(has_live_connection(&clients, "a", Duration::from_secs(15)), alive, "{clients}");
        }
    }

    #[test]
    fn an_installations_id_is_a_version_4_uuid() {
        assert_eq!(random_uuid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(random_uuid(0, 1), "00000000-0000-4000-8000-000000000001");
    }
}
