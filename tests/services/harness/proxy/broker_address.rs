//! The address of a Kafka broker in its responses. A client connects to the address that the broker states in them, so a proxy that clients must
//! not bypass states its own.
use std::io::{Read, Result};
use std::net::SocketAddr;

/// Host and port as every version of the protocol encodes them: the text of the host, then the port as a big-endian i32. The length of the host
/// before it is encoded in several ways, and stays as it is because both have one host.
#[derive(Clone, Copy, Debug)]
pub struct AddressReplacement {
    broker: SocketAddr,
    proxy: SocketAddr,
}

impl AddressReplacement {
    /// Panics unless both have one host.
    pub fn new(broker: SocketAddr, proxy: SocketAddr) -> Self {
        assert_eq!(broker.ip(), proxy.ip());
        Self { broker, proxy }
    }

    /// Reads one response, which has its length before it, and replaces the address in it.
    pub fn read_response(self, broker: &mut impl Read) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        broker.read_exact(&mut length)?;
        let mut response = length.to_vec();
        response.resize(length.len() + u32::from_be_bytes(length) as usize, 0);
        broker.read_exact(&mut response[length.len()..])?;
        self.replace(&mut response);
        Ok(response)
    }

    fn replace(self, response: &mut [u8]) {
        let (broker, proxy) = (encoded(self.broker), encoded(self.proxy));
        let mut at = 0;
        while let Some(found) = response[at..].windows(broker.len()).position(|bytes| bytes == broker) {
            at += found;
            response[at..at + proxy.len()].copy_from_slice(&proxy);
        }
    }
}

fn encoded(address: SocketAddr) -> Vec<u8> {
    let port = u32::from(address.port()).to_be_bytes();
    [address.ip().to_string().as_bytes(), port.as_slice()].concat()
}

#[test]
fn every_address_of_the_broker_in_a_response_is_replaced() {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let response = |port| {
        let parts = [b"ab".as_slice(), &encoded(address(port)), b"c", &encoded(address(port)), &encoded(address(7))];
        let content = parts.concat();
        [(content.len() as u32).to_be_bytes().as_slice(), &content].concat()
    };
    let two_responses = [response(9_092), response(9_092)].concat();
    let mut stream = two_responses.as_slice();

    for _ in 0..2 {
        let read = AddressReplacement::new(address(9_092), address(31_000)).read_response(&mut stream);
        assert_eq!(read.ok(), Some(response(31_000)));
    }
    assert!(stream.is_empty());
}
