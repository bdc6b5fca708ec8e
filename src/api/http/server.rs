//! Starts the listeners, and stops them without waiting for idle connections.
mod listener_end;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_server::{Server, ServerHandle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::console::charts::depth_history;
use crate::http::connection::connection;
use crate::http::listeners::Listeners;
use crate::http::options::Surface;
use crate::state::HttpState;
use listener_end::ListenerEnd;

/// Time for the last bytes of a finished response to reach the socket.
const LAST_BYTES: Duration = Duration::from_millis(50);
/// Below this limit one thread serves all connections: a share per thread would waste part of it.
const SHARED_LIMIT_MIN: usize = 100;

/// A listener that accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundListener {
    /// The local address with its real port.
    pub address: SocketAddr,
    /// The routes that it serves.
    pub surface: Surface,
}

/// The running listeners. Dropping it stops them without a grace period.
pub struct RunningServer {
    state: Arc<HttpState>,
    bound: Vec<BoundListener>,
    running: Vec<(ServerHandle, JoinHandle<()>)>,
    end: ListenerEnd,
    depth_sampler: JoinHandle<()>,
}

/// Binds the configured addresses and serves. Must be called inside a Tokio runtime; each listener has its own threads.
///
/// # Errors
/// An address cannot be bound; nothing is served then.
pub fn serve(state: &Arc<HttpState>) -> io::Result<RunningServer> {
    let options = &state.options;
    serve_on(state, Listeners::bind(&options.listen, options.admin_listen.as_deref())?)
}

/// Serves on listeners that were bound before, for callers that need the port or answer on it earlier.
///
/// # Errors
/// A listener cannot be used; nothing is served then.
pub fn serve_on(state: &Arc<HttpState>, listeners: Listeners) -> io::Result<RunningServer> {
    let workers = state.options.workers;
    let depth_sampler = tokio::spawn(sample_depth(Arc::clone(state)));
    let prefetch_state = Arc::clone(state);
    tokio::spawn(async move { prefetch_state.auth.prefetch_keys().await });
    let (state, end) = (Arc::clone(state), ListenerEnd::default());
    let mut server = RunningServer { state, bound: Vec::new(), running: Vec::new(), end, depth_sampler };
    match listeners.admin {
        None => server.listen(listeners.public, Surface::Both, workers)?,
        Some(admin) => {
            server.listen(listeners.public, Surface::Public, workers)?;
            // One thread is enough for a few operators.
            server.listen(admin, Surface::Admin, 1)?;
        }
    }
    Ok(server)
}

fn threads(workers: usize, max_connections: usize) -> usize {
    if max_connections < SHARED_LIMIT_MIN { 1 } else { workers.max(1) }
}

/// Samples the outbox depth for the console until the task is aborted.
async fn sample_depth(state: Arc<HttpState>) {
    let mut tick = interval(depth_history::PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        state.sample_depth();
    }
}

impl RunningServer {
    /// The listeners: the public one first, then the admin one if it is separate.
    pub fn bound(&self) -> &[BoundListener] {
        &self.bound
    }

    fn listen(&mut self, listener: TcpListener, surface: Surface, workers: usize) -> io::Result<()> {
        let options = &self.state.options;
        // actix limits connections per worker; the shares add up to the configured limit.
        let (state, workers) = (Arc::clone(&self.state), threads(workers, options.max_connections));
        let builder = Server::build()
            .workers(workers)
            .max_concurrent_connections((options.max_connections / workers).max(1))
            // The process handles the signals and decides how long a stop may take.
            .disable_signals()
            .shutdown_timeout(60);
        let stopping = builder.graceful_shutdown_signal();
        let address = listener.local_addr()?;
        self.bound.push(BoundListener { address, surface });
        let connection = move || connection(&state, surface, &stopping);
        let server = builder.listen("http", listener, connection)?.run();
        let handle = server.handle();
        self.running.push((handle, tokio::spawn(self.end.clone().record(address, server))));
        Ok(())
    }

    /// Resolves with the reason when a listener has ended by itself. The others still serve: stop them. Cancel-safe.
    pub async fn ended(&self) -> String {
        self.end.reason().await
    }

    /// Stops accepting, ends live streams, closes idle connections, and lets requests finish until `deadline` has passed.
    /// Set the health snapshot to draining first, so that readiness fails.
    pub async fn stop(mut self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.state.end_streams();
        for (handle, _) in &self.running {
            // The command is sent at once. Its future completes up to a second after the last connection has closed: not awaited.
            drop(handle.stop(true));
        }
        // After the deadline the remaining connections are closed by abort().
        let _ = timeout_at(until, self.all_responses_sent()).await;
        self.abort();
    }

    async fn all_responses_sent(&self) {
        let mut tick = interval(LAST_BYTES);
        let mut idle_ticks = 0;
        while idle_ticks < 2 {
            tick.tick().await;
            idle_ticks = if self.state.in_flight.load(Ordering::SeqCst) == 0 { idle_ticks + 1 } else { 0 };
        }
    }

    fn abort(&mut self) {
        self.depth_sampler.abort();
        for (_, task) in self.running.drain(..) {
            task.abort();
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.state.end_streams();
        for (handle, _) in &self.running {
            // An aborted task would leave its threads behind, with the socket. The command is sent at once.
            drop(handle.stop(false));
        }
        self.depth_sampler.abort();
    }
}
