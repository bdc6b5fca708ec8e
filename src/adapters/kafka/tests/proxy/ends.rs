//! Requests that end a transaction, whose response is lost or which reach the broker late.
use std::io::{Read, Write};
use std::net::TcpStream;

use parking_lot::Mutex;

use super::Proxy;

/// What happens to the next request that ends a transaction. At most its own connection is closed, and the client can connect again at once.
#[derive(Clone, Copy)]
pub enum EndFault {
    /// The broker receives it, and the client no response.
    LostResponse,
    /// The client receives no response, and the broker the request just before this Produce request, counted from then.
    Late { before_write: u64 },
    /// The broker answers it, and receives it a second time just before this Produce request.
    Repeated { before_write: u64 },
}

/// What the proxy does with a request that ends a transaction.
pub enum EndAction {
    Pass,
    /// Passes the request, and closes the connection instead of passing the response.
    LoseResponse,
    Drop,
}

struct LateEnd {
    frame: Vec<u8>,
    /// Produce requests up to the one before which it is delivered.
    writes_left: u64,
}

#[derive(Default)]
pub struct Ends {
    fault: Mutex<Option<EndFault>>,
    late: Mutex<Option<LateEnd>>,
    /// The error code of the response to the late request.
    late_code: Mutex<Option<i16>>,
}

impl Ends {
    pub fn action(&self, frame: &[u8]) -> EndAction {
        let keep = |writes_left| *self.late.lock() = Some(LateEnd { frame: frame.to_owned(), writes_left });
        match self.fault.lock().take_if(|_| is_commit(frame)) {
            None => EndAction::Pass,
            Some(EndFault::LostResponse) => EndAction::LoseResponse,
            Some(EndFault::Late { before_write }) => {
                keep(before_write);
                EndAction::Drop
            }
            Some(EndFault::Repeated { before_write }) => {
                keep(before_write);
                EndAction::Pass
            }
        }
    }

    /// Counts a Produce request; delivers the late request if it is due.
    pub fn before_write(&self, broker: &str) {
        let mut late = self.late.lock();
        if let Some(end) = &mut *late {
            end.writes_left -= 1;
        }
        if let Some(end) = late.take_if(|end| end.writes_left == 0) {
            *self.late_code.lock() = Some(deliver(&end.frame, broker));
        }
    }
}

impl Proxy {
    /// What happens to the next commit of a transaction.
    pub fn fail_end(&self, fault: EndFault) {
        *self.state.ends.fault.lock() = Some(fault);
    }

    /// The error code of the broker's response to a request that ended a transaction late.
    pub fn late_end_code(&self) -> Option<i16> {
        *self.state.ends.late_code.lock()
    }
}

/// Whether a request that ends a transaction commits it: the decision (1) and tags (1) are the end of the frame.
pub fn is_commit(frame: &[u8]) -> bool {
    frame.iter().nth_back(1) == Some(&1)
}

/// Sends a frame on a connection of its own; returns the error code of the response: correlation id (4), tags (1), throttle time (4), code (2).
fn deliver(frame: &[u8], broker: &str) -> i16 {
    let mut stream = TcpStream::connect(broker).expect("the broker accepts connections");
    let size = (frame.len() as u32).to_be_bytes();
    stream.write_all(&[&size, frame].concat()).expect("sent");
    let mut response = [0; 4 + 11];
    stream.read_exact(&mut response).expect("answered");
    i16::from_be_bytes([response[13], response[14]])
}
