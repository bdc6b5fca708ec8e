//! Servers and connections that tests may break.
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::wait::scaled;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::{LIMIT, command, process_of, until};

/// A server that one test starts; it ends with the value.
pub struct Server {
    child: Child,
    folder: Arc<TempDir>,
    port: u16,
}

impl Server {
    pub async fn start() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        until("a server starts", async || Self::run(&folder, free_port(), &[]).await).await
    }

    /// A server that also listens on a port with TLS, with the certificate and key in these files of the folder.
    pub async fn start_encrypted(folder: TempDir, certificate: &str, key: &str) -> (Self, u16) {
        let folder = Arc::new(folder);
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (certificate, key) = (path(certificate), path(key));
        until("a server starts", async || {
            let (port, tls_port) = (free_port(), free_port());
            let tls_text = tls_port.to_string();
            let options = ["--tls-port", &*tls_text, "--tls-auth-clients", "no", "--tls-cert-file"];
            let files = [&*certificate, "--tls-key-file", &*key, "--tls-ca-cert-file", &*certificate];
            let server = Self::run(&folder, port, &[&options[..], &files[..]].concat()).await?;
            Some((server, tls_port))
        })
        .await
    }

    /// A server on this port; nothing if it ends before it listens, because another process has taken the port meanwhile.
    async fn run(folder: &Arc<TempDir>, port: u16, more: &[&str]) -> Option<Self> {
        let program = std::env::var("POSTHASTE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let mut command = Command::new(&program);
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir"]).arg(folder.path());
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{program} cannot be started: {error}; run `make services` first, or `make test`")
        });
        let mut server = Self { child, folder: Arc::clone(folder), port };
        let (url, process, started) = (server.url(), server.child.id(), Instant::now());
        let mut interval = tokio::time::interval(Duration::from_millis(5));
        while server.child.try_wait().unwrap().is_none() {
            if process_of(&url).await == Some(process) {
                return Some(server);
            }
            assert!(started.elapsed() < scaled(LIMIT * 4), "the server does not listen");
            interval.tick().await;
        }
        None
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills the server as kill -9 does, and restarts it on its saved snapshot.
    pub async fn killed_and_restarted(self, more: &[&str]) -> Self {
        let (folder, port) = (Arc::clone(&self.folder), self.port);
        drop(self);
        until("the server starts again", async || Self::run(&folder, port, more).await).await
    }

    /// Stops the process without closing its connections, until [`Server::thaw`].
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

    /// Writes the snapshot that a restart loads.
    pub async fn save(&self) {
        let () = command(&self.url(), &["SAVE"]).await;
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A TCP proxy to a server, which can be cut for one client while others still reach the server.
pub struct Proxy {
    port: u16,
    connected: watch::Sender<bool>,
    /// Number of the times that the connections of that moment went silent.
    silenced: watch::Sender<u32>,
    listener: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(server: &Server) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, server_port) = (listener.local_addr().unwrap().port(), server.port);
        let connected = watch::Sender::new(true);
        let silenced = watch::Sender::new(0);
        let (state, silence) = (connected.subscribe(), silenced.clone());
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(tokio::spawn(forward(client, server_port, state.clone(), silence.subscribe())));
            }
        });
        Self { port, connected, silenced, listener }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn cut(&self) {
        self.connected.send_replace(false);
    }

    /// Keeps the present connections open and forwards nothing more on them, as a firewall does that has forgotten them.
    pub fn silence(&self) {
        self.silenced.send_modify(|times| *times += 1);
    }

    pub fn restore(&self) {
        self.connected.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn forward(
    mut client: TcpStream,
    server_port: u16,
    mut state: watch::Receiver<bool>,
    mut silence: watch::Receiver<u32>,
) {
    if !*state.borrow() {
        return;
    }
    let mut server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
    // Cancelling either branch closes both sockets, which is the purpose.
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = silence.changed() => {}
        _ = state.wait_for(|connected| !connected) => return,
    }
    let _ = state.wait_for(|connected| !connected).await;
}
