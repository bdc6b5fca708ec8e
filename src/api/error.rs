//! The only place where an error becomes an HTTP status: RFC 9457 problems with the members `code`, `message`, `requestId` and `timestamp`.
use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use app::consume::topic_cursor::CursorError;
use app::consume::topic_reads::TopicError;
use app::consume::webhooks::WebhookError;
use app::error::{CommandError, QueryError};
use app::operators::dead_letters_by_topic::UnknownTopic;
use serde::Serialize;
use utoipa::ToSchema;

/// Field errors in one response; further ones are dropped.
pub(crate) const FIELD_ERRORS_MAX: usize = 100;

/// The member `code` of an error response, with its status and title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    RequestTimeout,
    Conflict,
    Gone,
    PreconditionFailed,
    PayloadTooLarge,
    UriTooLong,
    UnsupportedMediaType,
    Unprocessable,
    RateLimited,
    HeadersTooLarge,
    Unexpected,
    NotImplemented,
    Infrastructure,
}

impl ErrorCode {
    fn parts(self) -> (u16, &'static str, &'static str) {
        match self {
            ErrorCode::BadRequest => (400, "BAD_REQUEST", "Bad Request"),
            ErrorCode::Unauthorized => (401, "UNAUTHORIZED", "Unauthorized"),
            ErrorCode::Forbidden => (403, "FORBIDDEN", "Forbidden"),
            ErrorCode::NotFound => (404, "NOT_FOUND", "Not Found"),
            ErrorCode::MethodNotAllowed => (405, "METHOD_NOT_ALLOWED", "Method Not Allowed"),
            ErrorCode::NotAcceptable => (406, "NOT_ACCEPTABLE", "Not Acceptable"),
            ErrorCode::RequestTimeout => (408, "REQUEST_TIMEOUT", "Request Timeout"),
            ErrorCode::Conflict => (409, "CONFLICT", "Conflict"),
            ErrorCode::Gone => (410, "GONE", "Gone"),
            ErrorCode::PreconditionFailed => (412, "PRECONDITION_FAILED", "Precondition Failed"),
            ErrorCode::PayloadTooLarge => (413, "PAYLOAD_TOO_LARGE", "Content Too Large"),
            ErrorCode::UriTooLong => (414, "URI_TOO_LONG", "URI Too Long"),
            ErrorCode::UnsupportedMediaType => (415, "UNSUPPORTED_MEDIA_TYPE", "Unsupported Media Type"),
            ErrorCode::Unprocessable => (422, "UNPROCESSABLE", "Unprocessable Content"),
            ErrorCode::RateLimited => (429, "RATE_LIMITED", "Too Many Requests"),
            ErrorCode::HeadersTooLarge => (431, "HEADERS_TOO_LARGE", "Request Header Fields Too Large"),
            ErrorCode::Unexpected => (500, "UNEXPECTED_ERROR", "Internal Server Error"),
            ErrorCode::NotImplemented => (501, "NOT_IMPLEMENTED", "Not Implemented"),
            ErrorCode::Infrastructure => (503, "INFRASTRUCTURE_ERROR", "Service Unavailable"),
        }
    }

    pub(crate) fn title(self) -> &'static str {
        self.parts().2
    }

    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.parts().0).expect("the table holds legal statuses")
    }
}

/// A part of the request that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// The path of the part, such as `items[0].price`.
    #[schema(example = "items[0].price")]
    pub(crate) field: String,
    /// The requirement that the part does not meet.
    #[schema(example = "must be zero or more")]
    pub(crate) message: Cow<'static, str>,
}

/// An error as the response reports it.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: ErrorCode,
    message: Cow<'static, str>,
    errors: Vec<FieldError>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The cursor at which a reader continues without deleted records.
    next: Option<Box<str>>,
    /// For the log only; the response never contains it.
    pub(crate) cause: Option<String>,
}

