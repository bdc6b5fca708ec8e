//! An HTTP endpoint of another system, which receives events and responds as a test says.
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The response to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointResponse {
    /// A response with this status.
    Status(u16),
    /// No response until the client closes the connection.
    Silence,
}

/// An event that arrived.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    /// The request's headers by their names in lower case; those of CloudEvents are decoded.
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    /// The body as it arrived, which a signature covers.
    pub bytes: Vec<u8>,
    pub response: EndpointResponse,
}

impl ReceivedEvent {
    pub fn key(&self) -> &str {
        &self.headers["ce-partitionkey"]
    }

    pub fn kind(&self) -> &str {
        &self.headers["ce-type"]
    }

    /// The event's sequence number within its key, from 1.
    pub fn sequence(&self) -> u64 {
        self.headers["x-sequence"].parse().expect("a number")
    }

    pub fn is_accepted(&self) -> bool {
        matches!(self.response, EndpointResponse::Status(200..=299))
    }
}

type Responder = dyn Fn(&BTreeMap<String, String>) -> EndpointResponse + Send + Sync;

/// The endpoint. It runs until the test process ends.
pub struct Endpoint {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedEvent>>>,
    respond: Arc<Mutex<Arc<Responder>>>,
}

impl Endpoint {
    /// Starts an endpoint that gives this response to every event.
    pub fn start(response: EndpointResponse) -> Self {
        Self::start_with(move |_| response)
    }

    /// Starts an endpoint whose response depends on the headers of the event.
    pub fn start_with(respond: impl Fn(&BTreeMap<String, String>) -> EndpointResponse + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (received, respond) = (Arc::default(), Arc::new(Mutex::new(Arc::new(respond) as Arc<Responder>)));
        let endpoint = Self { address, received: Arc::clone(&received), respond: Arc::clone(&respond) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (received, respond) = (Arc::clone(&received), Arc::clone(&respond));
                std::thread::spawn(move || serve(stream, &received, &respond));
            }
        });
        endpoint
    }

    pub fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// Gives this response to all later events.
    pub fn set_response(&self, response: EndpointResponse) {
        self.set_response_with(move |_| response);
    }

    /// Computes the response to each later event from its headers.
    pub fn set_response_with(
        &self,
        respond: impl Fn(&BTreeMap<String, String>) -> EndpointResponse + Send + Sync + 'static,
    ) {
        *self.respond.lock().expect("not poisoned") = Arc::new(respond);
    }

    /// Every event so far, in the order of arrival.
    pub fn received(&self) -> Vec<ReceivedEvent> {
        self.received.lock().expect("not poisoned").clone()
    }

    /// The events of one key so far.
    pub fn received_for(&self, key: &str) -> Vec<ReceivedEvent> {
        self.received().into_iter().filter(|event| event.key() == key).collect()
    }

    /// The sequence numbers of the accepted events of one key, in the order of arrival.
    pub fn accepted_for(&self, key: &str) -> Vec<u64> {
        self.received_for(key).iter().filter(|event| event.is_accepted()).map(ReceivedEvent::sequence).collect()
    }
}

fn serve(stream: TcpStream, received: &Mutex<Vec<ReceivedEvent>>, respond: &Mutex<Arc<Responder>>) {
    let mut reader = BufReader::new(stream);
    while let Some((headers, body)) = read_request(&mut reader) {
        let respond = Arc::clone(&respond.lock().expect("not poisoned"));
        let response = respond(&headers);
        let value = serde_json::from_slice(&body).expect("an event is JSON");
        received.lock().expect("not poisoned").push(ReceivedEvent { headers, body: value, bytes: body, response });
        match response {
            EndpointResponse::Status(status) => {
                let text = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
                if reader.get_mut().write_all(text.as_bytes()).is_err() {
                    return;
                }
            }
            EndpointResponse::Silence => {
                // Ends when the client gives up.
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}

/// Reads a request's headers and body; `None` when the client has closed the connection.
pub(super) fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        // The request line has no colon before a space.
        match line.trim_end().split_once(": ") {
            Some((name, value)) => {
                let name = name.to_lowercase();
                let decoded =
                    name.starts_with("ce-").then(|| percent_decode_str(value).decode_utf8_lossy().into_owned());
                headers.insert(name, decoded.unwrap_or_else(|| value.to_owned()));
            }
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((headers, body))
}
