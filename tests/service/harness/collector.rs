//! An OpenTelemetry collector of the tests' own: takes OTLP over HTTP in JSON, and keeps the spans.
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::endpoint::read_request;
use crate::harness::ports::free_port;

/// A span that arrived.
#[derive(Clone, Debug)]
pub struct CollectedSpan {
    pub trace_id: String,
    pub span_id: String,
    /// Span id of the parent; empty at the root of a trace.
    pub parent: String,
    pub name: String,
    /// The number of the kind in OTLP.
    pub kind: u64,
    pub attributes: BTreeMap<String, Value>,
    pub is_error: bool,
}

impl CollectedSpan {
    fn read(span: &Value) -> Self {
        let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
        Self {
            trace_id: text("traceId"),
            span_id: text("spanId"),
            parent: text("parentSpanId"),
            name: text("name"),
            kind: span["kind"].as_u64().expect("a number"),
            attributes: attributes(span),
            is_error: span["status"]["code"] == 2,
        }
    }

    /// The number of an attribute, which OTLP writes as text if it is whole.
    pub fn number(&self, name: &str) -> f64 {
        let value = self.attributes.get(name).unwrap_or_else(|| panic!("{name} is missing in {self:?}"));
        value.as_f64().or_else(|| value.as_str()?.parse().ok()).expect("a number")
    }
}

/// Attributes by name: the one value that each has, whatever its type is.
fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let pairs = of["attributes"].as_array().expect("a list").iter();
    pairs
        .map(|pair| {
            let value = pair["value"].as_object().expect("one value").values().next().expect("one value");
            (pair["key"].as_str().expect("text").to_owned(), value.clone())
        })
        .collect()
}

/// The collector. It runs until the test process ends.
pub struct Collector {
    address: SocketAddr,
    /// Status of its responses; with another one than 200 it keeps no span.
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    headers: BTreeMap<String, String>,
    /// The requests as they arrived.
    bodies: Vec<Value>,
}

impl Collector {
    /// Starts a collector on a free port.
    pub fn start() -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    /// Starts a collector on an address at which no collector was before.
    pub fn start_at(address: SocketAddr) -> Self {
        Self::serve(TcpListener::bind(address).expect("the port is still free"))
    }

    /// An address at which no collector is yet.
    pub fn unused_address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], free_port()))
    }

    fn serve(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("it is bound");
        let (status, received) = (Arc::new(AtomicU16::new(200)), Arc::<Mutex<Received>>::default());
        let collector = Self { address, status: Arc::clone(&status), received: Arc::clone(&received) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (status, received) = (Arc::clone(&status), Arc::clone(&received));
                std::thread::spawn(move || take_requests(stream, &status, &received));
            }
        });
        collector
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Gives all later requests this status.
    pub fn set_status(&self, status: u16) {
        self.status.store(status, SeqCst);
    }

    /// Headers of the last request.
    pub fn headers(&self) -> BTreeMap<String, String> {
        self.received.lock().expect("not poisoned").headers.clone()
    }

    /// Everything that arrived, as one text.
    pub fn text(&self) -> String {
        self.received.lock().expect("not poisoned").bodies.iter().map(Value::to_string).collect()
    }

    /// Attributes of the process that sent the last request.
    pub fn resource(&self) -> BTreeMap<String, Value> {
        let received = self.received.lock().expect("not poisoned");
        attributes(&received.bodies.last().expect("a request")["resourceSpans"][0]["resource"])
    }

    /// Every span so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let received = self.received.lock().expect("not poisoned");
        let spans = received
            .bodies
            .iter()
            .flat_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("a list of spans"));
        spans.map(CollectedSpan::read).collect()
    }

    /// The spans with this name so far.
    pub fn named(&self, name: &str) -> Vec<CollectedSpan> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }
}

fn take_requests(stream: TcpStream, status: &AtomicU16, received: &Mutex<Received>) {
    let mut reader = BufReader::new(stream);
    while let Some((headers, body)) = read_request(&mut reader) {
        let status = status.load(SeqCst);
        if status == 200 {
            let mut received = received.lock().expect("not poisoned");
            received.headers = headers;
            received.bodies.push(serde_json::from_slice(&body).expect("OTLP in JSON"));
        }
        let response =
            format!("HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
        if reader.get_mut().write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}
