//! Whose name it is: taken at the start, renewed with the heartbeat, let go at the end.
use deadpool_redis::redis::{Value, cmd};
use ports::Error;

use super::options::{StoreOpenError, StoreOptions};
use super::words::Words;
use super::{RedisStore, millis};

/// Another process has taken our name: nothing that we do counts any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The name.
    pub instance: String,
}

impl RedisStore {
    pub(super) fn boot(&self) -> &str {
        &self.inner.redis.inner.boot
    }

    /// Tells whoever finds our name taken where we listen.
    ///
    /// # Errors
    /// As any write.
    pub async fn announce(&self, address: &str) -> Result<(), Error> {
        let Some(held) = &self.inner.held else { return Ok(()) };
        let mut tell = cmd("HSET");
        tell.arg(format!("{}holder:{held}", self.inner.front)).arg("address").arg(address);
        self.inner.redis.inner.ask_one("announce", tell).await
    }

    /// Resolves when another process has taken our name.
    pub async fn lost(&self) -> Lost {
        let mut lost = self.inner.lost.subscribe();
        match lost.wait_for(Option::is_some).await.map(|lost| lost.clone()) {
            Ok(Some(lost)) => lost,
            _ => std::future::pending().await,
        }
    }

    /// Lets the name go and closes every connection. May be called twice.
    ///
    /// # Errors
    /// The name could not be let go: it is free once our connections are gone.
    pub async fn close(&self) -> Result<(), Error> {
        let told = match &self.inner.held {
            Some(held) => {
                let words = Words::new().text(held).text(self.boot());
                self.change("let_go", &self.inner.scripts.let_go, words).await.map(drop)
            }
            None => Ok(()),
        };
        self.inner.redis.close().await;
        told
    }

    /// Takes the name, or says who has it.
    pub(super) async fn hold(&self, options: &StoreOptions) -> Result<Held, StoreOpenError> {
        let mut former = String::new();
        loop {
            let (seat, held) = self.try_hold(options, &former).await.map_err(StoreOpenError::Away)?;
            if seat.ours {
                return Ok(held);
            }
            if self.lives(&seat).await.map_err(StoreOpenError::Away)? {
                let instance = options.instance.to_string();
                return Err(StoreOpenError::Held { instance, pid: seat.pid, address: seat.address });
            }
            former = seat.boot;
        }
    }

    async fn try_hold(&self, options: &StoreOptions, former: &str) -> Result<(Seat, Held), Error> {
        let (high, low) = (options.dice.next_u64(), options.dice.next_u64());
        let words = Words::new().text(&options.instance.0).text(self.boot()).text(former).number(std::process::id());
        let words = words
            .text(&options.address)
            .number(millis(options.dead_after))
            .text(uuid(high, low))
            .number(options.partitions);
        let mut told = self.parts("hold", &self.inner.scripts.hold, words).await?;
        let seat = Seat {
            ours: told.flag(0)?,
            boot: told.text(1)?,
            pid: told.text(2)?,
            address: told.text(3)?,
            silent: told.flag(5)?,
        };
        Ok((seat, Held { installation: told.text(6)?, partitions: told.number(7)? }))
    }

    /// Whether a seat's holder lives: one of its connections stands, which dies with its process; where we may not look at those, by its silence.
    async fn lives(&self, seat: &Seat) -> Result<bool, Error> {
        let told: Result<Value, Error> =
            self.inner.redis.inner.ask_one("clients", cmd("CLIENT").arg("LIST").to_owned()).await;
        match told {
            Ok(Value::BulkString(list)) => {
                Ok(String::from_utf8_lossy(&list).contains(&format!(" name={} ", seat.boot)))
            }
            Ok(_) | Err(Error::Broken(_)) => Ok(!seat.silent),
            Err(error) => Err(error),
        }
    }
}

/// Who has a name.
struct Seat {
    ours: bool,
    boot: String,
    pid: String,
    address: String,
    silent: bool,
}

/// What is installed here.
pub(super) struct Held {
    pub(super) installation: String,
    pub(super) partitions: u32,
}

/// Random bits as a version 4 UUID.
fn uuid(high: u64, low: u64) -> String {
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0x0fff);
    let (d, e) = ((low >> 48) & 0x0fff, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-8{d:03x}-{e:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_named_by_a_version_4_uuid() {
        assert_eq!(uuid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-8fff-ffffffffffff");
        assert_eq!(uuid(0, 1).len(), 36);
    }
}
