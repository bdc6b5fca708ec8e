//! A wire that breaks at a chosen moment: between the store and its server.
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Where the wire breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The server never hears it.
    Before,
    /// The server hears it, and its answer is lost.
    After,
    /// The server hears it, and nobody waits for its answer any more. It does not notice.
    During,
}

/// Forwards to the server until told to break.
pub struct Wire {
    port: u16,
    plan: Arc<Plan>,
}

#[derive(Default)]
struct Plan {
    at: Mutex<Option<(Vec<u8>, Break)>>,
    broken: AtomicU32,
    down: AtomicBool,
    cut: Notify,
}

impl Wire {
    /// A wire to the server of this URL.
    pub async fn to(url: &str) -> Self {
        let place =
            url.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).expect("a URL has a place").to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let plan = Arc::new(Plan::default());
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !shared.down.load(SeqCst)
                    && let Ok(server) = TcpStream::connect(&place).await
                {
                    tokio::spawn(forward(client, server, Arc::clone(&shared)));
                }
            }
        });
        Self { port, plan }
    }

    /// The URL through this wire.
    pub fn url(&self, url: &str) -> String {
        let (front, rest) = url.rsplit_once('@').expect("a URL names a user");
        let (_, path) = rest.split_once('/').expect("a URL names a database");
        format!("{front}@127.0.0.1:{}/{path}", self.port)
    }

    /// The next message that holds these bytes breaks its connection.
    pub fn break_at(&self, bytes: &[u8], how: Break) {
        *self.plan.at.lock().expect("nobody dies here") = Some((bytes.to_vec(), how));
    }

    /// How often it broke.
    pub fn broken(&self) -> u32 {
        self.plan.broken.load(SeqCst)
    }

    /// Cuts all connections and lets no new one through.
    pub fn down(&self) {
        self.plan.down.store(true, SeqCst);
        self.plan.cut.notify_waiters();
    }

    /// Lets connections through again.
    pub fn up(&self) {
        self.plan.down.store(false, SeqCst);
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, plan: Arc<Plan>) {
    let (mut asked, mut told) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        // Bytes that were read are always forwarded before the next turn: dropping the other reads loses nothing.
        tokio::select! {
            () = plan.cut.notified() => return,
            read = client.read(&mut asked) => {
                let Ok(size @ 1..) = read else { return };
                let broken = plan.breaks(&asked[..size]);
                if broken == Some(Break::Before) || server.write_all(&asked[..size]).await.is_err() {
                    return;
                }
                if broken == Some(Break::During) {
                    drop(client);
                    plan.broken.fetch_add(1, SeqCst);
                    let _ = server.read(&mut told).await;
                    return;
                }
                if broken == Some(Break::After) {
                    // The first answer tells that the server has done it; nobody hears it.
                    let _ = server.read(&mut told).await;
                    plan.broken.fetch_add(1, SeqCst);
                    return;
                }
            }
            read = server.read(&mut told) => {
                let Ok(size @ 1..) = read else { return };
                if client.write_all(&told[..size]).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Plan {
    fn breaks(&self, bytes: &[u8]) -> Option<Break> {
        let mut at = self.at.lock().expect("nobody dies here");
        let found = at.as_ref().is_some_and(|(wanted, _)| bytes.windows(wanted.len()).any(|part| part == wanted));
        let how = if found { at.take().map(|(_, how)| how) } else { None };
        if how == Some(Break::Before) {
            self.broken.fetch_add(1, SeqCst);
        }
        how
    }
}