/// The body of an error response, `application/problem+json`.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemBody<'a> {
    /// Always `about:blank`: `code` identifies the error.
    #[schema(example = "about:blank")]
    r#type: &'static str,
    /// The reason phrase of the status.
    #[schema(example = "Bad Request")]
    title: &'static str,
    #[schema(example = 400, minimum = 400, maximum = 599)]
    status: u16,
    /// The error, in one sentence.
    #[schema(example = "the body is not a valid order")]
    detail: &'a str,
    /// The path of the request.
    #[schema(example = "/orders")]
    instance: &'a str,
    /// The stable code for programs.
    #[schema(example = "BAD_REQUEST")]
    code: &'static str,
    /// The same as `detail`.
    #[schema(example = "the body is not a valid order")]
    message: &'a str,
    /// The same as the header `X-Request-Id`.
    #[schema(example = "5f1c7be0a3f94d0a8a43f0dd3f1a1f5e")]
    request_id: &'a str,
    #[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
    timestamp: String,
    /// Present when parts of the request are not valid.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [FieldError],
    /// Present with 410: the cursor at which a reader continues without the deleted records.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    next: Option<&'a str>,
}

impl Problem {
    pub(crate) fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), errors: Vec::new(), headers: Vec::new(), next: None, cause: None }
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub(crate) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// 400 for parts of the request; at most [`FIELD_ERRORS_MAX`] are reported.
    pub(crate) fn fields(message: &'static str, mut errors: Vec<FieldError>) -> Self {
        errors.truncate(FIELD_ERRORS_MAX);
        Self { errors, ..Self::bad_request(message) }
    }

    /// 400 for one part of the request.
    pub(crate) fn field(field: &str, message: impl Into<Cow<'static, str>>) -> Self {
        let error = FieldError { field: field.to_owned(), message: message.into() };
        Self::fields("a parameter is not valid", vec![error])
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Self {
        Self::new(ErrorCode::MethodNotAllowed, "this method is not allowed here").with_text(ALLOW, allow)
    }

    /// 401; `challenge` is the value of `WWW-Authenticate`.
    pub(crate) fn unauthorized(message: &'static str, challenge: &'static str) -> Self {
        Self::new(ErrorCode::Unauthorized, message).with(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    pub(crate) fn forbidden() -> Self {
        let challenge = HeaderValue::from_static("Bearer error=\"insufficient_scope\"");
        Self::new(ErrorCode::Forbidden, "the token's roles do not allow this").with(WWW_AUTHENTICATE, challenge)
    }

    /// 403 for a console form without its session's CSRF token.
    pub(crate) fn csrf_mismatch() -> Self {
        Self::new(
            ErrorCode::Forbidden,
            "the form does not belong to your session; nothing was changed: reload its page",
        )
    }

    pub(crate) fn rate_limited(retry_after_seconds: u64) -> Self {
        Self::new(ErrorCode::RateLimited, "too many requests").retry_after(retry_after_seconds)
    }

    /// 503: a dependency is unavailable and nothing was changed.
    pub(crate) fn dependency_unavailable(cause: impl Into<String>) -> Self {
        Self::unavailable("a dependency is not available; nothing was changed", 5).with_cause(cause)
    }

    /// 503 with `Retry-After`: nothing was changed.
    pub(crate) fn unavailable(message: impl Into<Cow<'static, str>>, retry_after_seconds: u64) -> Self {
        Self::new(ErrorCode::Infrastructure, message).retry_after(retry_after_seconds)
    }

    /// 500: an internal error, or the outcome of the request is unknown.
    pub(crate) fn unexpected(cause: impl Into<String>) -> Self {
        let message = "an unexpected error; the request may have changed something: \
                       repeat it with the same idempotency key, or read back";
        Self::new(ErrorCode::Unexpected, message).with_cause(cause)
    }

    /// 500: the request failed after a part of it was done.
    fn partly_done(done: &str, cause: &str) -> Self {
        let message = format!("an error interrupted the request after it had changed something ({done}): read back");
        Self::new(ErrorCode::Unexpected, message).with_cause(format!("{done}; then it failed: {cause}"))
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    fn retry_after(self, seconds: u64) -> Self {
        self.with(RETRY_AFTER, HeaderValue::from(seconds))
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn with_text(self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => self.with(name, value),
            // All callers pass ASCII constants.
            Err(_) => self,
        }
    }

    /// The serialised response body.
    pub(crate) fn body(&self, instance: &str, request_id: &str, timestamp: String) -> Vec<u8> {
        let (status, code, title) = self.code.parts();
        let body = ProblemBody {
            r#type: "about:blank",
            title,
            status,
            detail: &self.message,
            instance,
            code,
            message: &self.message,
            request_id,
            timestamp,
            errors: &self.errors,
            next: self.next.as_deref(),
        };
        serde_json::to_vec(&body).expect("the body holds only texts and numbers")
    }

    /// The response to a request for the path `instance`.
    pub(crate) fn response(&self, instance: &str, request_id: &str, timestamp: String) -> HttpResponse {
        let body = self.body(instance, request_id, timestamp);
        let mut response = HttpResponse::with_body(self.code.status(), BoxBody::new(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        response
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Gated(closed) => Self::unavailable(format!("writes are refused: {closed}"), 5),
            CommandError::KeyRunning => {
                Self::new(ErrorCode::Conflict, "a request with this idempotency key is still running").retry_after(1)
            }
            CommandError::KeyReused => {
                Self::new(ErrorCode::Unprocessable, "this idempotency key was used with another body")
            }
            CommandError::NotFound => Self::order_not_found(),
            CommandError::PreconditionFailed { current } => {
                Self::new(ErrorCode::PreconditionFailed, format!("the order is at version {current}"))
            }
            CommandError::Conflict(reason) | CommandError::RegionConflict(reason) => {
                Self::new(ErrorCode::Conflict, reason)
            }
            CommandError::Busy => Self::unavailable("too many commands are waiting; nothing was changed", 1),
            CommandError::ActorDown => Self::unavailable("the order's actor is restarting; nothing was changed", 1),
            CommandError::Expired => Self::unavailable(
                "the command exceeded its deadline in the mailbox and was dropped; nothing was changed",
                1,
            ),
            CommandError::Unavailable(cause) | CommandError::StorageFull(cause) => Self::dependency_unavailable(cause),
            CommandError::Unknown(cause) => Self::unexpected(cause),
        }
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::NotFound => Self::not_found("not found"),
            QueryError::Conflict(reason) => Self::new(ErrorCode::Conflict, reason),
            QueryError::Unavailable(cause) => Self::dependency_unavailable(cause),
            QueryError::Unknown(cause) => Self::unexpected(cause),
            QueryError::PartlyDone { done, cause } => Self::partly_done(&done, &cause),
        }
    }
}

impl From<UnknownTopic> for Problem {
    fn from(error: UnknownTopic) -> Self {
        Self::not_found(error.to_string())
    }
}

impl From<WebhookError> for Problem {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::Invalid { field, message } => Self::field(field, message),
            WebhookError::Query(error) => error.into(),
        }
    }
}

impl From<TopicError> for Problem {
    fn from(error: TopicError) -> Self {
        let message = error.to_string();
        match error {
            TopicError::Query(error) => error.into(),
            TopicError::NoTopic { .. } | TopicError::Cursor(CursorError::NoPartition { .. }) => {
                Self::new(ErrorCode::NotFound, message)
            }
            TopicError::Cursor(CursorError::Removed { next, .. }) => {
                Self { next: Some(next.to_string().into()), ..Self::new(ErrorCode::Gone, message) }
            }
            TopicError::Cursor(CursorError::BeyondEnd { .. })
            | TopicError::OwnGroup(_)
            | TopicError::TooManyGroups(_)
            | TopicError::TooManyTopics(_) => Self::new(ErrorCode::Conflict, message),
        }
    }
}

impl Problem {
    /// 501: topics are not read over HTTP with this broker.
    pub(crate) fn topics_not_readable() -> Self {
        Self::new(
            ErrorCode::NotImplemented,
            "topics are read over HTTP with broker.kind = \"embedded\" only; read Kafka with a Kafka client",
        )
    }

    /// 501: there is no outbox that could take an event.
    pub(crate) fn no_outbox() -> Self {
        Self::new(ErrorCode::NotImplemented, "events are published with outbox.enabled = true only")
    }

    /// 501: no webhook is delivered.
    pub(crate) fn no_webhooks() -> Self {
        Self::new(ErrorCode::NotImplemented, "webhooks need webhooks.enabled = true and a broker")
    }

    /// 404: the order does not exist or belongs to another caller; the responses are the same.
    pub(crate) fn order_not_found() -> Self {
        Self::not_found("no such order")
    }
}
