//! Deletes the keys of a throwaway store, after a benchmark or a chaos run.
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncConnectionConfig, Client, RedisError, cmd};

use crate::connection::address::connection_info;
use crate::connection::error::call_error;
use crate::store::open_error::StoreOpenError;
use crate::store::options::StoreOptions;

/// Keys of one page of the scan: well below a millisecond of the server.
const PAGE: u32 = 1_000;

/// Deletes every key that begins with `options.prefix`. The data are lost, so call it only for throwaway prefixes. Idempotent.
///
/// # Errors
/// The prefix is empty, the URL cannot be used, or the server cannot be reached or refuses; keys may remain then.
pub async fn delete_throwaway_keys(options: &StoreOptions) -> Result<(), StoreOpenError> {
    if options.prefix.is_empty() {
        return Err(StoreOpenError::Options("keys are deleted only where they have a prefix of their own".into()));
    }
    let mut connection = connect(options).await?;
    let pattern = format!("{}*", escape(&options.prefix));
    let mut cursor = 0_u64;
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(PAGE);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await.map_err(unavailable)?;
        if !keys.is_empty() {
            let () = cmd("UNLINK").arg(keys).query_async(&mut connection).await.map_err(unavailable)?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// A connection of its own: a handle of the adapter would write its heartbeat under the prefix.
async fn connect(options: &StoreOptions) -> Result<MultiplexedConnection, StoreOpenError> {
    let server = connection_info(&options.url, options.root_certificates.as_deref());
    let server = server.map_err(|error| StoreOpenError::Options(error.to_string()))?;
    let timeout = Some(options.response_timeout);
    let config = AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
    let client = Client::open(server).map_err(unavailable)?;
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(unavailable)
}

fn unavailable(error: RedisError) -> StoreOpenError {
    StoreOpenError::Unavailable(call_error("deleting keys", &error))
}

/// A pattern that only this text matches.
fn escape(text: &str) -> String {
    let is_special = |character| matches!(character, '*' | '?' | '[' | ']' | '^' | '\\');
    text.chars().flat_map(|character| is_special(character).then_some('\\').into_iter().chain([character])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_of_a_prefix_has_no_wildcards() {
        assert_eq!(escape("posthaste:bench_1:"), "posthaste:bench_1:");
        assert_eq!(escape(r"a*b?[c]\"), r"a\*b\?\[c\]\\");
    }
}
