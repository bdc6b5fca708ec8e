//! Listeners: starts them, says where they listen, and stops them without waiting for connections that only idle.
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_server::{Server, ServerHandle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, timeout_at};

use crate::connection::connection;
use crate::console::history;
use crate::listeners::Listeners;
use crate::options::Surface;
use crate::state::State;

/// After the last answer was handed to the server: its last bytes reach the socket within.
const LAST_BYTES: Duration = Duration::from_millis(50);

/// A listener that accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Where, with the real port.
    pub address: SocketAddr,
    /// What it serves.
    pub surface: Surface,
}

/// Running listeners. Dropping it stops them without grace.
pub struct Service {
    state: Arc<State>,
    bound: Vec<Bound>,
    running: Vec<(ServerHandle, JoinHandle<io::Result<()>>)>,
    observer: JoinHandle<()>,
}

/// Binds and serves. Call it inside a Tokio runtime; each listener has threads of its own.
///
/// # Errors
/// An address cannot be bound; nothing listens then.
pub fn serve(state: &Arc<State>) -> io::Result<Service> {
    let options = &state.options;
    serve_on(state, Listeners::bind(&options.listen, options.admin_listen.as_deref())?)
}

/// Serves on listeners that were bound before: whoever must know the port first, or answer on it meanwhile.
///
/// # Errors
/// A listener cannot be used; nothing listens then.
pub fn serve_on(state: &Arc<State>, listeners: Listeners) -> io::Result<Service> {
    let workers = state.options.workers;
    let observer = tokio::spawn(history::observe(Arc::clone(state)));
    let mut service = Service { state: Arc::clone(state), bound: Vec::new(), running: Vec::new(), observer };
    match listeners.admin {
        None => service.listen(listeners.public, Surface::Both, workers)?,
        Some(admin) => {
            service.listen(listeners.public, Surface::Public, workers)?;
            // Operators are few.
            service.listen(admin, Surface::Admin, 1)?;
        }
    }
    Ok(service)
}

/// A limit below this is kept to exactly, by one thread: shared out, each thread's last place may be missing.
const SHARED_FROM: usize = 100;

fn threads(workers: usize, max_connections: usize) -> usize {
    if max_connections < SHARED_FROM { 1 } else { workers.max(1) }
}

impl Service {
    /// Where it listens: the public address first, then the admin one, if it has its own.
    pub fn bound(&self) -> &[Bound] {
        &self.bound
    }

    fn listen(&mut self, listener: TcpListener, surface: Surface, workers: usize) -> io::Result<()> {
        let options = &self.state.options;
        // Each worker counts its own connections: together they must not take more than the limit.
        let (state, workers) = (Arc::clone(&self.state), threads(workers, options.max_connections));
        let builder = Server::build()
            .workers(workers)
            .max_concurrent_connections((options.max_connections / workers).max(1))
            // Whoever calls us owns the signals, and decides how long a stop may take.
            .disable_signals()
            .shutdown_timeout(60);
        let stopping = builder.graceful_shutdown_signal();
        self.bound.push(Bound { address: listener.local_addr()?, surface });
        let connection = move || connection(&state, surface, &stopping);
        let server = builder.listen("http", listener, connection)?.run();
        let handle = server.handle();
        self.running.push((handle, tokio::spawn(server)));
        Ok(())
    }

    /// Stops: accepts nothing more, ends live streams, closes connections that idle, lets requests finish until `deadline` has passed.
    /// Paint `draining` into the vitals before, so that readiness tells.
    pub async fn stop(mut self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.state.end_streams();
        for (handle, _) in &self.running {
            // The command is sent at once; its answer comes up to a second after the last connection went, and is not waited for.
            drop(handle.stop(true));
        }
        // A deadline that passes is no failure here: what is left is cut off below, as promised.
        let _ = timeout_at(until, self.last_answer()).await;
        self.abort();
    }

    async fn last_answer(&self) {
        let mut look = interval(LAST_BYTES);
        let mut idle = 0;
        while idle < 2 {
            look.tick().await;
            idle = if self.state.in_flight.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
        }
    }

    fn abort(&mut self) {
        self.observer.abort();
        for (_, task) in self.running.drain(..) {
            task.abort();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.state.end_streams();
        self.abort();
    }
}
