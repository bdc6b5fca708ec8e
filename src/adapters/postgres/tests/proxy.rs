//! A TCP proxy between the store and its server that cuts connections at a chosen moment.
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// When a connection is cut, relative to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before the server receives the request.
    BeforeRequest,
    /// After the server has replied, and ended the transaction of the request; all replies are lost.
    AfterReply,
    /// While the server runs the request. The server's side of the connection stays open until it replies.
    DuringRequest,
}

/// Forwards connections to the server until a cut is due.
pub struct Proxy {
    port: u16,
    plan: Arc<CutPlan>,
}

#[derive(Default)]
struct CutPlan {
    next: Mutex<Option<(Vec<u8>, Cut)>>,
    cuts: AtomicU32,
    /// Reads from clients, each of one request or of several that were sent together.
    requests: AtomicU32,
    down: AtomicBool,
    /// Number of outages so far; a connection ends with the first one after it was accepted.
    outages: watch::Sender<u32>,
}

impl Proxy {
    /// A proxy to the server of this URL.
    pub async fn to(url: &str) -> Self {
        let server =
            url.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).expect("a URL has a host").to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let plan = Arc::new(CutPlan::default());
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let outages = shared.outages.subscribe();
                if !shared.down.load(SeqCst)
                    && let Ok(server) = TcpStream::connect(&server).await
                {
                    tokio::spawn(forward(client, server, Arc::clone(&shared), outages));
                }
            }
        });
        Self { port, plan }
    }

    /// The URL with this proxy as the host.
    pub fn url(&self, url: &str) -> String {
        let (user, rest) = url.rsplit_once('@').expect("a URL names a user");
        let (_, path) = rest.split_once('/').expect("a URL names a database");
        format!("{user}@127.0.0.1:{}/{path}", self.port)
    }

    /// Cuts the connection of the next request that contains these bytes.
    pub fn cut_at(&self, bytes: &[u8], cut: Cut) {
        *self.plan.next.lock().expect("no holder of the lock panics") = Some((bytes.to_vec(), cut));
    }

    /// The number of cuts by [`Proxy::cut_at`] so far.
    pub fn cuts(&self) -> u32 {
        self.plan.cuts.load(SeqCst)
    }

    /// The number of requests so far; those that were sent together count once.
    pub fn requests(&self) -> u32 {
        self.plan.requests.load(SeqCst)
    }

    /// Cuts all connections and accepts no new one.
    pub fn down(&self) {
        self.plan.down.store(true, SeqCst);
        self.plan.outages.send_modify(|outages| *outages += 1);
    }

    /// Accepts connections again after [`Proxy::down`].
    pub fn up(&self) {
        self.plan.down.store(false, SeqCst);
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, plan: Arc<CutPlan>, mut outages: watch::Receiver<u32>) {
    let (mut request, mut reply) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        // Bytes that were read are forwarded before the next iteration: dropping the other reads loses nothing. An outage is first: data
        // that arrive at the same time are not forwarded.
        tokio::select! {
            biased;
            _ = outages.changed() => return,
            read = client.read(&mut request) => {
                let Ok(size @ 1..) = read else { return };
                plan.requests.fetch_add(1, SeqCst);
                let cut = plan.remove_if_due(&request[..size]);
                if cut == Some(Cut::BeforeRequest) || server.write_all(&request[..size]).await.is_err() {
                    return;
                }
                if cut == Some(Cut::DuringRequest) {
                    drop(client);
                    plan.cuts.fetch_add(1, SeqCst);
                    let _ = server.read(&mut reply).await;
                    return;
                }
                if cut == Some(Cut::AfterReply) {
                    complete(&mut client, &mut server).await;
                    plan.cuts.fetch_add(1, SeqCst);
                    return;
                }
            }
            read = server.read(&mut reply) => {
                let Ok(size @ 1..) = read else { return };
                if client.write_all(&reply[..size]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// ReadyForQuery outside a transaction: the server has ended the transaction that the requests before it belong to.
const IDLE: &[u8] = b"Z\0\0\0\x05I";

/// Forwards the requests of a transaction that are still to come, and reads its replies until the server has ended it. A server that cannot send
/// a reply would roll back what it has not committed yet.
async fn complete(client: &mut TcpStream, server: &mut TcpStream) {
    let (mut request, mut reply, mut last) = (vec![0; 65_536], vec![0; 65_536], Vec::new());
    while !last.ends_with(IDLE) {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(size @ 1..) = read else { return };
                if server.write_all(&request[..size]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut reply) => {
                let Ok(size @ 1..) = read else { return };
                last.extend_from_slice(&reply[..size]);
            }
        }
    }
}

impl CutPlan {
    fn remove_if_due(&self, bytes: &[u8]) -> Option<Cut> {
        let mut next = self.next.lock().expect("no holder of the lock panics");
        let due = next.as_ref().is_some_and(|(wanted, _)| bytes.windows(wanted.len()).any(|part| part == wanted));
        let cut = if due { next.take().map(|(_, cut)| cut) } else { None };
        if cut == Some(Cut::BeforeRequest) {
            self.cuts.fetch_add(1, SeqCst);
        }
        cut
    }
}
