//! The records of a response, read and written in pieces: its memory depends neither on the topic nor on the speed of the client.
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Bytes;
use app::consume::topic_cursor::TopicCursor;
use app::consume::topic_reads::{TopicError, TopicReads};
use app::error::QueryError;
use app::port_types::{ConsumerRecord, ReadLimits};
use futures::stream::{self, Stream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use crate::auth::identity::Identity;
use crate::error::Problem;
use crate::http::connection_timeouts::ClientClose;
use crate::request::context::RequestContext;
use crate::state::HttpState;
use crate::topics::record_body;

/// Limits of a piece: a response has at most so much in memory at once, plus one record of any size.
const PIECE: ReadLimits = ReadLimits { records: 1_000, bytes: 256 * 1024 };
/// Interval of the checks for an expired token and for records that another process has appended.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the group of a stream is registered again.
const REGISTRATION: Duration = Duration::from_secs(60);
/// Time between two comments of an event stream. A client notices a broken connection when they stop; the server, when the client does not
/// acknowledge one within four times `http.body_timeout`.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How records are written, and when the response ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordFormat {
    /// JSON lines; ends after `limit` records or at the end of the topic. Without any record it waits for the first one.
    Lines { limit: u32, wait: Duration },
    /// Server-sent events; follows the topic until `limit` records were sent.
    Events { limit: Option<u32> },
}

/// The first records of a stream.
pub(crate) struct StreamStart {
    pub(crate) reads: Arc<TopicReads>,
    pub(crate) topic: String,
    pub(crate) group: Option<String>,
    pub(crate) cursor: TopicCursor,
    pub(crate) format: RecordFormat,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// The rest of a response. Dropping it ends the read.
pub(crate) struct RecordStream {
    reads: Arc<TopicReads>,
    topic: String,
    /// The group that reads, and when it is registered again.
    group: Option<(String, Instant)>,
    cursor: TopicCursor,
    is_event_stream: bool,
    records_left: u64,
    bytes_left: usize,
    /// End of the wait for the first record; `None` for an event stream.
    wait_until: Option<Instant>,
    keep_alive_at: Instant,
    /// Records that are read and not yet written.
    read_ahead: Option<Vec<ConsumerRecord>>,
    delivered: bool,
    ended: bool,
    identity: Arc<Identity>,
    stopping: watch::Receiver<bool>,
    client_close: ClientClose,
    state: Arc<HttpState>,
    _permit: OwnedSemaphorePermit,
}

/// Why a wait for records has ended.
enum WaitEnd {
    /// Records may have arrived: read again.
    ReadAgain,
    /// Time for a comment.
    KeepAlive,
    /// The response ends: the wait is over, the client has closed its side, the service stops, or the token has expired.
    Over,
}

impl RecordStream {
    /// Reads the first records, so that an error still has its status.
    pub(crate) async fn open(context: &RequestContext, start: StreamStart) -> Result<Self, Problem> {
        let (now, limits) = (Instant::now(), &context.state.options.reads);
        let StreamStart { reads, topic, group, cursor, format, permit } = start;
        let (is_event_stream, records_left, bytes_left, wait_until) = match format {
            RecordFormat::Lines { limit, wait } => (false, u64::from(limit), limits.bytes_max, Some(now + wait)),
            RecordFormat::Events { limit } => (true, limit.map_or(u64::MAX, u64::from), usize::MAX, None),
        };
        let mut stream = Self {
            reads,
            topic,
            group: group.map(|group| (group, now + REGISTRATION)),
            cursor,
            is_event_stream,
            records_left,
            bytes_left,
            wait_until,
            keep_alive_at: now + KEEP_ALIVE,
            read_ahead: None,
            delivered: false,
            ended: false,
            identity: Arc::clone(context.identity()?),
            stopping: context.state.stopping(),
            client_close: ClientClose::of(&context.request),
            state: Arc::clone(&context.state),
            _permit: permit,
        };
        stream.state.metrics.topic_readers.inc();
        stream.read_ahead = Some(stream.read().await?);
        Ok(stream)
    }

    /// The response's bytes. The log is read when actix polls for a piece, which it does when the send buffer has space.
    pub(crate) fn into_bytes(self) -> impl Stream<Item = io::Result<Bytes>> + 'static {
        let (span, first) = (tracing::Span::current(), self.beginning());
        let rest = stream::try_unfold(self, move |mut stream| {
            let piece = async move { Ok(stream.next().await?.map(|piece| (piece, stream))) };
            piece.instrument(span.clone())
        });
        futures::StreamExt::chain(stream::iter(first.map(Ok)), rest)
    }

    /// The cursor at which an event stream begins, as its first id: a client that loses its connection before the first record resumes there.
    fn beginning(&self) -> Option<Bytes> {
        self.is_event_stream.then(|| format!("retry: 2000\nid: {}\n\n", self.cursor).into())
    }

