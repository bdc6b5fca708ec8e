//! ListenerEnd: why a listener ended. Before the service stops, only a failure ends one.
use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::sync::watch;

/// Why the first listener ended; shared by all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerEnd(watch::Sender<Option<String>>);

impl ListenerEnd {
    /// Runs the server of a listener and records its end.
    pub(crate) async fn record(self, address: SocketAddr, server: impl Future<Output = io::Result<()>>) {
        let reason = match server.await {
            Ok(()) => format!("the listener on {address} ended"),
            Err(error) => format!("the listener on {address} failed: {error}"),
        };
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(reason);
            is_first
        });
    }

    /// Resolves when a listener has ended. Cancel-safe.
    pub(crate) async fn reason(&self) -> String {
        let mut end = self.0.subscribe();
        match end.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            // This value keeps the channel open, and the awaited one is some.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn first_listener_that_ends_is_reported_with_its_error() {
        let (public, admin) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2)));
        let end = ListenerEnd::default();
        let serving = end.clone().record(public, std::future::pending());
        assert_eq!((serving.now_or_never(), end.reason().now_or_never()), (None, None));

        let failure = async { Err(io::Error::other("no file descriptor is left")) };
        assert_eq!(end.clone().record(admin, failure).now_or_never(), Some(()));
        assert_eq!(end.clone().record(public, async { Ok(()) }).now_or_never(), Some(()));

        let reason = end.reason().now_or_never().expect("a listener has ended");
        assert_eq!(reason, "the listener on 127.0.0.1:2 failed: no file descriptor is left");
    }
}
