//! A client's connection through the proxy: its open requests, and the threads' loop over its frames.
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

/// One client connection and its open requests.
pub struct Connection {
    pub client: TcpStream,
    /// Correlation ids of metadata requests without a response yet.
    pub metadata: Mutex<HashSet<[u8; 4]>>,
    /// Correlation ids of produce requests without a response yet.
    pub records: Mutex<HashSet<[u8; 4]>>,
    /// Correlation ids of initialisations of transactional ids with a transaction that the broker cannot end, without a response yet.
    pub initialisations: Mutex<HashSet<[u8; 4]>>,
    /// Correlation ids of requests that end a transaction, without a response yet.
    pub ends: Mutex<HashSet<[u8; 4]>>,
    /// Its next response belongs to the commit at which all connections are cut.
    pub is_ending: AtomicBool,
    /// Its next response is lost.
    pub loses_response: AtomicBool,
    /// It has received metadata without brokers.
    pub is_without_brokers: AtomicBool,
    /// It has carried a produce request.
    pub produces: AtomicBool,
}

impl Connection {
    pub fn of(client: TcpStream) -> Self {
        Self {
            client,
            metadata: Mutex::default(),
            records: Mutex::default(),
            initialisations: Mutex::default(),
            ends: Mutex::default(),
            is_ending: AtomicBool::new(false),
            loses_response: AtomicBool::new(false),
            is_without_brokers: AtomicBool::new(false),
            produces: AtomicBool::new(false),
        }
    }
}

pub enum FrameAction {
    Pass,
    Drop,
}

/// Forwards frames from one side to the other until either side closes.
pub fn forward(mut from: TcpStream, mut to: TcpStream, mut inspect: impl FnMut(&mut Vec<u8>) -> FrameAction) {
    let mut size = [0; 4];
    while from.read_exact(&mut size).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(size) as usize];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        let action = inspect(&mut frame);
        if matches!(action, FrameAction::Drop) {
            break;
        }
        let size = (frame.len() as u32).to_be_bytes();
        if to.write_all(&size).and_then(|()| to.write_all(&frame)).is_err() {
            break;
        }
    }
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}
