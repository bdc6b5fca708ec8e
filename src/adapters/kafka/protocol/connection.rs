//! One connection to one broker: requests with their versions, responses in the order of the requests.
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};

use crate::protocol::calls::Call;
use crate::protocol::settings::{ConnectionSettings, IDLE_MAX, RESPONSE_BYTES_MAX, RESPONSE_TIMEOUT};
use crate::protocol::stream::Stream;

/// Bytes for a frame's length and a request's header.
const HEADER_OVERHEAD: usize = 128;

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The broker has not received the request.
    NotSent(String),
    /// The broker may have received it.
    Unanswered(String),
    /// The broker refuses this client: its credentials, or its versions of the protocol.
    Refused(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (CallError::NotSent(reason) | CallError::Unanswered(reason) | CallError::Refused(reason)) = self;
        f.write_str(reason)
    }
}

impl CallError {
    /// The error of a later request that was not sent because of this one.
    pub(crate) fn into_not_sent(self) -> Self {
        match self {
            CallError::Unanswered(reason) => CallError::NotSent(reason),
            other => other,
        }
    }
}

/// A request that was sent, until its response is read.
pub(crate) struct SentRequest<C> {
    correlation: i32,
    version: i16,
    request: PhantomData<C>,
}

/// A connection that the broker has accepted. After an error it is of no use: a late response would be taken for that to another request.
pub(crate) struct Connection {
    stream: Stream,
    address: String,
    settings: Arc<ConnectionSettings>,
    /// Oldest and newest version that the broker supports, by request.
    versions: HashMap<i16, (i16, i16)>,
    correlation: i32,
    used_at: Instant,
}

impl Connection {
    /// Connects to `host:port` and reads the versions that the broker supports.
    pub(crate) fn open(
        address: &str,
        settings: &Arc<ConnectionSettings>,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let not_sent = |error| CallError::NotSent(format!("connecting to {address}: {error}"));
        let stream = Stream::connect(address, settings.tls.as_ref(), deadline).map_err(not_sent)?;
        let mut connection = Self {
            stream,
            address: address.to_owned(),
            settings: Arc::clone(settings),
            versions: HashMap::new(),
            correlation: 0,
            used_at: Instant::now(),
        };
        // The caller's request was not sent yet.
        connection.read_versions(deadline).map_err(CallError::into_not_sent).map(|()| connection)
    }

    fn read_versions(&mut self, deadline: Instant) -> Result<(), CallError> {
        let response = self.call(&ApiVersionsRequest::default(), deadline)?;
        self.versions = response.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(())
    }

    /// The `host:port` that it was opened with.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether it was idle for so long that the broker may have closed it.
    pub(crate) fn is_stale(&self) -> bool {
        self.used_at.elapsed() > IDLE_MAX
    }

    /// Sends a request and waits for its response.
    pub(crate) fn call<C: Call>(&mut self, request: &C, deadline: Instant) -> Result<C::Response, CallError> {
        let sent = self.send(request, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends a request. Its response must be read before that of a later one.
    pub(crate) fn send<C: Call>(&mut self, request: &C, deadline: Instant) -> Result<SentRequest<C>, CallError> {
        let version = self.version::<C>()?;
        self.correlation = self.correlation.wrapping_add(1);
        let frame = self.frame(request, version).map_err(|error| {
            CallError::Refused(format!("a {:?} request of version {version} cannot be encoded: {error}", C::KEY))
        })?;
        self.used_at = Instant::now();
        self.stream.write(&frame, deadline.min(self.used_at + RESPONSE_TIMEOUT)).map_err(|e| self.unanswered(&e))?;
        Ok(SentRequest { correlation: self.correlation, version, request: PhantomData })
    }

    /// Waits for the response to a request that was sent.
    pub(crate) fn receive<C: Call>(
        &mut self,
        sent: SentRequest<C>,
        deadline: Instant,
    ) -> Result<C::Response, CallError> {
        let deadline = deadline.min(Instant::now() + RESPONSE_TIMEOUT);
        let mut response = self.read_frame(deadline)?;
        let header = C::Response::header_version(sent.version);
        let decoded = ResponseHeader::decode(&mut response, header)
            .and_then(|header| C::Response::decode(&mut response, sent.version).map(|body| (header, body)));
        let (header, body) = decoded.map_err(|error| self.unanswered(&error))?;
        if header.correlation_id != sent.correlation {
            return Err(self.unanswered(&"the response belongs to another request"));
        }
        self.used_at = Instant::now();
        Ok(body)
    }

    /// The newest version that both sides know.
    fn version<C: Call>(&self) -> Result<i16, CallError> {
        if C::VERSION_MAX == 0 {
            return Ok(0);
        }
        let (oldest, newest) = self.versions.get(&(C::KEY as i16)).copied().unwrap_or((0, -1));
        let version = newest.min(C::VERSION_MAX);
        if version < oldest.max(C::VERSION_MIN) {
            return Err(CallError::Refused(format!(
                "the broker {} supports versions {oldest} to {newest} of {:?}, and versions {} to {} are needed",
                self.address,
                C::KEY,
                C::VERSION_MIN,
                C::VERSION_MAX
            )));
        }
        Ok(version)
    }

    fn frame<C: Call>(&self, request: &C, version: i16) -> Result<BytesMut, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let header = RequestHeader::default()
            .with_request_api_key(C::KEY as i16)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(self.settings.client_id.clone()));
        let size = request.compute_size(version).map_err(|error| text(&error))?;
        let mut frame = BytesMut::with_capacity(HEADER_OVERHEAD + size);
        frame.put_i32(0);
        header.encode(&mut frame, C::header_version(version)).map_err(|error| text(&error))?;
        request.encode(&mut frame, version).map_err(|error| text(&error))?;
        let length = i32::try_from(frame.len() - 4).map_err(|error| text(&error))?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }

    fn read_frame(&mut self, deadline: Instant) -> Result<Bytes, CallError> {
        let mut length = [0; 4];
        self.stream.read(&mut length, deadline).map_err(|error| self.unanswered(&error))?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > RESPONSE_BYTES_MAX {
            return Err(self.unanswered(&format!("the response has {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read(&mut frame, deadline).map_err(|error| self.unanswered(&error))?;
        Ok(frame.into())
    }

    fn unanswered(&self, reason: &dyn std::fmt::Display) -> CallError {
        CallError::Unanswered(format!("broker {}: {reason}", self.address))
    }
}
