//! Servers and wires that tests may break.
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::{beside, say, until};

/// A server of a test's own. Ends with it.
pub struct Server {
    child: Child,
    folder: Arc<TempDir>,
    port: u16,
}

impl Server {
    pub async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::run(Arc::new(tempfile::tempdir().unwrap()), port, &[]).await
    }

    async fn run(folder: Arc<TempDir>, port: u16, more: &[&str]) -> Self {
        let program = std::env::var("POSTHASTE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let mut command = Command::new(&program);
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir"]).arg(folder.path());
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{program} cannot be started: {error}; run `make services` first, or `make test`")
        });
        let server = Self { child, folder, port };
        let url = server.url();
        until("the server listens", async || TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
        drop(beside(&url).await);
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it, as kill -9 does, and starts it anew on what was saved.
    pub async fn killed_and_restarted(self, more: &[&str]) -> Self {
        let (folder, port) = (Arc::clone(&self.folder), self.port);
        drop(self);
        Self::run(folder, port, more).await
    }

    /// Stops answering without closing anything, until [`Server::thaw`].
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Writes the snapshot that a restart reads.
    pub async fn save(&self) {
        let () = say(&self.url(), &["SAVE"]).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A wire to a server, which can be cut for one of its users alone.
pub struct Wire {
    port: u16,
    whole: watch::Sender<bool>,
    carrier: JoinHandle<()>,
}

impl Wire {
    pub async fn to(server: &Server) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, far) = (listener.local_addr().unwrap().port(), server.port);
        let whole = watch::Sender::new(true);
        let state = whole.subscribe();
        let carrier = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                drop(tokio::spawn(carry(near, far, state.clone())));
            }
        });
        Self { port, whole, carrier }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

async fn carry(mut near: TcpStream, far: u16, mut state: watch::Receiver<bool>) {
    if !*state.borrow() {
        return;
    }
    let mut far = TcpStream::connect(("127.0.0.1", far)).await.unwrap();
    // Whichever ends first ends the other: both sockets are dropped.
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = state.wait_for(|whole| !whole) => {}
    }
}