    /// The next piece; `None` at the end of the response.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while !self.ended {
            if *self.stopping.borrow() || !self.is_authorized() {
                return Ok(self.end());
            }
            self.stay_registered().await;
            let records = match self.read_ahead.take() {
                Some(records) => records,
                None => match self.read().await {
                    Ok(records) => records,
                    // The next request reports it with its status.
                    Err(TopicError::Cursor(_)) => return Ok(self.end()),
                    Err(error) => return Err(self.interrupted(error)),
                },
            };
            if !records.is_empty() {
                return Ok(Some(self.write(&records)));
            }
            match self.wait().await {
                Ok(WaitEnd::ReadAgain) => {}
                Ok(WaitEnd::KeepAlive) => return Ok(Some(Bytes::from_static(b": keep-alive\n\n"))),
                Ok(WaitEnd::Over) => return Ok(self.end()),
                Err(error) => return Err(self.interrupted(error)),
            }
        }
        Ok(None)
    }

    /// Registers the group again when that is due. After a failure the next time is early enough: retention waits for hours.
    async fn stay_registered(&mut self) {
        let now = Instant::now();
        if let Some((group, due)) = self.group.as_mut().filter(|(_, due)| *due <= now) {
            *due = now + REGISTRATION;
            if let Err(error) = self.reads.register(group, &self.topic).await {
                tracing::debug!(event = "reading_group_not_registered", group, topic = self.topic, %error, "a group that reads could not be registered again");
            }
        }
    }

    async fn read(&self) -> Result<Vec<ConsumerRecord>, TopicError> {
        let records = u64::from(PIECE.records).min(self.records_left) as u32;
        let limits = ReadLimits { records, bytes: PIECE.bytes.min(self.bytes_left) };
        let next = self.reads.next(&self.topic, &self.cursor, limits);
        let late = |_| Err(QueryError::Unavailable("no result within the request timeout".to_owned()).into());
        timeout(self.state.options.request_timeout, next).await.unwrap_or_else(late)
    }

    fn write(&mut self, records: &[ConsumerRecord]) -> Bytes {
        for record in records {
            self.cursor.advance(&record.position);
        }
        let bytes: usize = records.iter().map(|message| message.record.value.len()).sum();
        self.records_left = self.records_left.saturating_sub(records.len() as u64);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.delivered = true;
        self.ended = self.records_left == 0 || self.bytes_left == 0;
        self.keep_alive_at = Instant::now() + KEEP_ALIVE;
        let served = &self.state.metrics.topic_records_served_total;
        served.with([self.state.options.known_topics.label(&self.topic)]).inc_by(records.len() as u64);
        let orders = &self.state.options.order_topic;
        if self.is_event_stream {
            record_body::events(records, &self.cursor, orders).into()
        } else {
            record_body::lines(records, &self.cursor, orders).into()
        }
    }

    /// The last piece: every complete response in lines ends with its cursor.
    fn end(&mut self) -> Option<Bytes> {
        self.ended = true;
        let is_empty = !self.is_event_stream && !self.delivered;
        is_empty.then(|| record_body::lines(&[], &self.cursor, &self.state.options.order_topic).into())
    }

    async fn wait(&mut self) -> Result<WaitEnd, TopicError> {
        let now = Instant::now();
        if self.wait_until.is_some_and(|until| self.delivered || until <= now) {
            return Ok(WaitEnd::Over);
        }
        let tick = self.wait_until.map_or(now + TICK, |until| until.min(now + TICK));
        let stopping = &mut self.stopping;
        // All four are cancel-safe: they only wait.
        tokio::select! {
            biased;
            () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => return Ok(WaitEnd::Over),
            () = self.client_close.closed() => return Ok(WaitEnd::Over),
            arrived = self.reads.wait_for_records(&self.topic, &self.cursor) => return arrived.map(|()| WaitEnd::ReadAgain),
            () = sleep_until(tick) => {}
        }
        Ok(self.ticked())
    }

    fn ticked(&mut self) -> WaitEnd {
        let now = Instant::now();
        if !self.is_event_stream || now < self.keep_alive_at {
            return WaitEnd::ReadAgain;
        }
        self.keep_alive_at = now + KEEP_ALIVE;
        WaitEnd::KeepAlive
    }

    fn is_authorized(&self) -> bool {
        self.state.auth.is_within_validity(&self.identity, self.state.operations.now())
    }

    fn interrupted(&self, error: TopicError) -> io::Error {
        tracing::warn!(event = "topic_read_interrupted", topic = self.topic, %error, "a response ended before its last record");
        io::Error::other(error)
    }
}

impl Drop for RecordStream {
    fn drop(&mut self) {
        self.state.metrics.topic_readers.dec();
    }
}
